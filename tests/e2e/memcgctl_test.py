#!/usr/bin/python3
"""memcgctl and memcgd end to end: real processes, real sockets.

usage: memcgctl_test.py BINARY_DIRECTORY [unittest arguments]
"""
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import processes
from processes import CuttingProxy, Directory, Memcgctl, Memcgd, line, trace, wait_for

PAGE = 4096


class EndToEnd(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)

    def start_server(self, listen='127.0.0.1:0'):
        server = Memcgd(self.directory.path, listen)
        self.addCleanup(server.stop)
        return server

    def start(self, *arguments, **more):
        command = Memcgctl(*arguments, **more)
        self.addCleanup(command.kill)
        return command

    def run_ctl(self, *arguments, data=None, **more):
        if data is not None:
            more['stdin'] = subprocess.PIPE
        return self.start(*arguments, **more).finish(data)

    def nodes(self, server):
        code, out, err = self.run_ctl('node', 'list', '-o', 'json', server=server.address)
        self.assertEqual((code, err), (0, ''))
        return [node['name'] for node in json.loads(out)]

    def assert_one_line(self, text):
        self.assertRegex(text, r'\Amemcgctl: [^\n]+\n\Z')


class WithServer(EndToEnd):
    def setUp(self):
        super().setUp()
        self.server = self.start_server()

    def replay(self, *arguments, **more):
        return self.run_ctl('replay', *arguments, server=more.pop('server', self.server.address), **more)

    def times(self, pages, every, start_us=1000000):
        """Moments between the page faults of trace(): (text, pages touched then)."""
        counts = list(range(every, pages + 1, every))
        return [(f'{start_us // 1000000}.{(start_us % 1000000 + 10 * count) * 1000 + 5000:09d}', count)
                for count in counts]

    def check_answers(self, out, times, cgroup='/job'):
        answers = json.loads(out, parse_float=str, parse_int=str)
        self.assertEqual([answer['time'] for answer in answers], [text for text, _ in times],
                         'times are as given')
        for answer, (text, pages) in zip(json.loads(out), times):
            self.assertEqual(answer['cgroups'][cgroup]['anon'], pages * PAGE, text)
            self.assertEqual(answer['cgroups'][cgroup]['pgfault'], pages, text)
            self.assertEqual(answer['cgroups']['/']['anon'], pages * PAGE, text)
            self.assertIn('committed_as', answer)

    def stat_at(self, times):
        return self.directory.file('times', ''.join(text + '\n' for text, _ in times))

    # --- answers

    def test_stat_at_gives_the_state_between_the_events(self):
        times = self.times(500, 7)
        code, out, err = self.replay(self.directory.file('t', trace(500)), '--stat-at', self.stat_at(times),
                                     '-o', 'json')
        self.assertEqual(code, 0, err)
        self.check_answers(out, times)

    def test_times_before_and_after_the_trace_are_answered(self):
        file = self.directory.file('times', '# before\n0.5\n\n# after\n99\n99.0\n')
        code, out, err = self.replay(self.directory.file('t', trace(10)), '--stat-at', file, '-o', 'json')
        self.assertEqual(code, 0, err)
        answers = json.loads(out)
        self.assertEqual([sorted(answer['cgroups']) for answer in answers],
                         [['/'], ['/', '/job'], ['/', '/job']])
        self.assertEqual(answers[2]['cgroups']['/job']['anon'], 10 * PAGE)
        self.assertIn('"time": 99.0,', out)

    def test_where_times_go_back_the_order_of_the_file_decides(self):
        lines = trace(4).splitlines(keepends=True)
        lines[-1], lines[-2] = lines[-2], lines[-1]
        # The last fault stands before the one before it: it is after the moment, and so is all behind it.
        file = self.directory.file('times', '1.000035\n')
        swapped = self.directory.file('t', ''.join(lines))
        code, out, err = self.replay(swapped, '--stat-at', file, '-o', 'json')
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)[0]['cgroups']['/job']['anon'], 2 * PAGE)
        self.assertIn('1 times went back', err)

    def test_compressed_and_standard_input_are_read_alike(self):
        text = trace(100)
        times = self.times(100, 20)
        plain = self.directory.file('t.txt', text)
        packed = self.directory.file('t.gz', gzip.compress(text.encode()))
        runs = [(plain,), (packed,)]
        if shutil.which('zstd'):
            subprocess.run(['zstd', '-q', plain, '-o', plain + '.zst'], check=True, timeout=60)
            runs.append((plain + '.zst',))
        for run in runs:
            code, out, err = self.replay(*run, '--stat-at', self.stat_at(times), '-o', 'json')
            self.assertEqual(code, 0, err)
            self.check_answers(out, times)
        code, out, err = self.replay('-', '--stat-at', self.stat_at(times), '-o', 'json', data=text.encode())
        self.assertEqual(code, 0, err)
        self.check_answers(out, times)

    def test_several_files_are_one_trace(self):
        first = self.directory.file('a', trace(10))
        second = self.directory.file('b', trace(5, cgroup='/other', start_us=2000000, pid=200))
        code, out, err = self.replay(first, second, '-o', 'json')
        self.assertEqual(code, 0, err)
        cgroups = json.loads(out)['cgroups']
        self.assertEqual((cgroups['/job']['anon'], cgroups['/other']['anon'], cgroups['/']['anon']),
                         (10 * PAGE, 5 * PAGE, 15 * PAGE))

    def test_tables_are_for_people(self):
        code, out, err = self.replay(self.directory.file('t', trace(10)))
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r'\Aat the end: Committed_AS [^\n]+\ncgroup +anon +file +shmem .*pgfault')
        self.assertRegex(out, r'\n/job +40\.0 KiB +0 ')
        times = self.times(10, 5)
        code, out, err = self.replay(self.directory.file('t', trace(10)), '--stat-at', self.stat_at(times))
        self.assertEqual(code, 0, err)
        self.assertEqual(len(re.findall(r'^at 1\.000\d+: Committed_AS ', out, re.M)), 2)

    def test_two_replays_at_once_do_not_meet(self):
        times = self.times(3000, 500)
        file = self.directory.file('t', trace(3000))
        arguments = ('replay', file, '--stat-at', self.stat_at(times), '-o', 'json')
        both = [self.start(*arguments, server=self.server.address) for _ in range(2)]
        for one in both:
            code, out, err = one.finish()
            self.assertEqual(code, 0, err)
            self.check_answers(out, times)
        self.assertEqual(self.nodes(self.server), [])

    def test_no_times_no_answers(self):
        empty = self.directory.file('empty', '#\n')
        code, out, err = self.replay(self.directory.file('t', trace(1)), '--stat-at', empty, '-o', 'json')
        self.assertEqual((code, json.loads(out)), (0, []))

    # --- nodes

    def test_a_fresh_node_is_removed_and_a_named_one_kept(self):
        file = self.directory.file('t', trace(10))
        self.assertEqual(self.replay(file)[0], 0)
        self.assertEqual(self.nodes(self.server), [])
        self.assertEqual(self.replay(file, '--node', 'kept', '--cpus', '4', '--memory', '1G')[0], 0)
        self.assertEqual(self.nodes(self.server), ['kept'])
        code, out, _ = self.run_ctl('node', 'get', 'kept', '-o', 'json', server=self.server.address)
        node = json.loads(out)
        self.assertEqual((code, node['cpus'], node['memory_bytes']), (0, 4, 1 << 30))
        # Again, into the same: it is used as it is.
        more = self.directory.file('u', trace(5, cgroup='/other', start_us=2000000, pid=200))
        code, out, err = self.replay(more, '--node', 'kept', '--cpus', '8', '-o', 'json')
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)['cgroups']['/']['anon'], 15 * PAGE)
        self.assertIn('node kept is there already: --cpus changes nothing', err)
        self.assertEqual(self.run_ctl('node', 'delete', 'kept', server=self.server.address), (0, '', ''))
        self.assertEqual(self.nodes(self.server), [])

    def test_cpus_come_from_the_head_of_the_trace(self):
        self.assertEqual(self.replay(self.directory.file('t', trace(10)), '--node', 'n')[0], 0)
        _, out, _ = self.run_ctl('node', 'get', 'n', '-o', 'json', server=self.server.address)
        self.assertEqual(json.loads(out)['cpus'], 2)

    def test_node_and_cgroup_commands(self):
        def ctl(*arguments, **more):
            return self.run_ctl(*arguments, server=self.server.address, **more)

        self.assertEqual(ctl('node', 'create', 'n', '--cpus', '2', '--overcommit', 'never')[0], 0)
        code, _, err = ctl('node', 'create', 'n')
        self.assertEqual(code, 1)
        self.assert_one_line(err)
        self.assertTrue(err.startswith('memcgctl: ALREADY_EXISTS: '), err)
        code, _, err = ctl('node', 'get', 'absent')
        self.assertEqual(code, 1)
        self.assertRegex(err, r'\Amemcgctl: NOT_FOUND: no node "absent" .*memcgctl node list')

        node = ('--node', 'n')
        self.assertEqual(ctl('cgroup', 'create', '/a', *node)[0], 0)
        self.assertEqual(ctl('cgroup', 'create', '/a/b', *node)[0], 0)
        code, _, err = ctl('cgroup', 'create', '/x/y', *node)
        self.assertEqual(code, 1)
        self.assertTrue(err.startswith('memcgctl: NOT_FOUND: '), err)
        code, _, err = ctl('cgroup', 'delete', '/a', *node)
        self.assertEqual(code, 1)
        self.assertTrue(err.startswith('memcgctl: FAILED_PRECONDITION: '), err)

        code, out, err = ctl('cgroup', 'set', '/a', 'memory.max=1M', '-o', 'json', *node)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)['knobs']['memory.max'], str(1 << 20))
        code, _, err = ctl('cgroup', 'set', '/a', 'memory.max=much', *node)
        self.assertEqual(code, 1)
        self.assertIn('INVALID_ARGUMENT', err)

        code, out, err = ctl('cgroup', 'stat', '/nope', *node)
        self.assertEqual((code, out), (1, ''))
        self.assertRegex(err, r'\Amemcgctl: NOT_FOUND: .*"/nope".*memcgctl cgroup ls')
        code, out, _ = ctl('cgroup', 'ls', '-o', 'json', *node)
        self.assertEqual((code, [cgroup['path'] for cgroup in json.loads(out)]), (0, ['/', '/a', '/a/b']))
        code, out, _ = ctl('cgroup', 'ls', '/a', '-o', 'json', environment={'MEMCGCTL_NODE': 'n'})
        self.assertEqual((code, [cgroup['path'] for cgroup in json.loads(out)]), (0, ['/a', '/a/b']))
        self.assertEqual(ctl('cgroup', 'tree', *node), (0, '/\n└─ a\n   └─ b\n', ''))
        self.assertEqual(ctl('cgroup', 'delete', '/a/b', *node), (0, '', ''))

    def test_forms_of_mechanisms_are_chosen_by_flags_and_shown(self):
        def ctl(*arguments):
            return self.run_ctl(*arguments, server=self.server.address)

        forms = {'charge_order': ('charge_first', 'uptodate_first'), 'commit_batch': ('by_policy', 'small'),
                 'css_refs': ('coalesced', 'per_page'), 'stats': ('spill', 'walk', 'rstat'),
                 'lru_lock': ('per_memcg', 'per_node')}
        self.assertEqual(ctl('node', 'create', 'default')[0], 0)
        code, out, err = ctl('node', 'get', 'default', '-o', 'json')
        node = json.loads(out)
        self.assertEqual((code, node['mechanisms']), (0, {name: values[0] for name, values in forms.items()}), err)
        self.assertEqual(len(node['mechanism_counters']), 10)
        for name, values in forms.items():
            flag = '--' + name.replace('_', '-')
            for value in values:
                made = f'{name}-{value}'
                self.assertEqual(ctl('node', 'create', made, flag, value)[0], 0)
                code, out, err = ctl('node', 'get', made, '-o', 'json')
                self.assertEqual((code, json.loads(out)['mechanisms'][name]), (0, value), err)
                code, out, err = ctl('node', 'get', made)
                self.assertRegex(out, rf'\n{name.replace("_", " ")} +{value}\n')
                code, out, err = ctl('replay', self.directory.file('t', trace(10)), flag, value, '-o', 'json')
                self.assertEqual((code, json.loads(out)['cgroups']['/job']['anon']), (0, 10 * PAGE), err)
            code, out, err = ctl('node', 'create', 'bad', flag, 'sideways')
            self.assertEqual((code, out), (2, ''))
            self.assert_one_line(err)
            self.assertIn(flag, err)

    def test_a_limit_of_the_users_is_set_when_its_cgroup_appears(self):
        file = self.directory.file('t', trace(100))
        code, out, err = self.replay(file, '--memory-max', '/job=64K', '--reclaim', 'none', '-o', 'json')
        self.assertEqual(code, 0, err)
        job = json.loads(out)['cgroups']['/job']
        self.assertEqual((job['anon'], job['pagetables']), (15 * PAGE, PAGE))
        self.assertIn('LIMIT', err)
        # A share of the node's memory, files after the flag, several flags.
        code, out, err = self.replay('--memory-max', '/job=50%', '--swappiness', '/job=0', file, '--node', 'kept',
                                     '--memory', '128M', '-o', 'json')
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)['cgroups']['/job']['anon'], 100 * PAGE)
        ctl = lambda *arguments: self.run_ctl(*arguments, '-o', 'json', server=self.server.address)
        self.assertEqual(json.loads(ctl('node', 'get', 'kept')[1])['reclaim'], 'modelled')
        self.assertIn(str(64 << 20), ctl('cgroup', 'get', '/job', '--node', 'kept')[1])

    def test_a_limit_for_a_cgroup_that_never_appears_is_an_error_at_the_end(self):
        file = self.directory.file('t', trace(10))
        code, out, err = self.replay(file, '--memory-low', '/jib=1M', '-o', 'json')
        self.assertEqual(code, 2, err)
        self.assertEqual(json.loads(out)['cgroups']['/job']['anon'], 10 * PAGE)
        self.assertIn('cgroup /jib never appeared', err)
        self.assertIn('the nearest is /job', err)

    def test_a_bad_limit_is_named(self):
        file = self.directory.file('t', trace(1))
        for flag, value, shown in (('--memory-max', '/job=-5', '"-5" is not an amount'),
                                   ('--memory-high', '/job=9223372036854775808', 'is too much'),
                                   ('--memory-min', '/job=101%', '"101%" is no share'),
                                   ('--swap-max', 'job=1M', '"job" is no cgroup'),
                                   ('--swappiness', '/job=201', '"201" is not wanted'),
                                   ('--oom-group', '/job', 'has no value')):
            code, out, err = self.replay(file, flag, value)
            self.assertEqual((code, out), (2, ''), err)
            self.assertIn(flag, err)
            self.assertIn(shown, err)
        code, _, err = self.replay(file, '--memory-max', '/job=1M', '--memory-max', '/job=2M')
        self.assertEqual(code, 2)
        self.assertIn('two values for /job', err)

    def test_a_node_that_reclaims_nothing_refuses_what_passes_a_limit(self):
        def ctl(*arguments):
            return self.run_ctl('node', *arguments, '-o', 'json', server=self.server.address)

        code, out, err = ctl('create', 'full', '--reclaim', 'none')
        self.assertEqual((code, json.loads(out)['reclaim']), (0, 'none'), err)
        self.assertEqual(json.loads(ctl('create', 'forced')[1])['reclaim'], 'recorded')
        self.assertEqual(ctl('create', 'odd', '--reclaim', 'some')[0], 2)

    def test_overcommit_of_a_node_is_set_while_it_lives(self):
        def ctl(*arguments):
            return self.run_ctl('node', *arguments, '-o', 'json', server=self.server.address)

        self.assertEqual(ctl('create', 'n', '--memory', '1G')[0], 0)
        code, out, err = ctl('set-overcommit', 'n', 'never', '--ratio', '25')
        node = json.loads(out)
        self.assertEqual((code, node['overcommit'], node['overcommit_ratio'], node['commit_limit_bytes']),
                         (0, 'never', 25, 1 << 28), err)
        code, out, err = ctl('set-overcommit', 'n', 'always')
        self.assertEqual((code, json.loads(out)['overcommit'], json.loads(out)['overcommit_ratio']), (0, 'always', 25))
        code, out, err = ctl('set-overcommit', 'n', 'never', '--ratio', '80', '--kbytes', '7')
        self.assertEqual((code, out), (1, ''))
        self.assertRegex(err, r'\Amemcgctl: INVALID_ARGUMENT: .*ratio_percent 80 and kbytes 7')
        for wrong in (('n',), ('n', 'perhaps'), ('n', 'never', '--ratio', '-1'), ('n', 'never', '--kbytes', 'x')):
            code, out, err = ctl('set-overcommit', *wrong)
            self.assertEqual((code, out), (2, ''), err)
            self.assert_one_line(err)
        code, out, err = ctl('set-overcommit', 'absent', 'never')
        self.assertEqual((code, out), (1, ''))
        self.assertRegex(err, r'\Amemcgctl: NOT_FOUND: no node "absent"')

    def test_paths_that_are_not_utf8_are_written_in_escapes(self):
        def ctl(*arguments):
            return self.run_ctl('cgroup', *arguments, '--node', 'n', server=self.server.address)

        self.assertEqual(self.run_ctl('node', 'create', 'n', server=self.server.address)[0], 0)
        for path in ('/raw\\xff', '/literal\\x5cxff', '/unit\\x2da.slice', '/größe'):
            self.assertEqual(ctl('create', path)[0], 0, path)
            code, out, err = ctl('get', path, '-o', 'json')
            self.assertEqual((code, json.loads(out)['path']), (0, path), err)
        code, out, _ = ctl('ls', '-o', 'json')
        self.assertEqual([cgroup['path'] for cgroup in json.loads(out)],
                         ['/', '/größe', '/literal\\x5cxff', '/raw\\xff', '/unit\\x2da.slice'])
        code, _, err = ctl('create', '/raw\\xFF')
        self.assertEqual(code, 1)
        self.assertIn('ALREADY_EXISTS', err)
        # What a trace has as bytes is answered so, too.
        text = trace(10, cgroup='/odd').encode().replace(b'/odd', b'/odd\xfe')
        code, out, err = self.run_ctl('replay', self.directory.file('t', text), '-o', 'json',
                                      server=self.server.address)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)['cgroups']['/odd\\xfe']['anon'], 10 * PAGE)
        self.assertEqual(ctl('delete', '/raw\\xff'), (0, '', ''))

    def test_a_fast_read_tells_its_error_bound(self):
        self.assertEqual(self.replay(self.directory.file('t', trace(10)), '--node', 'n')[0], 0)
        stat = ('cgroup', 'stat', '/job', '--node', 'n')
        exact = json.loads(self.run_ctl(*stat, '-o', 'json', server=self.server.address)[1])
        self.assertEqual((exact['error_bound'], exact['stat']['anon']), (0, 10 * PAGE))
        code, out, err = self.run_ctl(*stat, '--fast', '-o', 'json', server=self.server.address)
        fast = json.loads(out)
        self.assertEqual(code, 0, err)
        self.assertLessEqual(abs(fast['stat']['anon'] - 10 * PAGE), fast['error_bound'] * PAGE)
        self.assertLessEqual(abs(fast['stat']['pgfault'] - 10), fast['error_bound'])
        code, out, err = self.run_ctl('cgroup', 'events', '/job', '--node', 'n', '--fast', server=self.server.address)
        self.assertEqual((code, out), (2, ''))

    def test_kernel_text_is_that_of_the_files(self):
        self.assertEqual(self.replay(self.directory.file('t', trace(10)), '--node', 'n')[0], 0)
        stat = ('cgroup', 'stat', '/job', '--node', 'n')
        code, out, err = self.run_ctl(*stat, '--format', 'kernel', server=self.server.address)
        self.assertEqual((code, err), (0, ''))
        self.assertRegex(out, r'\Aanon 40960\nfile 0\n')
        self.assertRegex(out, r'\A([a-z_0-9]+ \d+\n)+\Z')
        self.assertIn('\npgfault 10\n', out)
        code, out, err = self.run_ctl(*stat, '--format', 'kernel', '--v1', server=self.server.address)
        self.assertEqual((code, err), (0, ''))
        self.assertRegex(out, r'\n(rss|anon) \d+\n')
        self.assertRegex(out, r'\ntotal_pgfault \d+\n')
        code, out, err = self.run_ctl('cgroup', 'events', '/job', '--node', 'n', '--format', 'kernel',
                                      server=self.server.address)
        self.assertEqual((code, err), (0, ''))
        self.assertRegex(out, r'\Alow 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n')
        code, out, err = self.run_ctl(*stat, '-o', 'json', server=self.server.address)
        reading = json.loads(out)
        self.assertEqual((code, reading['stat']['anon']), (0, 40960))
        self.assertGreaterEqual(reading['current'], 40960)  # what CPUs hold in stock counts, as in the kernel
        code, out, err = self.run_ctl('cgroup', 'stat', '/', '--node', 'n', '-o', 'json', '--local',
                                      server=self.server.address)
        reading = json.loads(out)
        self.assertEqual((code, reading['stat']['anon'], 'current' in reading), (0, 0, False))

    # --- bad input

    def test_malformed_lines_are_counted_and_named(self):
        lines = trace(10).splitlines(keepends=True)
        lines[8:8] = ['what is this\n'] * 3 + ['x' * 300000 + '\n', '\x00\xff\n']
        file = self.directory.file('t', ''.join(lines).encode('latin-1'))
        code, out, err = self.replay(file, '-o', 'json')
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)['cgroups']['/job']['anon'], 10 * PAGE)
        self.assertIn(f'{file}:9: ', err)
        self.assertIn('5 of 22 lines were not understood', err)
        code, out, err = self.replay(file, '-o', 'json', '--strict')
        self.assertEqual((code, out), (3, ''))
        self.assertIn(f'{file}:9: ', err)
        self.assertEqual(self.nodes(self.server), [])

    def test_only_the_first_malformed_lines_are_named(self):
        file = self.directory.file('t', trace(1) + 'no\n' * 1000)
        code, _, err = self.replay(file)
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count(file), 10)
        self.assertIn('1000 of 1008 lines were not understood', err)

    def test_lost_events_are_said(self):
        text = trace(10) + 'CPU:1 [LOST 123 EVENTS]\n'
        code, _, err = self.replay(self.directory.file('t', text))
        self.assertEqual(code, 0, err)
        self.assertIn('123 events were lost while recording (at 1 places): the answers may be off', err)

    def test_files_that_are_no_traces(self):
        cases = {'missing': None, 'cut.zst': b'\x28\xb5\x2f\xfd\x24', 'program': b'\x7fELF' + b'\x00' * 100}
        for name, content in cases.items():
            path = os.path.join(self.directory.path, name)
            if content is not None:
                self.directory.file(name, content)
            code, out, err = self.replay(path)
            self.assertEqual((code, out), (3, ''), err)
            self.assertIn(path, err)
        self.assertEqual(self.replay(self.directory.path)[0], 3)
        # The second of two, before anything is done with the first.
        missing = os.path.join(self.directory.path, 'missing')
        code, out, err = self.replay(self.directory.file('t', trace(1)), missing)
        self.assertEqual((code, out), (3, ''), err)
        self.assertEqual(self.nodes(self.server), [])

    def test_an_empty_trace_is_said_and_answered(self):
        code, out, err = self.replay(self.directory.file('t', ''), '-o', 'json')
        self.assertEqual(code, 0, err)
        self.assertEqual(list(json.loads(out)['cgroups']), ['/'])
        self.assertIn('there is no event', err)

    def test_bad_times(self):
        file = self.directory.file('t', trace(1))
        for content, complaint in (('1\nsoon\n', ':2: "soon" is not a time'),
                                   ('2\n1\n', ':2: time 1 comes after 2')):
            times = self.directory.file('times', content)
            code, out, err = self.replay(file, '--stat-at', times, '-o', 'json')
            self.assertEqual((code, out), (3, ''))
            self.assert_one_line(err)
            self.assertIn(times + complaint, err)

    # --- ends

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        times = self.times(20000, 10)
        file = self.directory.file('t', trace(20000))
        command = self.start('replay', file, '--stat-at', self.stat_at(times), '-o', 'json',
                             server=self.server.address)
        command.process.stdout.read(1000)
        command.process.stdout.close()
        command.process.wait(processes.LIMIT_S)
        self.assertEqual(command.process.stderr.read(), b'')
        self.assertEqual(command.process.returncode, 141)
        self.assertEqual(self.nodes(self.server), [])

    def test_output_that_cannot_be_written_is_an_error(self):
        with open('/dev/full', 'w') as full:
            code, _, err = self.replay(self.directory.file('t', trace(1)), stdout=full)
        self.assertEqual(code, 1)
        self.assertIn('No space left', err)

    def interrupted(self, command, signal_number):
        wait_for(lambda: self.nodes(self.server), 'the node to be made')
        command.process.send_signal(signal_number)
        code, _, err = command.finish(limit_s=30)
        self.assertEqual(code, 128 + signal_number, err)
        wait_for(lambda: self.nodes(self.server) == [], 'the node to be removed')
        return err

    def test_ctrl_c_while_it_waits_for_its_input(self):
        command = self.start('replay', '-', stdin=subprocess.PIPE, server=self.server.address)
        command.process.stdin.write(trace(10).encode())
        command.process.stdin.flush()
        self.interrupted(command, signal.SIGINT)

    def test_sigterm_while_it_is_busy(self):
        command = self.start('replay', '-', stdin=subprocess.PIPE, server=self.server.address)
        threading.Thread(target=self.feed, args=(command, 10**9), daemon=True).start()
        err = self.interrupted(command, signal.SIGTERM)
        self.assertIn('memcgctl: interrupted\n', err)

    def feed(self, command, faults):
        """Faults without end, until nobody reads them; returns when done."""
        try:
            stdin = command.process.stdin
            stdin.write(trace(1).encode())
            fault = 'page_fault_user: address=0x7f0000000000 ip=0x401000 error_code=0x6'
            block = ''.join(line(2000000 + i, fault) for i in range(1000)).encode()
            for _ in range(0, faults, 1000):
                stdin.write(block)
                stdin.flush()
            stdin.close()
        except (OSError, ValueError):
            pass

    # --- the connection

    def test_a_connection_that_breaks_changes_no_answer(self):
        times = self.times(60000, 1500)
        file = self.directory.file('t', trace(60000))
        for cut in (20000, 300000, 700000):
            proxy = CuttingProxy(self.server.address, cut)
            self.addCleanup(proxy.close)
            code, out, err = self.replay(file, '--stat-at', self.stat_at(times), '-o', 'json',
                                         server=proxy.address)
            self.assertEqual(code, 0, err)
            self.check_answers(out, times)
            self.assertEqual(proxy.cuts, 1)
            self.assertGreaterEqual(proxy.connections, 2)
            self.assertIn('the connection was made again', err)
        self.assertEqual(self.nodes(self.server), [])

    def test_a_server_that_was_restarted_has_lost_the_state_and_it_is_said(self):
        command = self.start('replay', '-', stdin=subprocess.PIPE, server=self.server.address)
        threading.Thread(target=self.feed, args=(command, 10**9), daemon=True).start()
        wait_for(lambda: self.nodes(self.server), 'the node to be made')
        self.assertEqual(self.server.stop(), 0)
        again = self.start_server(self.server.address)
        code, out, err = command.finish(limit_s=40)
        self.assertEqual((code, out), (5, ''), err)
        self.assertRegex(err, r'(?m)^memcgctl: DATA_LOSS: .*was it restarted.*start again')
        self.assertEqual(self.nodes(again), [])

    def test_a_drain_does_not_wait_for_a_replay_that_waits_for_its_input(self):
        command = self.start('replay', '-', stdin=subprocess.PIPE, server=self.server.address)
        command.process.stdin.write(trace(10000).encode())  # more than a batch: the stream is at work
        command.process.stdin.flush()

        def events():
            code, out, _ = self.run_ctl('node', 'list', '-o', 'json', server=self.server.address)
            return code == 0 and sum(node['events'] for node in json.loads(out))

        wait_for(events, 'events to arrive')
        start = time.monotonic()
        self.assertEqual(self.server.stop(), 0)
        self.assertLess(time.monotonic() - start, 5, 'as long as a drain takes at most')

    def test_a_server_that_does_not_come_back_is_given_up(self):
        command = self.start('replay', '-', '--timeout', '2', stdin=subprocess.PIPE, server=self.server.address)
        threading.Thread(target=self.feed, args=(command, 10**9), daemon=True).start()
        wait_for(lambda: self.nodes(self.server), 'the node to be made')
        self.server.process.kill()
        self.server.process.wait()
        code, out, err = command.finish(limit_s=40)
        self.assertEqual((code, out), (4, ''), err)
        self.assertIn(f'cannot reach memcgd at {self.server.address}', err)
        self.assertIn('is it running?', err)

    def test_a_server_that_stops_answering_is_given_up(self):
        command = self.start('replay', '-', '--timeout', '2', stdin=subprocess.PIPE, server=self.server.address)
        threading.Thread(target=self.feed, args=(command, 10**9), daemon=True).start()
        wait_for(lambda: self.nodes(self.server), 'the node to be made')
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            code, out, err = command.finish(limit_s=40)
        finally:
            self.server.process.send_signal(signal.SIGCONT)
        self.assertEqual((code, out), (4, ''), err)
        self.assertIn('did not answer within 2 s', err)

    def test_unix_socket(self):
        path = os.path.join(self.directory.path, 'socket')
        server = self.start_server(f'unix:{path}')
        self.assertEqual(self.nodes(server), [])
        times = self.times(100, 50)
        code, out, err = self.replay(self.directory.file('t', trace(100)), '--stat-at', self.stat_at(times),
                                     '-o', 'json', server=f'unix:{path}')
        self.assertEqual(code, 0, err)
        self.check_answers(out, times)

    def test_compare_py_can_read_it(self):
        """The judge's program, where the traces of the task are at hand."""
        shared = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fidelity')
        kernel = os.path.join(shared, 'traces', 'cow', 'kernel.json')
        if not os.path.exists(kernel):
            self.skipTest('no fidelity traces here')
        compare = [sys.executable, os.path.join(shared, 'compare.py')]
        times = subprocess.run([*compare, '--times', kernel], check=True, timeout=60, stdout=subprocess.PIPE).stdout
        code, out, err = self.replay(os.path.join(shared, 'traces', 'cow', 'trace.txt.zst'), '--no-zero-page',
                                     '--stat-at', self.directory.file('times', times), '-o', 'json')
        self.assertEqual(code, 0, err)
        model = self.directory.file('model.json', out)
        judged = subprocess.run([*compare, kernel, model], timeout=60, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn(' 0 unanswered', judged)


class WithoutServer(EndToEnd):
    def test_wrong_usage_is_one_line_and_exit_code_2(self):
        trace_file = self.directory.file('t', trace(1))
        cases = [
            ([], 'subcommand is required'),
            (['bogus'], 'unknown subcommand bogus'),
            (['node', 'craete'], 'unknown subcommand craete'),
            (['node', 'create'], 'name is required'),
            (['node', 'get', 'a', 'b'], 'one argument too many: b'),
            (['replay'], 'file is required'),
            (['replay', trace_file, '--sttat-at', 'x'], 'unknown flag --sttat-at'),
            (['replay', trace_file, '--cpus', '0'], '--cpus'),
            (['replay', trace_file, '--cpus', 'many'], '--cpus'),
            (['replay', trace_file, '--memory', '12Q'], '"12Q" is not an amount'),
            (['replay', trace_file, '--overcommit', 'maybe'], 'maybe not in {guess,always,never}'),
            (['replay', '-', '-'], None),
            (['-o', 'xml', 'version'], 'xml not in {table,json}'),
            (['--timeout', '0', 'version'], '--timeout'),
            (['--server', 'somewhere', 'node', 'list'], 'HOST:PORT or unix:PATH is wanted'),
            (['--server', 'host:99999', 'node', 'list'], 'no port of 1 to 65535'),
            (['cgroup', 'ls'], '--node is required'),
            (['cgroup', 'set', '/a', 'memory.max', '--node', 'n'], 'is not NAME=VALUE'),
        ]
        for arguments, complaint in cases:
            with self.subTest(arguments=arguments):
                code, out, err = self.run_ctl(*arguments)
                self.assertEqual((code, out), (2 if complaint else 3, ''), err)
                self.assert_one_line(err)
                self.assertIn(complaint or 'can be read once only', err)

    def test_environment_is_read_and_a_flag_wins(self):
        code, out, err = self.run_ctl('version', environment={'MEMCGCTL_OUTPUT': 'json'})
        self.assertEqual((code, err, list(json.loads(out))), (0, '', ['version']))
        code, out, err = self.run_ctl('version', '-o', 'table', environment={'MEMCGCTL_OUTPUT': 'json'})
        self.assertEqual((code, err), (0, ''))
        self.assertRegex(out, r'\Amemcgctl \d+\.\d+\.\d+\n\Z')
        code, out, err = self.run_ctl('version', environment={'MEMCGCTL_OUTPUT': 'xml'})
        self.assertEqual((code, out), (2, ''))
        self.assertIn('MEMCGCTL_OUTPUT', err)

    def test_a_server_that_is_not_there_is_named_at_once(self):
        for address in ('127.0.0.1:1', f'unix:{self.directory.path}/none'):
            start = time.monotonic()
            for arguments in (['node', 'list'], ['replay', self.directory.file('t', trace(1))]):
                code, out, err = self.run_ctl(*arguments, server=address)
                self.assertEqual((code, out), (4, ''), err)
                self.assert_one_line(err)
                self.assertIn(f'cannot reach memcgd at {address}: ', err)
                self.assertIn(f'is it running? (memcgd --listen {address})', err)
            self.assertLess(time.monotonic() - start, 20)

    def test_completion_scripts_are_shell(self):
        words = ('replay', 'cgroup', 'stat', '--stat-at', '--format', 'kernel', '--server')
        for shell in ('bash', 'zsh', 'fish'):
            code, out, err = self.run_ctl('completion', shell)
            self.assertEqual((code, err), (0, ''))
            for word in words:
                self.assertIn(word.lstrip('-') if shell == 'fish' else word, out)
            if shutil.which(shell):
                subprocess.run([shell, '-n', self.directory.file(shell, out)], check=True, timeout=60)
        self.assertEqual(self.run_ctl('completion', 'csh')[0], 2)

    def test_bash_completes(self):
        _, script, _ = self.run_ctl('completion', 'bash')
        ask = '''
compopt() { :; }
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memcgctl; echo "${COMPREPLY[*]}"; }
ask memcgctl no
ask memcgctl node ''
ask memcgctl -o ''
ask memcgctl cgroup stat --format k
ask memcgctl replay --strict --stat
ask memcgctl completion ''
'''
        out = subprocess.run(['bash', '-c', script + ask], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
        self.assertEqual(out.stdout.splitlines(), ['node', 'create get list set-overcommit delete', 'table json', 'kernel',
                                                   '--stat-at --stats', 'bash zsh fish'])

    def test_help_is_for_the_command(self):
        code, out, err = self.run_ctl('cgroup', 'stat', '--help')
        self.assertEqual((code, err), (0, ''))
        self.assertIn('memcgctl cgroup stat', out)
        self.assertIn('--format', out)


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
