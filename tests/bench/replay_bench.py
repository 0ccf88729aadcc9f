#!/usr/bin/python3
"""What a replay costs from end to end: text in, exact answers out, real processes.

usage: tests/bench/replay_bench.py BIN_DIR [TRACE [TIMES]]     (default: the shipped buildfarm trace, 8 times in one file)

Prints the median of five replays: events a second by the wall clock, and the server's CPU time an event.  The text is
unpacked beforehand, on a tmpfs where there is one."""
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'e2e'))
import processes  # noqa: E402


def cpu_seconds(pid):
    with open(f'/proc/{pid}/stat') as stat:
        fields = stat.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    processes.BINARIES = sys.argv[1]
    trace = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, '../fidelity/traces/buildfarm/trace.txt.zst')
    times = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    shm = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shm) as directory:
        text = os.path.join(directory, 'trace.txt')
        with open(text, 'wb') as out:
            for _ in range(times):
                cat = ['zstd', '--decompress', '--stdout', trace] if trace.endswith('.zst') else ['cat', trace]
                subprocess.run(cat, stdout=out, check=True)
        server = processes.Memcgd(directory)
        try:
            rates, costs = [], []
            for _ in range(5):
                before, begin = cpu_seconds(server.process.pid), time.monotonic()
                subprocess.run([os.path.join(sys.argv[1], 'memcgctl'), 'replay', text, '--server', server.address,
                                '--no-zero-page', '--cpus', '2', '--node', 'bench', '-o', 'json'],
                               stdout=subprocess.DEVNULL, check=True)
                seconds = time.monotonic() - begin
                used = cpu_seconds(server.process.pid) - before
                node = subprocess.run([os.path.join(sys.argv[1], 'memcgctl'), 'node', 'get', 'bench', '-o', 'json',
                                       '--server', server.address], stdout=subprocess.PIPE, check=True)
                events = int(node.stdout.decode().split('"events": ')[1].split(',')[0].split('}')[0])
                subprocess.run([os.path.join(sys.argv[1], 'memcgctl'), 'node', 'delete', 'bench',
                                '--server', server.address], stdout=subprocess.DEVNULL, check=True)
                rates.append(events / seconds)
                costs.append(used / events * 1e9)
        finally:
            server.stop()
    print(f'{events} events; {statistics.median(rates) / 1e6:.2f} M events/s end to end '
          f'({min(rates) / 1e6:.2f} to {max(rates) / 1e6:.2f}); server CPU {statistics.median(costs):.0f} ns an event')


if __name__ == '__main__':
    main()
