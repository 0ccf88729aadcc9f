#!/usr/bin/python3
"""memcgctl record end to end, on this machine's own tracefs.

usage: record_test.py BINARY_DIRECTORY [unittest arguments]
Exits with 77 where tracefs may not be used.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import processes
from processes import CuttingProxy, Directory, Memcgctl, Memcgd, wait_for

PAGE = 4096
PYTHON = '/usr/bin/python3'


def mounts():
    with open('/proc/self/mounts') as lines:
        return [line.split() for line in lines]


def tracing():
    """Where tracefs is mounted, or None."""
    return next((where for _, where, kind, *_ in mounts() if kind == 'tracefs'), None)


def why_not():
    if os.geteuid() != 0:
        return 'not root'
    if tracing() is None:
        return 'tracefs is not mounted'
    if not os.access(os.path.join(tracing(), 'instances'), os.W_OK):
        return 'tracing instances may not be made here'
    return None


def memory_mount():
    """The mount point of the memory controller and whether it is v2's; None without."""
    for _, where, kind, options, *_ in mounts():
        if kind == 'cgroup' and 'memory' in options.split(','):
            return where, False
        if kind == 'cgroup2':
            with open(where + '/cgroup.controllers') as controllers:
                if 'memory' in controllers.read().split():
                    return where, True
    return None


# Anonymous memory and a file, then silence, in which the kernel writes what it counted down, and then what it says.
QUIET_JOB = '''
import mmap, os, sys, time
anon = mmap.mmap(-1, 24 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 16 << 20, 4096):
    anon[at] = 1
path = sys.argv[1]
for size in (8 << 20, 3 << 20):
    with open(path, 'wb') as out:
        out.write(b'x' * size)
    with open(path, 'rb') as back:
        back.read()
    if size == 8 << 20:
        os.unlink(path)
stat = open(sys.argv[2] + [l.split(':')[2].strip() for l in open('/proc/self/cgroup')
                           if sys.argv[3] in l][0] + '/memory.stat')
def read():
    stat.seek(0)
    return time.clock_gettime(time.CLOCK_MONOTONIC), stat.read()
read()
time.sleep(2.5)
print(*read())
'''


class Record(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)
        self.trace = os.path.join(self.directory.path, 'job.trace')
        self.addCleanup(self.assert_nothing_left)

    def assert_nothing_left(self):
        left = [name for name in os.listdir(os.path.join(tracing(), 'instances')) if name.startswith('memcgd-')]
        if memory_mount() is not None:
            left += [name for name in os.listdir(memory_mount()[0]) if name.startswith('memcgd-')]
        self.assertEqual(left, [])

    def start(self, *arguments, server=None, **more):
        # Before the command: behind a -- it would be the recorded command's.
        command = Memcgctl(*(['--server', server] if server else []), *arguments, **more)
        self.addCleanup(command.kill)
        return command

    def record(self, *command, flags=()):
        return self.start('record', '-o', self.trace, *flags, '--', *command).finish()

    def start_and_wait(self, *command):
        """Records the command, and returns once it has begun to write events."""
        if os.path.exists(self.trace):
            os.unlink(self.trace)
        recording = self.start('record', '-o', self.trace, '--', *command)
        wait_for(lambda: os.path.exists(self.trace) and os.path.getsize(self.trace) > 2000, 'some events')
        return recording

    def lines(self):
        return subprocess.run(['zstd', '-dc', self.trace], check=True, stdout=subprocess.PIPE, timeout=60,
                              text=True).stdout.splitlines()

    def instance_of(self, pid):
        return [name for name in os.listdir(os.path.join(tracing(), 'instances')) if name.startswith(f'memcgd-{pid}-')]

    def assert_one_error(self, err):
        self.assertEqual(len(re.findall(r'^memcgctl: (?!note: |warning: )', err, re.M)), 1, err)


class Files(Record):
    def test_a_recording_replays_to_what_the_kernel_said(self):
        if memory_mount() is None:
            self.skipTest('no memory controller is mounted')
        mount, v2 = memory_mount()
        code, out, err = self.record(PYTHON, '-c', QUIET_JOB, os.path.join(self.directory.path, 'file'), mount,
                                     '0::' if v2 else ':memory:')
        self.assertEqual(code, 0, err)
        moment, stat = out.split(' ', 1)
        kernel = dict(line.split() for line in stat.splitlines() if line)
        names = {'anon': 'anon', 'file': 'file'} if v2 else {'anon': 'total_rss', 'file': 'total_cache'}
        server = Memcgd(self.directory.path)
        self.addCleanup(server.stop)
        code, out, err = self.start('replay', self.trace, '--no-zero-page', '-o', 'json', '--stat-at',
                                    self.directory.file('times', moment + '\n'), server=server.address).finish()
        self.assertEqual(code, 0, err)
        cgroups = json.loads(out)[0]['cgroups']
        own = [path for path in cgroups if path.startswith('/memcgd-')]
        self.assertEqual(len(own), 1, cgroups.keys())
        for name, line in names.items():
            self.assertGreater(int(kernel[line]), 1 << 20)
            self.assertEqual(cgroups[own[0]][name] // PAGE, int(kernel[line]) // PAGE, name)

    def test_the_file_is_tracefs_text_in_order_of_time(self):
        self.assertEqual(self.record('sh', '-c', 'ls / | cat >/dev/null')[0], 0)
        lines = self.lines()
        self.assertEqual(lines[0], '# tracer: nop')
        times = [float(re.search(r' (\d+\.\d{9}): ', line)[1]) for line in lines if not line.startswith('#')]
        self.assertGreater(len(times), 100)
        self.assertEqual(times, sorted(times))
        text = '\n'.join(lines)
        for event in ('page_fault_user', 'sched_process_fork', 'sched_process_exec: filename=', 'exit_mmap',
                      'group_dead=true', 'sys_mmap(', 'sys_mmap -> 0x'):
            self.assertIn(event, text)
        self.assertRegex(text, r' ls-\d+ \(\d+\) \[')  # the name that exec gave it

    def test_threads_have_their_group(self):
        self.assertEqual(self.record(PYTHON, '-c', 'import threading as t\na = t.Thread(target=bytearray, '
                                                   'args=[1 << 20])\na.start()\na.join()')[0], 0)
        groups = set(re.findall(r'^ *\S+-(\d+) \((\d+)\)', '\n'.join(self.lines()), re.M))
        self.assertTrue([tid for tid, tgid in groups if tid != tgid], groups)

    def test_a_name_that_is_no_text_breaks_no_line(self):
        job = ('import ctypes\nctypes.CDLL(None).prctl(15, b"\\n1-2 [0] \\xff: x")\nbytearray(1 << 20)')
        self.assertEqual(self.record(PYTHON, '-c', job)[0], 0)
        server = Memcgd(self.directory.path)
        self.addCleanup(server.stop)
        code, _, err = self.start('replay', '--strict', self.trace, server=server.address).finish()
        self.assertEqual(code, 0, err)

    def test_standard_output_takes_it_too(self):
        command = self.start('record', '-o', '-', '--', 'true')
        out, err = command.process.communicate(timeout=60)
        self.assertEqual(command.process.returncode, 0, err)
        self.assertEqual(out[:4], b'\x28\xb5\x2f\xfd')


class WithServer(Record):
    def setUp(self):
        super().setUp()
        if memory_mount() is None:
            self.skipTest('no memory controller is mounted')
        self.server = Memcgd(self.directory.path)
        self.addCleanup(self.server.stop)

    def verify(self, *arguments, server=None):
        """The exit code, and for each comparison its time, the difference in anon and in file, and the whole line."""
        code, _, err = self.start('record', '--verify', *arguments, server=server or self.server.address).finish()
        found = re.findall(r'verify at ([\d.]+) s: (anon .* off by ([+-]\d+), file .* off by ([+-]\d+) pages.*)', err)
        self.assertTrue(found, err)
        return code, [(float(at), int(anon), int(file), text) for at, text, anon, file in found], err


class Streams(WithServer):
    def job(self):
        mount, v2 = memory_mount()
        return [PYTHON, '-c', QUIET_JOB, os.path.join(self.directory.path, 'file'), mount, '0::' if v2 else ':memory:']

    def test_the_node_has_what_the_kernel_has_to_the_page(self):
        code, comparisons, err = self.verify('--', *self.job())
        self.assertEqual(code, 0, err)
        # The job sleeps from 1 s on at the latest, and the kernel has written down what it counted two seconds later.
        ended = next(i for i, one in enumerate(comparisons) if 'anon 0' in one[3])
        self.assertIn('MiB', comparisons[ended - 1][3])
        for one in (comparisons[ended - 1], comparisons[-1]):
            self.assertEqual(one[1:3], (0, 0), err)

    def test_a_connection_that_is_cut_loses_nothing(self):
        proxy = CuttingProxy(self.server.address, cut_after_bytes=30000)
        self.addCleanup(proxy.close)
        code, comparisons, err = self.verify('--', *self.job(), server=proxy.address)
        self.assertEqual(code, 0, err)
        self.assertEqual(proxy.cuts, 1)
        self.assertEqual(comparisons[-1][1:3], (0, 0), err)
        self.assertIn('the connection was made again', err)

    def test_a_server_that_takes_nothing_for_a_while(self):
        for backlog, outcome in (('64M', 0), ('16K', 6)):
            recording = self.start('record', '--backlog', backlog, '--', 'sh', '-c',
                                   'sleep 0.5; end=$(($(date +%s)+3)); while [ $(date +%s) -lt $end ]; do :; done',
                                   server=self.server.address)
            wait_for(lambda: self.started(recording), 'the job to start')
            self.server.process.send_signal(signal.SIGSTOP)
            time.sleep(2.3)  # some 30 batches are on their way before one waits
            self.server.process.send_signal(signal.SIGCONT)
            code, _, err = recording.finish()
            self.assertEqual(code, outcome, err)
            if outcome:
                self.assertRegex(err, r'[0-9]+ events were dropped')

    def started(self, recording):
        children = f'/proc/{recording.process.pid}/task/{recording.process.pid}/children'
        with open(children) as text:
            pids = text.read().split()
        return pids and os.path.basename(os.readlink(f'/proc/{pids[0]}/exe')) != 'memcgctl'

    def test_a_server_that_lost_the_state_ends_it(self):
        recording = self.start('record', '--', 'sleep', '60', server=self.server.address)
        wait_for(lambda: self.started(recording), 'the job to start')
        time.sleep(0.5)
        listen = self.server.address
        self.server.stop()
        second = Memcgd(self.directory.path, listen)
        self.addCleanup(second.stop)
        code, _, err = recording.finish()
        self.assertEqual(code, 5, err)
        self.assert_one_error(err)

    def test_no_server(self):
        code, _, err = self.start('record', '--', 'true', server='127.0.0.1:1').finish()
        self.assertEqual(code, 4)
        self.assert_one_error(err)

    def test_a_file_and_a_node_at_once(self):
        code, _, err = self.start('record', '-o', self.trace, '--node', 'both', '--', 'true',
                                  server=self.server.address).finish()
        self.assertEqual(code, 0, err)
        self.assertIn('exit_mmap', '\n'.join(self.lines()))
        code, out, _ = self.start('node', 'get', 'both', '-o', 'json', server=self.server.address).finish()
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out)['cpus'], os.cpu_count())


class Attached(WithServer):
    ANON = 20 << 20
    def test_a_process_that_runs_is_told_with_what_it_has(self):
        job = subprocess.Popen([PYTHON, '-c', f'a = bytearray({self.ANON})\nprint("x", flush=True)\n'
                                              'import time\ntime.sleep(1)\nb = bytearray(8 << 20)\ntime.sleep(60)'],
                               stdout=subprocess.PIPE)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.addCleanup(job.stdout.close)
        job.stdout.readline()
        code, _, err = self.start('record', '--node', 'attached', '-p', str(job.pid), '--for', '2.5',
                                  server=self.server.address).finish()
        self.assertEqual(code, 0, err)
        anon = self.rss(job.pid)
        code, out, _ = self.start('cgroup', 'stat', '/', '--node', 'attached', '-o', 'json',
                                  server=self.server.address).finish()
        stat = json.loads(out)['stat']
        self.assertGreater(stat['anon'], self.ANON + (8 << 20))
        self.assertAlmostEqual(stat['anon'] // PAGE, anon, delta=50)
        self.assertGreater(stat['file_mapped'], 1 << 20)

    def rss(self, pid):
        with open(f'/proc/{pid}/status') as status:
            return next(int(line.split()[1]) // 4 for line in status if line.startswith('RssAnon'))

    def test_a_cgroup(self):
        mount, _ = memory_mount()
        folder = os.path.join(mount, f'record-test-{os.getpid()}')
        os.mkdir(folder)
        self.addCleanup(os.rmdir, folder)
        job = subprocess.Popen(['sh', '-c', f'echo 0 > {folder}/cgroup.procs; exec {PYTHON} -c '
                                            f'"a = bytearray({self.ANON}); print(1, flush=True); import sys; sys.stdin.read()"'],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.stdin.close)
        job.stdout.readline()
        code, comparisons, err = self.verify('--cgroup', '/' + os.path.basename(folder), '--for', '1')
        self.assertEqual(code, 0, err)
        self.assertIn('anon 2', comparisons[-1][3])
        self.assertLess(abs(comparisons[-1][1]), 100, err)

    def test_what_is_not_there(self):
        for arguments in (['-p', '4194300'], ['--cgroup', '/no/such']):
            code, _, err = self.start('record', *arguments, server=self.server.address).finish()
            self.assertEqual(code, 1)
            self.assert_one_error(err)


class Ends(Record):
    """However a recording ends, its tracing instances and its cgroup are gone (assert_nothing_left)."""

    def test_the_commands_exit_status_is_passed_on(self):
        self.assertEqual(self.record('sh', '-c', 'exit 42')[0], 42)
        self.assertEqual(self.record('sh', '-c', 'kill -9 $$')[0], 128 + 9)

    def test_a_command_that_cannot_be_run(self):
        code, _, err = self.record('/nowhere/at-all')
        self.assertEqual(code, 127)
        self.assert_one_error(err)
        self.assertIn('/nowhere/at-all', err)

    def test_a_file_that_cannot_be_written(self):
        for path in ('/nowhere/job.trace', '/dev/full'):
            code, _, err = self.start('record', '-o', path, '--', 'sleep', '60').finish()
            self.assertEqual(code, 1, err)
            self.assert_one_error(err)
            self.assertIn(path, err)

    def test_signals_end_command_and_recording(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            command = self.start_and_wait('sleep', '60')
            command.process.send_signal(number)
            code, _, err = command.finish()
            self.assertEqual(code, 128 + number, err)
            self.assertIn('sched_process_exit', '\n'.join(self.lines()))  # of the sleep: it was ended, and recorded

    def test_a_command_that_stays_does_not_keep_it(self):
        job = 'trap "" TERM; sleep 3 & wait; wait'
        command = self.start_and_wait('sh', '-c', job)
        begin = time.monotonic()
        command.process.send_signal(signal.SIGTERM)
        self.assertEqual(command.finish()[0], 143)
        self.assertLess(time.monotonic() - begin, 2.5)
        self.lines()  # whole

    def test_what_a_killed_recording_left_is_removed_by_the_next(self):
        command = self.start('record', '-o', self.trace, '--', 'sleep', '1')
        wait_for(lambda: len(self.instance_of(command.process.pid)) == 2, 'its instances')
        command.process.kill()
        command.process.wait()
        self.assertEqual(len(self.instance_of(command.process.pid)), 2)
        code, _, err = self.record('sleep', '1.5')  # the sleep that was left ends before
        self.assertEqual(code, 0)
        self.assertIn('a recording that was killed', err)
        self.record('true')

    def test_two_at_once_do_not_meet(self):
        one = self.start('record', '-o', self.trace, '--', 'sh', '-c', 'sleep 0.5; true')
        other_trace = os.path.join(self.directory.path, 'other.trace')
        other = self.start('record', '-o', other_trace, '--', 'sh', '-c', 'sleep 0.2; exec env')
        self.assertEqual((one.finish()[0], other.finish()[0]), (0, 0))
        self.assertNotIn('/env', '\n'.join(self.lines()))

    def test_full_buffers_are_told(self):
        # The kernel rounds up to two pages; half a second of faults while nobody reads does not fit.
        job = 'bytearray(256 << 20)'
        code, _, err = self.record(PYTHON, '-c', job, flags=['--buffer', '4K'])
        self.assertEqual(code, 6, err)
        self.assert_one_error(err)
        self.assertRegex(err, r'[0-9]+ events were lost')
        self.assertRegex('\n'.join(self.lines()), r'CPU:\d+ \[LOST (\d+ )?EVENTS\]')


class Usage(unittest.TestCase):
    def test_without_rights_one_line_says_what_is_missing(self):
        process = subprocess.run(['setpriv', '--reuid=65534', '--clear-groups',
                                  os.path.join(processes.BINARIES, 'memcgctl'), 'record', '-o', '/dev/null', '--', 'true'],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if process.returncode in (126, 127):
            self.skipTest('the binary may be run by root only')
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, r'\Amemcgctl: [^\n]*root[^\n]*\n\Z')


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    if why_not() is not None:
        print(f'skipped: {why_not()}')
        sys.exit(77)
    unittest.main(verbosity=2)
