#!/usr/bin/python3
"""memcgctl top end to end: in a terminal (tmux), and as text.

usage: top_test.py BINARY_DIRECTORY [unittest arguments]
"""
import json
import os
import shlex
import signal
import subprocess
import sys
import unittest

import processes
from processes import Directory, Memcgctl, Memcgd, trace, wait_for


class Terminal:
    """A terminal of that size in which a shell command runs."""

    def __init__(self, directory, command, environment, columns=150, rows=16, kind='xterm-256color'):
        self.tmux = ['tmux', '-S', os.path.join(directory, 'tmux'), '-f', '/dev/null']
        variables = ' '.join(f'{name}={shlex.quote(value)}' for name, value in {**environment, 'TERM': kind}.items())
        self.run('new-session', '-d', '-x', str(columns), '-y', str(rows), f'env {variables} sh -c {shlex.quote(command)}')

    def run(self, *arguments):
        return subprocess.run([*self.tmux, *arguments], check=True, stdout=subprocess.PIPE, timeout=60).stdout.decode()

    def screen(self):
        return self.run('capture-pane', '-p')

    def wait_for(self, text):
        return wait_for(lambda: text in self.screen() and self.screen(), f'{text!r} on the screen')

    def keys(self, *keys):
        self.run('send-keys', *keys)

    def close(self):
        subprocess.run([*self.tmux, 'kill-server'], stderr=subprocess.DEVNULL, timeout=60)


class Top(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)
        self.server = Memcgd(self.directory.path)
        self.addCleanup(self.server.stop)
        self.trace = self.directory.file('trace', trace(3000, '/big') + trace(500, '/small', 5000000, pid=200))
        self.feed('n')

    def feed(self, node):
        code, _, err = self.ctl('replay', '--node', node, self.trace)
        self.assertEqual(code, 0, err)

    def ctl(self, *arguments):
        command = Memcgctl(*arguments, server=self.server.address)
        self.addCleanup(command.kill)
        return command.finish()

    def terminal(self, flags='', **more):
        command = f'trap : INT; {os.path.join(processes.BINARIES, "memcgctl")} top --node n {flags}; echo "rc=$?"; sleep 60'
        terminal = Terminal(self.directory.path, command, {'MEMCGCTL_SERVER': self.server.address}, **more)
        self.addCleanup(terminal.close)
        return terminal


class Screen(Top):
    def test_it_shows_the_tree_sorts_and_quits(self):
        terminal = self.terminal('--every 0.1')
        screen = terminal.wait_for('small')
        self.assertIn('node n: 3 cgroups', screen)
        self.assertIn('vUSAGE', screen)
        self.assertLess(screen.index('big'), screen.index('small'))
        self.assertIn('11.7 MiB', screen)
        terminal.keys('r')
        screen = terminal.wait_for('^USAGE')
        self.assertLess(screen.index('small'), screen.index('big'))
        terminal.keys('>', '>')
        terminal.wait_for('vANON')
        terminal.keys('<')
        terminal.wait_for('vLIMIT')
        terminal.keys('t')
        terminal.wait_for('  /small')
        terminal.keys('q')
        terminal.wait_for('rc=0')

    def test_it_follows_what_happens(self):
        terminal = self.terminal('--every 0.1')
        terminal.wait_for('small')
        self.assertEqual(self.ctl('cgroup', 'create', '/later', '--node', 'n')[0], 0)
        terminal.wait_for('later')

    def test_it_follows_the_terminals_size(self):
        terminal = self.terminal('--every 0.1')
        terminal.wait_for('small')
        terminal.run('resize-window', '-x', '40', '-y', '6')
        screen = wait_for(lambda: len(terminal.screen().splitlines()) <= 6 and terminal.screen(), 'the smaller screen')
        terminal.run('resize-window', '-x', '4', '-y', '2')
        terminal.run('resize-window', '-x', '150', '-y', '20')
        self.assertIn('USAGE', screen)
        terminal.wait_for('small')
        terminal.wait_for('q quit')

    def test_ctrl_c(self):
        terminal = self.terminal()
        terminal.wait_for('small')
        terminal.keys('C-c')
        terminal.wait_for(f'rc={128 + signal.SIGINT}')

    def test_a_server_that_goes_is_told_and_the_picture_stays(self):
        terminal = self.terminal('--every 0.1')
        terminal.wait_for('small')
        self.server.stop()
        self.assertIn('small', terminal.wait_for('UNAVAILABLE'))
        terminal.keys('q')
        terminal.wait_for('rc=0')

    def test_a_name_cannot_steer_the_terminal(self):
        # U+009B begins an escape sequence in one character, as ESC [ does in two.
        for name in ('/a\x1b[2Jb', '/c\u009b2Jd'):
            self.assertEqual(self.ctl('cgroup', 'create', name, '--node', 'n')[0], 0)
        screen = self.terminal().wait_for('small')
        self.assertIn('a?[2Jb', screen)
        self.assertIn('c?2Jd', screen)

    def test_a_dumb_terminal_is_told_what_to_do(self):
        screen = self.terminal(kind='dumb').wait_for('rc=2')
        self.assertIn('memcgctl: a terminal of kind dumb cannot be drawn on: --once and --batch', screen)


class Text(Top):
    def test_once(self):
        code, out, err = self.ctl('top', '--node', 'n', '--once', '--every', '0.1')
        self.assertEqual((code, err), (0, ''))
        lines = out.splitlines()
        self.assertEqual(lines[0].split(':')[0], 'node n')
        self.assertEqual(lines[1].split()[0], 'USAGE')
        self.assertEqual([row.split()[-1] for row in lines[2:]], ['/', 'big', 'small'])

    def test_a_list_sorted_by_name(self):
        code, out, _ = self.ctl('top', '--node', 'n', '--once', '--every', '0.1', '--flat', '--sort', 'cgroup', '/')
        self.assertEqual(code, 0)
        self.assertEqual([row.split()[-1] for row in out.splitlines()[2:]], ['/', '/big', '/small'])

    def test_batches_have_rates(self):
        command = Memcgctl('top', '--node', 'n', '--batch', '--count', '2', '--every', '1', '-o', 'json',
                           server=self.server.address)
        self.addCleanup(command.kill)
        first = json.loads(command.process.stdout.readline())
        self.feed('n')
        second = json.loads(command.process.stdout.readline())
        self.assertEqual(command.finish()[0], 0)
        self.assertAlmostEqual(first['cgroups']['/big']['anon'], 3000 * 4096, delta=128 * 4096)  # a fast read
        self.assertGreater(second['events_a_second'], 1000)
        self.assertGreater(sum(picture['cgroups']['/']['faults_a_second'] for picture in (first, second)), 1000)

    def test_only_below_a_path(self):
        code, out, _ = self.ctl('top', '--node', 'n', '--once', '--every', '0.1', '-o', 'json', '/small')
        self.assertEqual(code, 0)
        self.assertEqual(list(json.loads(out)['cgroups']), ['/small'])

    def test_without_a_terminal_one_line_says_what_to_do(self):
        code, out, err = self.ctl('top', '--node', 'n')
        self.assertEqual((code, out), (2, ''))
        self.assertRegex(err, r'\Amemcgctl: no terminal: --once and --batch [^\n]*\n\Z')

    def test_no_node(self):
        code, _, err = self.ctl('top', '--node', 'nowhere', '--once')
        self.assertEqual(code, 1)
        self.assertIn('NOT_FOUND', err)


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
