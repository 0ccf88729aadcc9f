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


def empty(cgroups):
    """Short paths, and nothing charged: the least that a series can cost."""
    return '# tracer: nop\n#\n' + ''.join(
        line(1000 + i, f'cgroup_mkdir: root=4 id={10 + i} level=1 path=/pod-{i:05d}') for i in range(cgroups))


def kubepods(cgroups):
    """Pods of one container by the cgroupfs driver, each with a process that touched 40 pages."""
    events = [('cgroup_mkdir: root=4 id=8 level=1 path=/kubepods', 1),
              ('cgroup_mkdir: root=4 id=9 level=2 path=/kubepods/burstable', 1)]
    for i in range(cgroups // 2):
        pod = f'/kubepods/burstable/pod7f0dd3c1-6a1d-4b0c-9c53-{i:012x}'
        container, pid = f'{pod}/{i:064x}', 1000 + i
        events += [(event, pid) for event in (
            f'cgroup_mkdir: root=4 id={10 + 2 * i} level=3 path={pod}',
            f'cgroup_mkdir: root=4 id={11 + 2 * i} level=4 path={container}',
            f'cgroup_attach_task: dst_root=4 dst_id={11 + 2 * i} dst_level=4 dst_path={container} pid={pid} comm=job',
            'sys_mmap(addr: 0, len: 0x40000, prot: 3, flags: 0x22, fd: 0xffffffffffffffff, off: 0)',
            'sys_mmap -> 0x7f0000000000',
            *(f'page_fault_user: address=0x{0x7f0000000000 + 4096 * page:x} ip=0x401000 error_code=0x6' for page in range(40)))]
    return '# tracer: nop\n#\n' + ''.join(line(1000 + i, event, pid) for i, (event, pid) in enumerate(events))


def measure(directory, text, scrapes):
    """Series, bytes and ms of CPU of one scrape."""
    server = Memcgd(directory.path, metrics='127.0.0.1:0', flags=('--cgroup-metrics', 'on'))
    try:
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
        for shape, cgroups in ((empty, 303), (empty, 3030), (kubepods, 303), (kubepods, 3030)):
            series, size, ms = measure(directory, shape(cgroups), int(sys.argv[2]) if len(sys.argv) > 2 else 100)
            print(f'{shape.__name__}: {series} series, {size} bytes: {ms:.2f} ms of CPU a scrape, {1e6 * ms / series:.0f} ns a series')
    finally:
        directory.remove()
