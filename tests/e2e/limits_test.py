#!/usr/bin/python3
"""Limits, reclaim, swap and peaks as users of memcgctl see them: real processes, real sockets.

usage: limits_test.py BINARY_DIRECTORY [unittest arguments]
"""
import json
import os
import signal
import sys
import unittest

import processes
from memcgctl_test import PAGE, EndToEnd
from processes import line, trace, wait_for


class Limits(EndToEnd):
    def setUp(self):
        super().setUp()
        self.server = self.start_server()

    def run_here(self, *arguments, **more):
        return self.run_ctl(*arguments, server=self.server.address, **more)

    def ctl(self, *arguments):
        code, out, err = self.run_here(*arguments)
        self.assertEqual(code, 0, err)
        return out

    def json(self, *arguments):
        return json.loads(self.ctl(*arguments, '-o', 'json'))

    def refused(self, *arguments, code=1):
        got, out, err = self.run_here(*arguments)
        self.assertEqual((got, out), (code, ''), err)
        self.assert_one_line(err)
        return err

    def feed(self, pages=500, *flags, node='n'):
        """A process in /job of that node touches so many pages."""
        return self.run_here('replay', self.directory.file('t', trace(pages)), '--node', node, '--reclaim', 'modelled',
                             '-o', 'json', *flags)


class Readings(Limits):
    def test_swap_is_read_as_memory_is(self):
        code, _, err = self.feed(500, '--swap', '64M', '--memory-max', '/job=1M')
        self.assertEqual(code, 0, err)
        stat = self.json('cgroup', 'stat', '/job', '--node', 'n')
        self.assertGreater(stat['swap_current'], 0)
        self.assertEqual(stat['stat']['anon'] + stat['swap_current'], 500 * PAGE)
        self.assertEqual((stat['swap_peak'], stat['high_delay_us']), (stat['swap_current'], 0))
        self.assertLessEqual(stat['current'], 1 << 20)
        table = self.ctl('cgroup', 'stat', '/job', '--node', 'n')
        self.assertRegex(table, r'\nmemory\.swap\.current: [\d.]+ [KM]iB\nmemory\.swap\.peak: [\d.]+ [KM]iB\n')
        self.assertEqual(self.json('cgroup', 'events', '/job', '--node', 'n')['swap_events'],
                         {'high': 0, 'max': 0, 'fail': 0})

    def test_swap_that_is_full_counts_its_events(self):
        code, _, err = self.feed(1000, '--swap', '64M', '--memory-max', '/job=1M', '--swap-max', '/job=1M')
        self.assertEqual(code, 0, err)
        events = ('cgroup', 'events', '/job', '--node', 'n')
        swap = self.json(*events)['swap_events']
        self.assertGreater(swap['max'], 0)
        self.assertEqual(self.ctl(*events, '--swap', '--format', 'kernel'),
                         ''.join(f'{name} {value}\n' for name, value in swap.items()))
        self.assertRegex(self.ctl(*events, '--swap'), r'\nfail +\d+\n')
        self.assertEqual(self.json('cgroup', 'stat', '/job', '--node', 'n')['swap_peak'], 1 << 20)

    def test_the_delay_at_memory_high_is_summed_and_told(self):
        code, out, err = self.feed(2000, '--memory-high', '/job=2M')
        self.assertEqual(code, 0, err)
        delay_us = json.loads(out)['high_delay_us']
        self.assertGreater(delay_us, 10000)
        self.assertRegex(err, r'memory\.high would have held the tasks up for [\d.]+ (ms|s) in all')
        self.assertEqual(self.json('cgroup', 'stat', '/job', '--node', 'n')['high_delay_us'], delay_us)
        self.assertRegex(self.ctl('cgroup', 'stat', '/job', '--node', 'n'), r'\ndelay at memory\.high: [\d.]+ (ms|s)\n')


class Reclaim(Limits):
    def test_what_was_had_is_told_and_less_than_asked_for_is_eagain(self):
        code, _, err = self.feed(500, '--swap', '64M')
        self.assertEqual(code, 0, err)
        reclaim = ('cgroup', 'reclaim', '/job')
        answer = self.json(*reclaim, '256K', '--node', 'n')
        self.assertEqual(answer['path'], '/job')
        self.assertGreaterEqual(answer['reclaimed'], 256 << 10)
        shown = self.json('cgroup', 'stat', '/job', '--node', 'n')
        self.assertEqual(shown['swap_current'] - shown['stat']['swapcached'], answer['reclaimed'])
        self.assertRegex(self.ctl(*reclaim, '64K', '--node', 'n'), r'\Areclaimed [\d.]+ KiB\n\Z')
        err = self.refused(*reclaim, '1G', '--node', 'n')
        self.assertRegex(err, r'\Amemcgctl: ABORTED: EAGAIN: reclaimed \d+ of 1073741824 bytes of cgroup "/job"')
        self.assertEqual(self.json('cgroup', 'stat', '/job', '--node', 'n')['stat']['anon'], 0)

    def test_swappiness_says_of_what(self):
        code, _, err = self.feed(500, '--swap', '64M')
        self.assertEqual(code, 0, err)
        # Files only, of which there are none; then what the kernel's own text says.
        self.refused('cgroup', 'reclaim', '/job', '64K', '--swappiness', '0', '--node', 'n')
        for arguments in (['64K', '--swappiness', 'max'], ['64K swappiness=200'], ['64K swappiness=max']):
            self.assertGreaterEqual(self.json('cgroup', 'reclaim', '/job', *arguments, '--node', 'n')['reclaimed'], 64 << 10)

    def test_what_cannot_be_done_is_named(self):
        self.ctl('node', 'create', 'n')
        self.ctl('cgroup', 'create', '/job', '--node', 'n')
        reclaim = ('cgroup', 'reclaim', '/job')
        self.assertRegex(self.refused(*reclaim, '1M', '--node', 'n'), 'FAILED_PRECONDITION: .*make it with reclaim "modelled"')
        for wrong, why in ((['much'], '"much" is not an amount'), (['1.5G'], '"1.5G" is not an amount'),
                           (['9223372036854775808'], 'is too much'),
                           (['1M', '--swappiness', '201'], '"201" is no swappiness: 0 to 200'),
                           (['1M', '--swappiness', '-1'], '"-1" is no swappiness'),
                           (['1M swappiness='], '"" is no swappiness'),
                           (['1M swap=1'], '"swap=1" is not wanted'),
                           (['1M swappiness=1', '--swappiness', '2'], 'swappiness=N once')):
            self.assertIn(why, self.refused('cgroup', 'reclaim', '--node', 'n', '/job', *wrong, code=2))
        self.ctl('node', 'create', 'm', '--reclaim', 'modelled')
        self.assertIn('NOT_FOUND: no cgroup "/job"', self.refused(*reclaim, '1M', '--node', 'm'))
        err = self.refused('cgroup', 'set', '/job', 'memory.reclaim=1M', '--node', 'n', code=2)
        self.assertIn('memcgctl cgroup reclaim PATH SIZE', err)


class Knobs(Limits):
    def setUp(self):
        super().setUp()
        self.ctl('node', 'create', 'n', '--memory', '1G', '--swap', '512M')
        self.ctl('cgroup', 'create', '/a', '--node', 'n')

    def knobs(self, *knobs):
        return self.json('cgroup', 'set', '/a', *knobs, '--node', 'n')['knobs']

    def test_all_forms_of_an_amount_are_taken(self):
        for text, shown in (('max', 'max'), ('0', '0'), ('4095', '0'), ('8k', '8192'), ('1M', str(1 << 20)),
                            ('2G', str(2 << 30)), ('1T', str(1 << 40)), ('50%', str(1 << 29)), ('100%', str(1 << 30))):
            self.assertEqual(self.knobs(f'memory.max={text}')['memory.max'], shown, text)
        self.assertEqual(self.knobs('memory.swap.max=25%')['memory.swap.max'], str(128 << 20), 'of the swap')
        self.assertEqual(self.knobs('memory.min=2M', 'memory.max=1M')['memory.min'], str(2 << 20), 'as the kernel')

    def test_what_no_knob_takes_is_refused_by_its_name(self):
        for value in ('-1', '9223372036854775808', '16E', '99999999999999999999', '1Q', '', '101%', '-5%', '1.5G'):
            err = self.refused('cgroup', 'set', '/a', f'memory.high={value}', '--node', 'n')
            self.assertIn(f'INVALID_ARGUMENT: memory.high takes "max" or bytes with an optional suffix', err)
            self.assertIn(f'not "{value}"', err)
        self.assertIn('memory.swappiness takes 0 … 200, not "201"',
                      self.refused('cgroup', 'set', '/a', 'memory.swappiness=201', '--node', 'n'))
        self.assertIn('no knob "memory.maximum"; there are memory.min, memory.low',
                      self.refused('cgroup', 'set', '/a', 'memory.maximum=1', '--node', 'n'))

    def test_a_share_may_be_swept(self):
        code, out, err = self.run_here('whatif', self.directory.file('t', trace(500)), '--cgroup', '/job', '--memory', '64M',
                                       '--memory-max', '1%,50%', '-o', 'json')
        self.assertEqual(code, 0, err)
        without, small, large = (point['cgroups']['/job'] for point in json.loads(out)['points'])
        self.assertLessEqual(small['peak'], (64 << 20) // 100)
        self.assertEqual(large, without)


class WritebackRate(Limits):
    def test_the_rate_is_kept_and_shown(self):
        node = self.json('node', 'create', 'n', '--writeback-rate', '64M')
        self.assertEqual(node['writeback_bytes_per_second'], 64 << 20)
        self.assertEqual(self.json('node', 'create', 'd')['writeback_bytes_per_second'], 200 << 20)
        self.assertRegex(self.ctl('node', 'get', 'n'), r'\nwriteback a second +64\.0 MiB\n')

    def test_a_rate_of_nothing_is_refused_wherever_it_is_given(self):
        file = self.directory.file('t', trace(10))
        for command in (['node', 'create', 'n'], ['replay', file], ['whatif', file, '--cgroup', '/job']):
            err = self.refused(*command, '--writeback-rate', '0')
            self.assertIn('INVALID_ARGUMENT: writeback_bytes_per_second 0 is not in 4096 … 2^52', err)


class OomScoreAdj(Limits):
    def test_the_trace_says_who_is_to_be_spared(self):
        # 200 has twice as much and would be killed, but its score says never.
        mkdir = ('cgroup_mkdir', 'cgroup_attach_task')
        first = trace(150, start_us=1000000, pid=200)
        second = ''.join(one for one in trace(200, start_us=2000000, pid=300).splitlines(True) if mkdir[0] not in one)
        for adj, victim in ((None, 200), (-1000, 300)):
            middle = '' if adj is None else line(1900000, f'oom_score_adj_update: pid=200 comm=job oom_score_adj={adj}')
            node = f'n{victim}'
            code, _, err = self.run_here('replay', self.directory.file('t', first + middle + second), '--node', node,
                                         '--memory-max', '/job=1M')
            self.assertEqual(code, 0, err)
            record = json.loads(self.ctl('oom', 'list', node, '-o', 'json'))[0]
            self.assertEqual([one['tgid'] for one in record['victims'] if one['killed']], [victim])
            self.assertIn(adj or 0, [one['oom_score_adj'] for one in record['victims'] if one['tgid'] == 200])

    def test_a_score_out_of_range_is_a_malformed_line(self):
        text = trace(10) + line(3000000, 'oom_score_adj_update: pid=100 comm=job oom_score_adj=1001')
        code, _, err = self.run_here('replay', self.directory.file('t', text))
        self.assertEqual(code, 0, err)
        self.assertIn('without an oom_score_adj of -1000 to 1000', err)


class Peaks(Limits):
    def test_a_peak_begins_anew_with_each_line(self):
        code, _, err = self.feed(500, '--memory-max', '/job=max')
        self.assertEqual(code, 0, err)
        self.ctl('cgroup', 'create', '/job/below', '--node', 'n')
        out = self.ctl('cgroup', 'peak', '/job', '--node', 'n', '--every', '0.05', '--count', '2', '-o', 'json')
        first, second, third = (json.loads(one) for one in out.splitlines())
        self.assertGreaterEqual(first['peak'], 500 * PAGE)
        self.assertEqual(second['peak'], second['current'])
        self.assertEqual(third, second)
        self.assertEqual(self.json('cgroup', 'stat', '/job', '--node', 'n')['peak'], first['peak'], 'of all others')

    def test_a_watch_sees_what_comes_between_its_lines_and_ends_by_ctrl_c(self):
        self.ctl('node', 'create', 'n', '--cpus', '2', '--reclaim', 'modelled')
        self.ctl('cgroup', 'create', '/job', '--node', 'n')
        file = os.path.join(self.directory.path, 'watched')

        def lines():
            with open(file) as written:
                return [json.loads(one) for one in written.read().splitlines()]

        with open(file, 'w') as out:
            watch = self.start('cgroup', 'peak', '/job', '--node', 'n', '--every', '0.2', '-o', 'json',
                               server=self.server.address, stdout=out)
            wait_for(lines, 'the first line')
            # Touches 300 pages and ends: none are there when the next line is written.
            text = trace(300) + line(1900000, 'sched_process_exit: comm=job pid=100 prio=120 group_dead=true')
            text += line(1900001, 'exit_mmap: mt_mod 0x0, DESTROY')
            self.run_here('replay', self.directory.file('t', text), '--node', 'n')
            wait_for(lambda: any(one['peak'] >= 300 * PAGE for one in lines()), 'the peak')
            wait_for(lambda: lines()[-1]['peak'] < 300 * PAGE, 'a peak that began anew')
            watch.process.send_signal(signal.SIGINT)
            code, _, err = watch.finish()
        self.assertEqual((code, err), (130, ''))

    def test_what_is_not_there_is_named(self):
        self.ctl('node', 'create', 'n')
        self.assertIn('NOT_FOUND: no cgroup "/none"', self.refused('cgroup', 'peak', '/none', '--node', 'n'))
        self.assertIn('NOT_FOUND: no node "nobody"', self.refused('cgroup', 'peak', '/', '--node', 'nobody'))
        self.refused('cgroup', 'peak', '/', '--node', 'n', '--every', '0', code=2)

    def test_a_server_that_stops_ends_the_watch(self):
        self.ctl('node', 'create', 'n')
        watch = self.start('cgroup', 'peak', '/', '--node', 'n', '--every', '60', server=self.server.address)
        wait_for(lambda: watch.process.stdout.readline(), 'the first line')
        self.assertEqual(self.server.stop(), 0)
        watch.kill()


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
