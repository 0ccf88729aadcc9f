#!/usr/bin/python3
"""What a scrape of /metrics/cgroups costs the server, by its own CPU time.

usage: metrics_bench.py BINARY_DIRECTORY [SCRAPES]
"""
import os
import pathlib
import re
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / 'e2e'))
import processes
from processes import Directory, Memcgctl, Memcgd, line


def cpu_ms(server):
    with os.scandir(f'/proc/{server.process.pid}/task') as tasks:
        return sum(int(pathlib.Path(task.path, 'schedstat').read_text().split()[0]) for task in tasks) / 1e6


def measure(directory, cgroups, scrapes):
    """Series, bytes and ms of CPU of one scrape."""
    server = Memcgd(directory.path, metrics='127.0.0.1:0', flags=('--cgroup-metrics', 'on'))
    try:
        text = '# tracer: nop\n#\n' + ''.join(
            line(1000 + i, f'cgroup_mkdir: root=4 id={10 + i} level=1 path=/pod-{i:05d}') for i in range(cgroups))
        code, _, err = Memcgctl('replay', directory.file('t', text), '--node', 'n', server=server.address,
                                stdout=open(os.devnull, 'w')).finish()
        assert code == 0, err
        url = f'http://{server.bound["metrics-listen"]}/metrics/cgroups'

        def get():
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read()
        for _ in range(20):
            body = get()  # labels are rendered, each thread has its memory
        before = cpu_ms(server)
        for _ in range(scrapes):
            get()
        return len(re.findall(rb'^[^#]', body, re.M)), len(body), (cpu_ms(server) - before) / scrapes
    finally:
        server.stop()


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv[1])
    directory = Directory()
    try:
        for cgroups in (303, 3030):
            series, size, ms = measure(directory, cgroups, int(sys.argv[2]) if len(sys.argv) > 2 else 100)
            print(f'{series} series, {size} bytes: {ms:.2f} ms of CPU a scrape, {1e6 * ms / series:.0f} ns a series')
    finally:
        directory.remove()
