#!/usr/bin/python3
"""memcgctl whatif, advise and oom end to end: real processes, real sockets.

usage: whatif_test.py BINARY_DIRECTORY [unittest arguments]
"""
import json
import os
import signal
import sys
import time
import unittest

import processes
from memcgctl_test import PAGE, EndToEnd
from processes import trace, wait_for


class WhatIf(EndToEnd):
    def setUp(self):
        super().setUp()
        self.server = self.start_server()

    def whatif(self, *arguments, **more):
        return self.run_ctl('whatif', *arguments, server=self.server.address, **more)

    def advise(self, *arguments, **more):
        return self.run_ctl('advise', *arguments, server=self.server.address, **more)

    def trace(self, pages=2000):
        return self.directory.file('t', trace(pages))

    def test_a_row_for_each_combination_and_one_without(self):
        code, out, err = self.whatif(self.trace(), '--cgroup', '/job', '--memory-max', '2M,4M,max', '--swappiness',
                                     '0,60', '--show', '/', '-o', 'json')
        self.assertEqual(code, 0, err)
        answer = json.loads(out)
        self.assertEqual([point['knobs'] for point in answer['points']],
                         [{}] + [{'memory.max': size, 'memory.swappiness': swappiness}
                                 for size in ('2M', '4M', 'max') for swappiness in ('0', '60')])
        self.assertEqual(sorted(answer['points'][0]['cgroups']), ['/', '/job'])
        self.assertGreaterEqual(answer['points'][0]['cgroups']['/job']['peak'], 2000 * PAGE)
        self.assertIn('touches of mapped pages', answer['bound'])
        self.assertEqual(answer['miss_ratio']['/job']['references'], 0)
        self.assertEqual(self.nodes(self.server), [], 'nothing is left')

    def test_the_same_question_has_the_same_answer(self):
        arguments = (self.trace(), '--cgroup', '/job', '--memory-max', '1M,2M,3M,4M,5M,6M')
        answers = {self.whatif(*arguments, '-j', str(jobs))[1] for jobs in (1, 2, 16)}
        self.assertEqual(len(answers), 1)

    def test_a_table_and_what_bounds_it(self):
        code, out, err = self.whatif(self.trace(100), '--cgroup', '/job', '--memory-max', '1M')
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r'\Amemory\.max +cgroup +peak .*\n- +/job .*\n1M +/job .*\n\Z')
        self.assertIn('note: touches of mapped pages', err)

    def test_plots(self):
        for name, begin in (('plot.svg', '<svg '), ('plot.html', '<!DOCTYPE html>')):
            file = os.path.join(self.directory.path, name)
            code, _, err = self.whatif(self.trace(), '--cgroup', '/job', '--memory-max', '2M,4M,8M', '--plot', file)
            self.assertEqual(code, 0, err)
            with open(file) as lines:
                text = lines.read()
            self.assertTrue(text.startswith(begin))
            self.assertIn('memcgctl whatif /job', text)
        code, _, err = self.whatif(self.trace(), '--cgroup', '/job', '--plot', 'plot.png')
        self.assertEqual(code, 2)
        self.assert_one_line(err)
        code, out, err = self.whatif(self.trace(), '--cgroup', '/job', '--plot', '/nowhere/plot.svg')
        self.assertEqual((code, out), (1, ''), err)

    def test_an_unknown_cgroup_and_a_bad_value_are_named(self):
        code, out, err = self.whatif(self.trace(10), '--cgroup', '/jpb', '--memory-max', '1M')
        self.assertEqual((code, out), (1, ''))
        self.assert_one_line(err)
        self.assertIn('no cgroup "/jpb" at the beginning or in the events; the nearest is "/job"', err)
        code, out, err = self.whatif(self.trace(10), '--cgroup', '/job', '--memory-max', '1M,-1')
        self.assertEqual((code, out), (1, ''))
        self.assertIn('memory.max takes "max" or bytes', err)
        code, _, err = self.whatif(self.trace(10), '--cgroup', '/', '--memory-max', '1M')
        self.assertEqual(code, 1)
        self.assertIn('the root cgroup has no memory.max', err)
        sizes = ','.join(str(size) + 'K' for size in range(4, 404, 4))
        code, _, err = self.whatif(self.trace(10), '--cgroup', '/job', '--memory-max', sizes, '--memory-high', sizes)
        self.assertEqual(code, 2)
        self.assertIn('combinations', err)

    def test_a_live_node_is_forked_and_stays(self):
        code, _, err = self.run_ctl('replay', self.trace(100), '--node', 'n', server=self.server.address)
        self.assertEqual(code, 0, err)
        before = self.run_ctl('node', 'get', 'n', '-o', 'json', server=self.server.address)[1]
        code, out, err = self.whatif(self.directory.file('u', trace(50)), '--cgroup', '/job', '--memory-max', 'max',
                                     '--node', 'n', '-o', 'json')
        self.assertEqual(code, 0, err)
        self.assertGreaterEqual(json.loads(out)['points'][1]['cgroups']['/job']['peak'], 100 * PAGE)
        self.assertEqual(self.run_ctl('node', 'get', 'n', '-o', 'json', server=self.server.address)[1], before)

    def test_ctrl_c_stops_a_sweep_and_the_server_goes_on(self):
        sizes = ','.join(f'{size}K' for size in range(4, 4 * 3000, 4))
        command = self.start('whatif', self.trace(20000), '--cgroup', '/job', '--memory-max', sizes,
                             server=self.server.address)
        time.sleep(1.5)
        command.process.send_signal(signal.SIGINT)
        code, out, err = command.finish()
        self.assertEqual((code, out), (130, ''), err)
        self.assertIn('memcgctl: interrupted\n', err)
        code, _, err = self.whatif(self.trace(10), '--cgroup', '/job', '--memory-max', '1M')
        self.assertEqual(code, 0, err)

    def test_advise_answers_in_three_forms(self):
        code, out, err = self.advise(self.trace(2000), '-o', 'json')
        self.assertEqual(code, 0, err)
        answer = json.loads(out)
        self.assertEqual(list(answer['cgroups']), ['/job'])
        self.assertLessEqual(answer['cgroups']['/job']['memory_max'], 10 << 20)
        code, out, err = self.advise(self.trace(2000), '--format', 'yaml', '--cgroup', '/job')
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r'"/job":\n  resources:\n    requests:\n      memory: \d+Mi\n    limits:\n'
                              r'      memory: \d+Mi\n')
        code, out, err = self.advise(self.trace(2000))
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r'/job +\d+ MiB ')
        code, _, err = self.advise(self.trace(10), '--cgroup', '/jbo')
        self.assertEqual(code, 1)
        self.assertIn('the nearest is "/job"', err)


class Oom(EndToEnd):
    def setUp(self):
        super().setUp()
        self.server = self.start_server()

    def ctl(self, *arguments, **more):
        code, out, err = self.run_ctl(*arguments, server=self.server.address, **more)
        self.assertEqual(code, 0, err)
        return out

    def kill_something(self, node='n'):
        self.ctl('node', 'create', node, '--reclaim', 'modelled')
        self.ctl('cgroup', 'create', '/job', '--node', node)
        self.ctl('cgroup', 'set', '/job', 'memory.max=256K', '--node', node)
        self.ctl('replay', self.directory.file('t', trace(500)), '--node', node)

    def test_a_kill_is_listed_and_explained(self):
        self.kill_something()
        records = json.loads(self.ctl('oom', 'list', 'n', '-o', 'json'))
        self.assertEqual([record['sequence'] for record in records], [1])
        record = records[0]
        self.assertEqual((record['breached'], record['charged'], record['tid']), ('/job', '/job', 100))
        self.assertEqual(record['levels'][0]['max'], 256 << 10)
        self.assertEqual([victim['tgid'] for victim in record['victims'] if victim['killed']], [100])
        self.assertRegex(self.ctl('oom', 'list', 'n'), r'\A#1 at 1\.\d{6} s: /job met its limit, charging for /job')
        self.assertEqual(self.ctl('oom', 'list', 'n', '--after', '1', '-o', 'json'), '[]\n')

    def test_a_watch_goes_on_until_ctrl_c(self):
        self.kill_something()
        file = os.path.join(self.directory.path, 'watched')
        with open(file, 'w') as out:
            watch = self.start('oom', 'watch', 'n', '-o', 'json', server=self.server.address, stdout=out)
            wait_for(lambda: os.path.getsize(file) > 0, 'the first record')
            watch.process.send_signal(signal.SIGINT)
            code, _, err = watch.finish()
        self.assertEqual((code, err), (130, ''))
        with open(file) as lines:
            self.assertEqual(json.loads(lines.readline())['sequence'], 1)

    def test_a_node_that_is_not_there_is_named(self):
        for command in ('list', 'watch'):
            code, out, err = self.run_ctl('oom', command, 'nobody', server=self.server.address)
            self.assertEqual((code, out), (1, ''))
            self.assertIn('no node "nobody"', err)



if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
