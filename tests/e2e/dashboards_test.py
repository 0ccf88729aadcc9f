#!/usr/bin/python3
"""Every expression of deploy/grafana and deploy/prometheus against a real Prometheus that scraped a real memcgd.

usage: dashboards_test.py BINARY_DIRECTORY [unittest arguments]
"""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

import yaml

import processes
from processes import Directory, Memcgctl, Memcgd, trace, wait_for

ROOT = pathlib.Path(__file__).parents[2]
DEPLOY = ROOT / 'deploy'
TRACES = ROOT / 'tests' / 'fidelity' / 'traces'
# A comparison of an alert decides, and is cut off: that it has something to decide about is what is tested.
DECISION = re.compile(r' (==|>) (0\.\d+|\d+)$')


def expressions():
    for path in sorted((DEPLOY / 'grafana').glob('*.json')):
        for panel in json.loads(path.read_text())['panels']:
            for target in panel['targets']:
                yield f'{path.name}: {panel["title"]}', target['expr']
    for path in (DEPLOY / 'prometheus' / 'rules.yml', DEPLOY / 'prometheus' / 'alerts.yml'):
        for group in yaml.safe_load(path.read_text())['groups']:
            for rule in group['rules']:
                yield f'{path.name}: {rule.get("alert", rule.get("record"))}', DECISION.sub('', rule['expr'].strip())


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = Directory()
        cls.addClassCleanup(cls.directory.remove)
        cls.server = Memcgd(cls.directory.path, metrics='127.0.0.1:0', flags=('--cgroup-metrics', 'on'))
        cls.addClassCleanup(cls.server.stop)
        cls.replay('first')
        cls.start_prometheus()
        wait_for(lambda: cls.query('count_over_time(memcgd_nodes[1m])'), 'a first scrape')
        cls.replay('second')  # counters rise between scrapes
        wait_for(lambda: cls.query('count_over_time(memcgd_nodes[1m]) > 5 and on () sum(rate(memcgd_batches_total[1m])) > 0'),
                 'scrapes that see it')

    @classmethod
    def replay(cls, node):
        recorded = sorted((TRACES / 'oom').glob('*.zst'))[0]
        for file, more in ((str(recorded), ()), (cls.directory.file('t', trace(2000)),
                                                 ('--reclaim', 'modelled', '--memory-max', '/job=64M'))):
            name = node if not more else f'{node}-limited'
            code, _, err = Memcgctl('replay', file, '--node', name, *more, server=cls.server.address).finish()
            assert code == 0, err

    @classmethod
    def start_prometheus(cls):
        # The configuration that is delivered, but for the address, and faster.
        text = (DEPLOY / 'prometheus' / 'prometheus.yml').read_text()
        config = yaml.safe_load(text)
        config['global'] = {'scrape_interval': '500ms', 'scrape_timeout': '500ms', 'evaluation_interval': '500ms'}
        config['rule_files'] = [str(DEPLOY / 'prometheus' / name) for name in config['rule_files']]
        for job in config['scrape_configs']:
            job.pop('scrape_interval', None)
            job.pop('scrape_timeout', None)
            job['static_configs'] = [{'targets': [cls.server.bound['metrics-listen']]}]
        with socket.create_server(('127.0.0.1', 0)) as probe:
            cls.port = probe.getsockname()[1]
        log = open(os.path.join(cls.directory.path, 'prometheus.log'), 'w')
        cls.addClassCleanup(log.close)
        process = subprocess.Popen(
            ['prometheus', '--config.file', cls.directory.file('prometheus.yml', yaml.safe_dump(config)),
             '--storage.tsdb.path', os.path.join(cls.directory.path, 'data'), '--web.listen-address', f'127.0.0.1:{cls.port}'],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        cls.addClassCleanup(lambda: (process.kill(), process.wait()))

        def ready():
            assert process.poll() is None, pathlib.Path(log.name).read_text()
            try:
                return urllib.request.urlopen(f'http://127.0.0.1:{cls.port}/-/ready', timeout=5).status == 200
            except OSError:
                return False
        wait_for(ready, 'Prometheus')

    @classmethod
    def query(cls, expression):
        url = f'http://127.0.0.1:{cls.port}/api/v1/query?' + urllib.parse.urlencode({'query': expression})
        with urllib.request.urlopen(url, timeout=processes.LIMIT_S) as answer:
            return json.load(answer)['data']['result']

    def test_every_expression_returns_data(self):
        seen = 0
        for where, expression in expressions():
            for variable, value in (('$node', 'first-limited'), ('$id', '.*'), ('$__rate_interval', '1m')):
                expression = expression.replace(variable, value)
            with self.subTest(where):
                self.assertNotIn('$', expression)
                result = self.query(expression)
                self.assertTrue(result, expression)
                # No sum over nothing: each has a number.
                self.assertTrue(any(sample['value'][1] != 'NaN' for sample in result), f'{expression}: {result}')
            seen += 1
        self.assertGreater(seen, 30)

    def test_the_recording_rules_are_recorded(self):
        for group in yaml.safe_load((DEPLOY / 'prometheus' / 'rules.yml').read_text())['groups']:
            for rule in group['rules']:
                self.assertTrue(wait_for(lambda: self.query(rule['record']), rule['record']))

    def test_rules_have_tests_that_pass(self):
        for test in sorted((DEPLOY / 'prometheus' / 'tests').glob('*.yml')):
            run = subprocess.run(['promtool', 'test', 'rules', str(test)], capture_output=True, text=True,
                                 timeout=processes.LIMIT_S)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            text = test.read_text()
            for name in re.findall(r'(?:alert|record): (\S+)', (DEPLOY / 'prometheus' / 'rules.yml').read_text() +
                                   (DEPLOY / 'prometheus' / 'alerts.yml').read_text()):
                self.assertIn(name, text, 'a rule without a test')


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
