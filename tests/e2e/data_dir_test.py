#!/usr/bin/python3
"""memcgd --data-dir end to end: stops, kills, full disks, and what clients make of them.

usage: data_dir_test.py BINARY_DIRECTORY [unittest arguments]
"""
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import unittest

import processes
from processes import Directory, Memcgctl, Memcgd, trace, wait_for

STOPS = int(os.environ.get('MEMCGD_TEST_STOPS', '4'))  # under load; 50 by hand
PAGES = 60000


class DataDir(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)
        self.data = os.path.join(self.directory.path, 'data')

    def start_server(self, listen='127.0.0.1:0', **more):
        server = Memcgd(self.directory.path, listen=listen, flags=('--data-dir', self.data), **more)
        self.addCleanup(server.stop)
        return server

    def refusal(self):
        run = subprocess.run([os.path.join(processes.BINARIES, 'memcgd'), '--listen', '127.0.0.1:0', '--metrics-listen',
                              'off', '--log-level', 'off', '--data-dir', self.data], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=processes.LIMIT_S)
        return run.returncode, run.stderr

    def ctl(self, server, *arguments):
        command = Memcgctl(*arguments, server=server.address)
        self.addCleanup(command.kill)
        code, out, err = command.finish()
        self.assertEqual(code, 0, err)
        return out

    def node(self, server, name='n'):
        return json.loads(self.ctl(server, 'node', 'get', name, '-o', 'json'))

    def events(self, server):
        return sum(node['events'] for node in json.loads(self.ctl(server, 'node', 'list', '-o', 'json')))

    def replay(self, server, *files):
        command = Memcgctl('replay', *files, '--node', 'n', '-o', 'json', '--timeout', '30', server=server.address)
        self.addCleanup(command.kill)
        return command

    def files(self):
        """Two jobs again and again: a second or more of events for four stops."""
        jobs = [self.directory.file(f't{i}', trace(PAGES, f'/job{i}', pid=100 + i)) for i in range(2)]
        return 5 * STOPS // 2 * jobs

    def feed_until(self, command, server, more_than):
        """Lets the client go on for a moment at a time until the server has more events than that; it is halted then, with
        events left to send."""
        def fed():
            command.process.send_signal(signal.SIGCONT)
            time.sleep(0.005)
            command.process.send_signal(signal.SIGSTOP)
            return self.events(server) > more_than
        wait_for(fed, 'events')
        self.assertIsNone(command.process.poll(), 'the client is done: nothing will be interrupted')

    def stop_under_load(self, command, server):
        """Stops the server while the client streams into it; the client is halted then."""
        command.process.send_signal(signal.SIGCONT)
        self.assertEqual(server.stop(), 0)
        command.process.send_signal(signal.SIGSTOP)
        self.assertIsNone(command.process.poll(), 'the client is done: nothing was interrupted')

    def uninterrupted(self, *files):
        server = Memcgd(self.directory.path)
        self.addCleanup(server.stop)
        code, out, err = self.replay(server, *files).finish()
        self.assertEqual(code, 0, err)
        return out

    def test_stops_under_load_lose_nothing(self):
        files = self.files()
        out = self.uninterrupted(*files)
        server = self.start_server()
        command = self.replay(server, *files)
        for _ in range(STOPS):
            self.feed_until(command, server, self.events(server))
            self.stop_under_load(command, server)
            server = self.start_server(server.address)
        command.process.send_signal(signal.SIGCONT)
        code, got, err = command.finish()
        self.assertEqual(code, 0, err)
        self.assertEqual(got, out)
        again = re.search(r'the connection was made again (\d+) times', err)
        self.assertGreaterEqual(int(again.group(1)) if again else 0, STOPS, err)
        self.assertNotIn('sending it again', err)

    def test_a_kill_costs_what_came_after_the_last_stop(self):
        files = self.files()
        out = self.uninterrupted(*files)
        server = self.start_server()
        command = self.replay(server, *files)
        self.feed_until(command, server, 0)
        made = self.node(server)
        self.stop_under_load(command, server)
        server = self.start_server(server.address)
        saved = self.node(server)
        self.assertGreater(saved['events'], 0)
        self.assertEqual(saved['incarnation'], made['incarnation'], 'a stop loses nothing')
        self.feed_until(command, server, saved['events'])
        server.process.kill()
        server.process.wait()
        server = self.start_server(server.address)
        killed = self.node(server)
        self.assertEqual((killed['events'], killed['state_hash']), (saved['events'], saved['state_hash']))
        self.assertNotEqual(killed['incarnation'], saved['incarnation'], 'a kill does')
        command.process.send_signal(signal.SIGCONT)
        code, got, err = command.finish()
        self.assertEqual(code, 0, err)
        self.assertEqual(got, out)
        self.assertIn('sending it again', err)

    def test_a_kill_before_any_stop_costs_all(self):
        files = self.files()
        out = self.uninterrupted(*files)
        server = self.start_server()
        command = self.replay(server, *files)
        self.feed_until(command, server, 0)
        server.process.kill()
        server.process.wait()
        server = self.start_server(server.address)
        self.assertEqual(self.events(server), 0)
        command.process.send_signal(signal.SIGCONT)
        code, got, err = command.finish()
        self.assertEqual((code, got), (0, out), err)
        self.assertIn('sending it again', err)

    def test_a_node_that_held_more_than_the_trace_is_not_made_again(self):
        server = self.start_server()
        self.ctl(server, 'node', 'create', 'n')
        command = self.replay(server, *self.files())
        self.feed_until(command, server, 0)
        server.process.kill()
        server.process.wait()
        self.start_server(server.address)
        command.process.send_signal(signal.SIGCONT)
        code, _, err = command.finish()
        self.assertEqual(code, 5, err)
        self.assertRegex(err, r'(?m)^memcgctl: DATA_LOSS: ')

    def test_a_second_server_is_refused(self):
        server = self.start_server()
        code, err = self.refusal()
        self.assertEqual(code, 1)
        self.assertRegex(err, rf'\Amemcgd: data directory {self.data} is used by another memcgd '
                              rf'\(process {server.process.pid}\): [^\n]+\n\Z')

    def test_a_damaged_file_is_named(self):
        server = self.start_server()
        self.ctl(server, 'node', 'create', 'n')
        self.assertEqual(server.stop(), 0)
        file = os.path.join(self.data, 'nodes', 'n')
        with open(file, 'r+b') as node:
            node.truncate(os.path.getsize(file) - 1)
        code, err = self.refusal()
        self.assertEqual(code, 1)
        self.assertRegex(err, rf'\Amemcgd: data directory {self.data}: {file} [^\n]*cut short or damaged[^\n]*'
                              r'move it away[^\n]*\n\Z')
        os.remove(file)
        server = self.start_server()
        self.assertEqual(json.loads(self.ctl(server, 'node', 'list', '-o', 'json')), [])

    def test_a_directory_that_cannot_be_made_is_named(self):
        self.data = os.path.join(self.directory.path, 'no', 'such')
        code, err = self.refusal()
        self.assertEqual((code, err), (1, f'memcgd: cannot make directory {self.data}: No such file or directory\n'))

    def test_a_full_disk_is_reported_and_the_old_state_kept(self):
        file = self.directory.file('t', trace(2000))
        server = self.start_server()
        self.ctl(server, 'replay', file, '--node', 'n')
        before = self.node(server)
        self.assertEqual(server.stop(), 0)

        server = self.start_server()
        self.ctl(server, 'replay', self.directory.file('u', trace(2000, '/other', pid=200)), '--node', 'n')
        # No file may grow past this: to a write the same as a full disk, and needs no mount.
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        server.process.terminate()
        self.assertEqual(server.process.wait(processes.LIMIT_S), 1)
        server.log.seek(0)
        log = server.log.read()
        self.assertRegex(log, rf'node n is not saved, .*cannot write {self.data}/tmp/n: File too large')
        self.assertRegex(log, rf'(?m)^memcgd: data directory {self.data}: 1 of 1 nodes could not be saved')
        self.assertEqual(os.listdir(os.path.join(self.data, 'tmp')), [])

        server = self.start_server()
        after = self.node(server)
        self.assertEqual(after['state_hash'], before['state_hash'])
        self.assertNotEqual(after['incarnation'], before['incarnation'])

    def test_a_second_signal_ends_at_once_and_keeps_the_old_state(self):
        server = self.start_server()
        self.ctl(server, 'node', 'create', 'n')
        self.assertEqual(server.stop(), 0)
        server = self.start_server()
        # A client that does not go: the drain gives it 2 s.
        command = Memcgctl('replay', '-', '--node', 'n', server=server.address, stdin=subprocess.PIPE)
        self.addCleanup(command.kill)
        command.process.stdin.write(trace(10000).encode())
        command.process.stdin.flush()
        wait_for(lambda: self.events(server) > 0, 'events')
        command.process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        server.process.terminate()
        time.sleep(0.1)
        server.process.terminate()
        self.assertEqual(server.process.wait(processes.LIMIT_S), 143)
        self.assertLess(time.monotonic() - start, 1.5)
        server = self.start_server()
        self.assertEqual(self.node(server)['events'], 0)


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
