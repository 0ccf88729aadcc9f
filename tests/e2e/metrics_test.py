#!/usr/bin/python3
"""Metrics of modelled cgroups, as Prometheus sees them; docs/metrics.md against a running server.

usage: metrics_test.py BINARY_DIRECTORY [unittest arguments]
"""
import os
import pathlib
import re
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

import processes
from memcgctl_test import PAGE, EndToEnd
from processes import Memcgd, trace

DOCUMENT = pathlib.Path(__file__).parents[2] / 'docs' / 'metrics.md'
UID, ID = '7f0dd3c1-6a1d-4b0c-9c53-d1a4b8a1f001', 'ab' * 32
# The names of both paths, so that none comes or goes unseen.
GOLDEN = pathlib.Path(__file__).parent / 'metrics_names.txt'


def types_of(text):
    return dict(re.findall(r'^# TYPE (\S+) (\S+)$', text, re.M))


def series_of(text):
    """Values by name and labels, a sorted tuple of pairs as they are written."""
    found = {}
    for name, labels, value in re.findall(r'^(\w+)(?:\{(.*)\})? (\S+)$', text, re.M):
        key = name, tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))
        assert key not in found, f'twice: {key}'
        found[key] = float(value)
    return found


class Metrics(EndToEnd):
    def serve(self, cgroup_metrics='on'):
        self.server = Memcgd(self.directory.path, metrics='127.0.0.1:0', flags=('--cgroup-metrics', cgroup_metrics))
        self.addCleanup(self.server.stop)

    def get(self, path, method='GET'):
        request = urllib.request.Request(f'http://{self.server.bound["metrics-listen"]}{path}', method=method)
        with urllib.request.urlopen(request, timeout=processes.LIMIT_S) as answer:
            return answer.read().decode()

    def ctl(self, *arguments):
        code, out, err = self.run_ctl(*arguments, server=self.server.address)
        self.assertEqual(code, 0, err)
        return out

    def feed(self, node='n', pages=500, cgroup='/job'):
        self.ctl('replay', self.directory.file('t', trace(pages, cgroup)), '--node', node)

    def cgroups(self):
        """By (node, path): {name and further labels: value}."""
        shown = {}
        for (name, labels), value in series_of(self.get('/metrics/cgroups')).items():
            common = dict(labels)
            if 'id' not in common:
                continue
            rest = ','.join(common[key] for key in ('failure_type', 'scope', 'reading', 'event', 'kind', 'figure')
                            if key in common)
            shown.setdefault((common['node'], common['id']), {})[f'{name} {rest}'.strip()] = value
        return shown

    def labels(self, path):
        for (name, labels), _ in series_of(self.get('/metrics/cgroups')).items():
            if name == 'container_memory_rss' and dict(labels)['id'] == path:
                return dict(labels)
        raise AssertionError(f'{path} is not shown')

    def left_out(self):
        text = self.get('/metrics/cgroups')
        return {reason: int(n) for reason, n in re.findall(r'^memcgd_cgroups_left_out\{reason="(\w+)"\} (\d+)$', text, re.M)}


class Documented(Metrics):
    def test_document_and_server_list_the_same_metrics_of_the_same_types(self):
        self.serve()
        self.feed()
        both = self.get('/metrics') + self.get('/metrics/cgroups')
        listed = dict(re.findall(r'^\| `(\w+)` \| (\w+) \|', DOCUMENT.read_text(), re.M))
        self.assertEqual(types_of(both), listed)
        self.assertEqual(sorted(listed), GOLDEN.read_text().split())

    def test_promtool_finds_nothing_to_complain_of(self):
        self.serve()
        self.feed()
        for path, known in (('/metrics', ''), ('/metrics/cgroups', None)):
            run = subprocess.run(['promtool', 'check', 'metrics'], input=self.get(path), text=True, capture_output=True,
                                 timeout=processes.LIMIT_S)
            complaints = run.stdout + run.stderr
            if known is None:  # cAdvisor's names are as they are
                complaints = '\n'.join(line for line in complaints.splitlines() if not line.startswith('container_memory_'))
            self.assertEqual(complaints, '', path)


class Figures(Metrics):
    def test_they_are_those_of_memory_stat(self):
        self.serve()
        self.feed(pages=500)
        job = self.cgroups()['n', '/job']
        bound = job['memcgd_cgroup_error_bound_bytes statistic']
        self.assertGreater(bound, 0)
        self.assertLessEqual(abs(job['container_memory_rss'] - 500 * PAGE), bound)
        self.assertGreaterEqual(job['container_memory_usage_bytes'], 500 * PAGE)
        self.assertLessEqual(abs(job['container_memory_failures_total pgfault,hierarchy'] - 500),
                             job['memcgd_cgroup_error_bound_events'])
        self.assertEqual(job['container_spec_memory_limit_bytes'], 0)
        self.assertEqual(job['memcgd_cgroup_error_bound_bytes counter'], 0)
        root = self.cgroups()['n', '/']
        self.assertLessEqual(root['memcgd_cgroup_working_set_bytes cadvisor'], root['memcgd_cgroup_working_set_bytes kubelet'])

    def test_nothing_is_shown_that_was_not_asked_for(self):
        self.serve('off')
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.get('/metrics/cgroups')
        self.assertEqual(refused.exception.code, 404)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.get('/metrics', method='POST')
        self.assertEqual(refused.exception.code, 405)


class Labels(Metrics):
    def make(self, *paths, node='n'):
        self.ctl('node', 'create', node)
        for path in paths:
            self.ctl('cgroup', 'create', path, '--node', node)

    def test_both_drivers_of_kubelet(self):
        self.serve()
        flat, under = UID, UID.replace('-', '_')
        slices = ('/kubepods.slice', '/kubepods-burstable.slice', f'/kubepods-burstable-pod{under}.slice',
                  f'/cri-containerd-{ID}.scope', '/init')
        parts = ('/kubepods', '/burstable', f'/pod{flat}', f'/{ID}')
        paths = [''.join(all_[:i + 1]) for all_ in (slices, parts) for i in range(len(all_))]
        self.make(*paths)
        for path, pod, container in ((''.join(slices[:4]), UID, ID), (''.join(parts), UID, ID), (''.join(parts[:3]), UID, ''),
                                     (''.join(slices), UID, ''), (''.join(parts[:2]), '', '')):
            labels = self.labels(path)
            self.assertEqual((labels['pod'], labels['container'], labels['name']), (pod, container, container), path)
            self.assertEqual((labels['namespace'], labels['image']), ('', ''))

    def test_hostile_names_stay_text_and_apart(self):
        self.serve()
        self.make('/a"b', '/a\\b', '/\\xff', '/<b>&', '/}{a="b"} 1')
        text = self.get('/metrics/cgroups')
        for written in ('/a\\"b', '/a\\\\b', '/\\\\xff', '/<b>&', '/}{a=\\"b\\"} 1'):
            self.assertIn(f',id="{written}",', text)
        run = subprocess.run(['promtool', 'check', 'metrics'], input=text, text=True, capture_output=True,
                             timeout=processes.LIMIT_S)
        self.assertNotIn('error while linting', run.stderr)

    def test_two_nodes_with_one_path(self):
        self.serve()
        self.feed('n', 100)
        self.feed('m', 300)
        shown = self.cgroups()
        self.assertGreater(shown['m', '/job']['container_memory_usage_bytes'], shown['n', '/job']['container_memory_usage_bytes'])

    def test_filters_and_what_they_leave_out(self):
        self.serve('top=2,depth=1,prefix=/a')
        self.make('/a', '/a/b', '/b')
        self.assertEqual([path for _, path in self.cgroups()], ['/a'])
        self.assertEqual(self.left_out(), {'depth': 1, 'prefix': 2, 'top': 0})
        self.serve('top=2')
        self.make('/a', '/b')
        self.feed('n', cgroup='/c')
        self.assertEqual(sorted(path for _, path in self.cgroups()), ['/', '/c'])
        self.assertEqual(self.left_out(), {'depth': 0, 'prefix': 0, 'top': 2})
        self.serve('prefix=/nowhere')
        self.make('/a')
        self.assertEqual((self.cgroups(), self.left_out()['prefix']), ({}, 2))

    def test_a_bad_filter_is_one_line(self):
        for value in ('top=0', 'depth=x', 'wide', 'prefix=a', 'top=1000001'):
            run = subprocess.run([os.path.join(processes.BINARIES, 'memcgd'), '--check-config', '--cgroup-metrics', value],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=processes.LIMIT_S)
            self.assertEqual(run.returncode, 2, value)
            self.assertRegex(run.stderr, r'\Amemcgd: --cgroup-metrics: [^\n]+\n\Z')


class Removal(Metrics):
    def test_a_scrape_while_nodes_come_and_go(self):
        self.serve()
        failures = []
        stop = threading.Event()

        def scrape():
            while not stop.is_set():
                try:
                    series_of(self.get('/metrics/cgroups'))
                except Exception as error:  # told by the test's thread
                    failures.append(error)
                    return
        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            for _ in range(15):
                self.feed(pages=50)
                self.ctl('node', 'delete', 'n')
        finally:
            stop.set()
            scraper.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.cgroups(), {})


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
