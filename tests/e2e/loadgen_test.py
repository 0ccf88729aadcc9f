#!/usr/bin/python3
"""memcg-loadgen and memcgd end to end: real processes, real sockets.

usage: loadgen_test.py BINARY_DIRECTORY [unittest arguments]
"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

import processes
from processes import Directory, Memcgctl, Memcgd, trace, wait_for

SHORT = ('--duration', '0.2', '--warmup', '0.05', '--repeat', '1', '--batch', '512')
CPUS = sorted(os.sched_getaffinity(0))


class Loadgen:
    """A memcg-loadgen that runs beside the test."""

    def __init__(self, *arguments, server=None, environment=None, stderr=subprocess.PIPE):
        command = [os.path.join(processes.BINARIES, 'memcg-loadgen'), *arguments]
        if server is not None:
            command += ['--server', server]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith('MEMCG')}
        inherited.update(environment or {})
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                                        env=inherited, preexec_fn=processes._default_signals)

    def finish(self):
        try:
            out, err = self.process.communicate(timeout=processes.LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError('memcg-loadgen did not end')
        return self.process.returncode, out.decode(), (err or b'').decode()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
        self.process.wait()


def setUpModule():
    EndToEnd.directory = Directory()
    unittest.addModuleCleanup(EndToEnd.directory.remove)
    EndToEnd.server = Memcgd(EndToEnd.directory.path)
    unittest.addModuleCleanup(EndToEnd.server.stop)


class EndToEnd(unittest.TestCase):
    directory = None  # one server for all: every turn has nodes of its own
    server = None

    def start(self, *arguments, **more):
        more.setdefault('server', self.server.address)
        command = Loadgen(*arguments, **more)
        self.addCleanup(command.kill)
        return command

    def json_of(self, *arguments):
        code, out, err = self.start(*arguments, '-o', 'json').finish()
        self.assertEqual((code, err), (0, ''))
        return json.loads(out)

    def nodes(self):
        command = Memcgctl('node', 'list', '-o', 'json', server=self.server.address)
        self.addCleanup(command.kill)
        code, out, _ = command.finish()
        self.assertEqual(code, 0)
        return json.loads(out)

    def assert_no_nodes(self):
        self.assertEqual(self.nodes(), [])

    def wait_for_load(self):
        wait_for(lambda: any(node['events'] > 100_000 for node in self.nodes()), 'a node under load')

    def assert_usage(self, *arguments, wanted, **more):
        code, out, err = self.start(*arguments, **more).finish()
        self.assertEqual((code, out), (2, ''), err)
        self.assertRegex(err, r'\Amemcg-loadgen: [^\n]+\n\Z')
        self.assertIn(wanted, err)


class Experiments(EndToEnd):
    def test_each_runs_and_all_events_are_ok(self):
        small = {'pft': ('--streams', '1,3', '--pages', '1024'), 'mmap1': ('--sizes', '4K,128M', '--lifts', '1'),
                 'multi-fault-all-split': ('--pages', '1024'), 'memory-stat': ('--cgroups', '30', '--polls', '0,50'),
                 'lru-file-readtwice': ('--cgroups', '8'), 'mix': ('--weights', 'fault=90,mmap=3,munmap=3,fork=1,read=3')}
        for experiment, flags in small.items():
            with self.subTest(experiment):
                run = self.json_of(experiment, *flags, *SHORT, '--nodes', '2')
                for case in run['cases']:
                    turn = case['forms'][0]['turns'][0]
                    self.assertEqual(list(turn['outcomes']), ['OK'], case['case'])
                    self.assertGreater(turn['events'], 0)
                    self.assertGreater(turn['latency']['p50_ns'], 0)
                    self.assertEqual(len(turn['workers']), 2 * case['streams'], 'two nodes')
                if experiment == 'memory-stat':
                    self.assertGreater(run['cases'][1]['forms'][0]['turns'][0]['reads']['count'], 0)
        self.assert_no_nodes()

    def test_a_trace_is_repeated(self):
        file = self.directory.file('trace.txt', trace(200))
        run = self.json_of('replay', file, *SHORT, '--streams', '2')
        turn = run['cases'][0]['forms'][0]['turns'][0]
        self.assertGreater(turn['events'], 2000, 'many copies')
        code, out, err = self.start('replay', self.directory.file('bad', 'nothing\n'), *SHORT).finish()
        self.assertEqual((code, out), (3, ''))
        self.assertRegex(err, r'\Amemcg-loadgen: [^\n]*bad[^\n]*\n\Z')

    def test_table_says_how_many_workers_share_a_cpu(self):
        code, out, err = self.start('multi-fault-all-split', *SHORT, '--cpus', str(CPUS[0]), '--server-pid',
                                    str(self.server.process.pid)).finish()
        self.assertEqual((code, err), (0, ''))
        self.assertIn('up to 8 workers on 1 CPU, several to a CPU', out)
        self.assertRegex(out, rf'CPU {CPUS[0]} \(NUMA node (\d+|unknown)\): worker 0, 1, 2, 3, 4, 5, 6, 7\n')
        for part in ('faults/s', 'faults/CPU s', 'p99.9', 'own CPUs'):
            self.assertIn(part, out)

    def test_plot(self):
        file = os.path.join(self.directory.path, 'plot.svg')
        self.json_of('pft', *SHORT, '--streams', '1,2', '--plot', file)
        root = xml.etree.ElementTree.parse(file).getroot()
        text = ''.join(root.itertext())
        for part in ('threads', 'faults a second', 'p99.9', 'Latency'):
            self.assertIn(part, text)

    def test_compare_takes_turns_a_b_b_a_on_fresh_nodes(self):
        run = self.json_of('pft', *SHORT[:4], '--streams', '1', '--compare', 'none', '--repeat', '2')
        case = run['cases'][0]
        self.assertEqual([form['form'] for form in case['forms']], ['first', 'second'])
        self.assertEqual([len(form['turns']) for form in case['forms']], [2, 2])
        ratio = case['ratio_per_second']
        self.assertEqual(ratio['pairs'], 2)
        self.assertLessEqual(ratio['min'], ratio['median'])
        self.assertLessEqual(ratio['median'], ratio['max'])
        self.assert_no_nodes()


    def test_compare_has_the_forms_of_a_mechanism(self):
        code, out, err = self.start('pft', *SHORT, '--streams', '1', '--compare', 'lru_lock', '-o', 'json').finish()
        if code == 1:  # a protocol without mechanisms
            self.assertRegex(err, r'\Amemcg-loadgen: UNIMPLEMENTED: [^\n]*lru_lock=per_node\n\Z')
            return
        self.assertEqual((code, err), (0, ''))
        forms = json.loads(out)['cases'][0]['forms']
        self.assertEqual([form['form'] for form in forms], ['per_node', 'per_memcg'])
        for form in forms:
            self.assertGreater(form['turns'][0]['mechanism_counters_per_unit']['lru_lock_acquisitions'], 0)


class Workers(EndToEnd):
    def threads_of(self, pid):
        """Allowed CPUs by worker, from /proc."""
        allowed = {}
        for task in os.listdir(f'/proc/{pid}/task'):
            try:
                with open(f'/proc/{pid}/task/{task}/status') as lines:
                    status = dict(line.rstrip('\n').split(':\t', 1) for line in lines if ':\t' in line)
            except FileNotFoundError:
                continue
            if status['Name'].startswith('worker-'):
                allowed[int(status['Name'][len('worker-'):])] = status['Cpus_allowed_list']
        return allowed

    def test_are_pinned_one_after_the_other(self):
        cpus = CPUS[:2]
        command = self.start('multi-fault-all-split', '--duration', '30', '--cpus', ','.join(map(str, cpus)))
        expected = {worker: str(cpus[worker % len(cpus)]) for worker in range(8)}
        wait_for(lambda: self.threads_of(command.process.pid) == expected, 'eight pinned workers')
        command.process.send_signal(signal.SIGINT)
        self.assertEqual(command.finish()[0], 130)

    def test_a_cpu_that_is_not_there(self):
        self.assert_usage('pft', '--cpus', '0,8000', wanted='CPU 8000 is not there')
        self.assert_usage('pft', wanted='CPU 8000 is not there', environment={'MEMCG_LOADGEN_CPUS': '8000'})


class OpenLoop(EndToEnd):
    def test_a_server_that_stands_still_shows_in_the_tail(self):
        calm = ('pft', '--streams', '1', '--rate', '100000', '--batch', '1000', '--warmup', '0.1', '--repeat', '1')
        command = self.start(*calm, '--duration', '2.5', '-o', 'json')
        wait_for(self.nodes, 'a node')
        time.sleep(0.5)
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(1.0)
        finally:
            self.server.process.send_signal(signal.SIGCONT)
        code, out, err = command.finish()
        self.assertEqual((code, err), (0, ''))
        turn = json.loads(out)['cases'][0]['forms'][0]['turns'][0]
        latency = turn['latency']
        # 100 batches a second: those due in the second of silence are 2 of 5, and waited half of it on average.
        self.assertGreater(latency['max_ns'], 0.9e9)
        self.assertGreater(latency['p99.9_ns'], 0.9e9)
        self.assertGreater(latency['p90_ns'], 0.3e9, 'no coordinated omission')
        self.assertGreater(latency['count'], 150)

    def test_keeps_its_rate(self):
        run = self.json_of('pft', '--streams', '2', '--rate', '200000', '--batch', '500', '--duration', '1', '--warmup',
                           '0.2', '--repeat', '1')
        turn = run['cases'][0]['forms'][0]['turns'][0]
        self.assertAlmostEqual(turn['events_per_second'], 200000, delta=60000)


class Endings(EndToEnd):
    def test_ctrl_c_prints_what_was_measured(self):
        command = self.start('pft', '--streams', '1', '--duration', '30', '--warmup', '0', '-o', 'json')
        self.wait_for_load()
        for _ in range(2):  # as timeout(1) does: to the command, then to its group
            command.process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        code, out, err = command.finish()
        self.assertEqual((code, err), (130, 'memcg-loadgen: interrupted\n'))
        run = json.loads(out)
        self.assertTrue(run['interrupted'])
        turn = run['cases'][0]['forms'][0]['turns'][0]
        self.assertGreater(turn['events'], 0)
        self.assertLess(turn['seconds'], 25)
        self.assert_no_nodes()

    def test_progress_on_a_terminal_only(self):
        terminal, other = os.openpty()
        self.addCleanup(os.close, terminal)
        command = self.start('pft', '--streams', '1', *SHORT, stderr=other)
        os.close(other)
        self.assertEqual(command.finish()[0], 0)
        self.assertIn(b'events/s', os.read(terminal, 65536))

    def test_wrong_flags_give_one_line(self):
        self.assert_usage(wanted='subcommand')
        self.assert_usage('pgbench', wanted='unknown experiment pgbench')
        self.assert_usage('pft', '--nonsense', wanted='unknown flag --nonsense')
        self.assert_usage('pft', '--streams', '0', wanted='--streams')
        self.assert_usage('pft', '--compare', 'lru', wanted='charge_order, commit_batch, css_refs, stats, lru_lock')
        self.assert_usage('pft', '--mechanism', 'stats=fast', wanted='spill, walk, rstat')
        self.assert_usage('pft', '--cpus', '1-0', wanted='--cpus')
        self.assert_usage('mmap1', '--sizes', '3', wanted='--sizes')
        self.assert_usage('mix', '--weights', 'fault=0', wanted='--weights')
        self.assert_usage('pft', '--batch', '1', wanted='--batch')
        self.assert_usage('pft', server='nowhere', wanted='HOST:PORT')
        self.assert_usage('pft', '--server-pid', '4194304', wanted='no process 4194304')
        self.assert_usage('pft', '--pages', '600000', wanted='--pages')

    def test_no_server(self):
        code, out, err = self.start('pft', *SHORT, '--timeout', '0.5', server='127.0.0.1:1').finish()
        self.assertEqual((code, out), (4, ''))
        self.assertRegex(err, r'\Amemcg-loadgen: UNAVAILABLE: cannot reach memcgd at 127.0.0.1:1[^\n]*\n\Z')


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
