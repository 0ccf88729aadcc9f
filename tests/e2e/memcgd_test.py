#!/usr/bin/python3
"""memcgd end to end: where its threads run, and what becomes of it when others end badly.

usage: memcgd_test.py BINARY_DIRECTORY [unittest arguments]
"""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

import processes
from processes import Directory, Memcgctl, Memcgd, wait_for

CPUS = sorted(os.sched_getaffinity(0))


def allowed_cpus(pid):
    """The CPUs of each thread, by its name, from /proc."""
    allowed = {}
    for task in os.listdir(f'/proc/{pid}/task'):
        try:
            with open(f'/proc/{pid}/task/{task}/status') as lines:
                status = dict(line.rstrip('\n').split(':\t', 1) for line in lines if ':\t' in line)
        except FileNotFoundError:
            continue
        allowed.setdefault(status['Name'], set()).add(status['Cpus_allowed_list'])
    return allowed


class EndToEnd(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)

    def start_server(self, **more):
        server = Memcgd(self.directory.path, **more)
        self.addCleanup(server.stop)
        return server

    def refusal(self, *flags):
        """What a memcgd that does not start says, and its exit code."""
        run = subprocess.run([os.path.join(processes.BINARIES, 'memcgd'), *flags], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=processes.LIMIT_S)
        return run.returncode, run.stderr

    def load(self, server, *arguments):
        """A memcg-loadgen under way."""
        command = subprocess.Popen(
            [os.path.join(processes.BINARIES, 'memcg-loadgen'), *arguments, '--server', server.address, '--duration',
             '60', '--warmup', '0', '--timeout', '10'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(command.stderr.close)
        self.addCleanup(lambda: command.poll() is None and (command.kill(), command.wait()))
        wait_for(lambda: any(node['events'] > 100_000 for node in self.nodes(server)), 'a node under load')
        return command

    def ctl(self, server, *arguments):
        command = Memcgctl(*arguments, server=server.address)
        self.addCleanup(command.kill)
        code, out, err = command.finish()
        self.assertEqual(code, 0, err)
        return out

    def nodes(self, server):
        return json.loads(self.ctl(server, 'node', 'list', '-o', 'json'))

    def metric(self, server, name):
        with urllib.request.urlopen(f'http://{server.bound["metrics-listen"]}/metrics', timeout=60) as answer:
            return float(re.search(rf'^{name} (\S+)$', answer.read().decode(), re.M).group(1))


class Pinning(EndToEnd):
    def test_threads_that_apply_stay_on_one_cpu_each(self):
        cpus = CPUS[:2]
        text = ','.join(map(str, cpus))
        server = self.start_server(flags=('--pin', text, '--apply-threads', '3'))
        allowed = wait_for(lambda: (now := allowed_cpus(server.process.pid)).keys() >= {'apply-0', 'apply-1', 'apply-2'}
                           and now, 'three threads')
        for i in range(3):
            self.assertEqual(allowed.pop(f'apply-{i}'), {str(cpus[i % len(cpus)])})
        for name, lists in allowed.items():
            listed = {cpu for one in lists for part in one.split(',') for first, _, last in [part.partition('-')]
                      for cpu in range(int(first), int(last or first) + 1)}
            self.assertLessEqual(listed, set(cpus), name)

    def test_one_thread_for_each_cpu_of_the_list(self):
        server = self.start_server(environment={'MEMCGD_PIN': str(CPUS[-1])})
        allowed = allowed_cpus(server.process.pid)
        self.assertEqual([name for name in allowed if name.startswith('apply-')], ['apply-0'])
        self.assertEqual(allowed['apply-0'], {str(CPUS[-1])})

    def test_a_cpu_that_is_not_there(self):
        code, err = self.refusal('--pin', f'{CPUS[0]},8000')
        self.assertEqual(code, 2)
        self.assertRegex(err, r'\Amemcgd: --pin: "\d+,8000": CPU 8000 is not there; this process may use [\d,-]+\n\Z')


class BadEnds(EndToEnd):
    def test_a_client_that_is_killed_leaves_nothing_running(self):
        server = self.start_server(metrics='127.0.0.1:0')
        command = self.load(server, 'mix', '--streams', '2')
        self.assertEqual(self.metric(server, 'memcgd_streams'), 2)
        command.kill()
        command.wait()
        wait_for(lambda: self.metric(server, 'memcgd_streams') == 0, 'the streams to be given up')
        for node in self.nodes(server):
            self.ctl(server, 'node', 'delete', node['name'])
        self.assertEqual(self.nodes(server), [])
        self.assertEqual(server.stop(), 0)

    def test_a_client_whose_server_is_killed_says_so(self):
        server = self.start_server()
        command = self.load(server, 'mix', '--streams', '2')
        server.process.kill()
        self.assertEqual(command.wait(processes.LIMIT_S), 4)
        self.assertRegex(command.stderr.read(), r'\Amemcg-loadgen: UNAVAILABLE: [^\n]+\n\Z')

    def test_a_server_under_load_drains(self):
        server = self.start_server()
        command = self.load(server, 'mix', '--streams', '2')
        start = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(command.wait(processes.LIMIT_S), 4)

    def test_a_server_that_stands_still_and_goes_on(self):
        server = self.start_server()
        command = self.load(server, 'mix', '--streams', '2')
        before = sum(node['events'] for node in self.nodes(server))
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGCONT)
        wait_for(lambda: sum(node['events'] for node in self.nodes(server)) > before + 100_000, 'events after the stop')
        self.assertIsNone(command.poll())


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
