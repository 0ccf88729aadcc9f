#!/usr/bin/python3
"""The examples of clients in other languages, as their README runs them.

usage: foreign_clients_test.py BINARY_DIRECTORY SOURCE_DIRECTORY [unittest arguments]
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import unittest

import processes
from processes import Directory, Memcgctl, Memcgd

SOURCE = None  # set by main
EXAMPLES = None
PAGES = 5000  # 100 batches of 50 faults


class ForeignClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = Directory()
        cls.addClassCleanup(cls.shared.remove)
        cls.stubs = os.path.join(cls.shared.path, 'stubs')
        os.mkdir(cls.stubs)
        protos = sorted(str(path.relative_to(SOURCE / 'proto')) for path in (SOURCE / 'proto/memcgd').rglob('*.proto'))
        subprocess.run(['protoc', f'-I{SOURCE / "proto"}', f'--python_out={cls.stubs}', *protos], check=True,
                       timeout=processes.LIMIT_S)

    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)

    def start_server(self, listen='127.0.0.1:0', flags=()):
        server = Memcgd(self.directory.path, listen=listen, flags=flags)
        self.addCleanup(server.stop)
        return server

    def start(self, command, **environment):
        environment = {**os.environ, 'no_proxy': '*', 'MEMCGD_SOURCE': str(SOURCE), **environment}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=environment)

    def python(self, address):
        return self.start(['/usr/bin/python3', EXAMPLES / 'python/client.py', address], PYTHONPATH=self.stubs)

    def check(self, client):
        out, err = client.communicate(timeout=processes.LIMIT_S)
        self.assertEqual(client.returncode, 0, err)
        stat = dict(line.split() for line in out.splitlines())
        self.assertEqual((int(stat['anon']), int(stat['pgfault'])), (4096 * PAGES, PAGES))

    def check_client(self, start):
        """Alone; again, with nothing left to send; and with a server that stops, and one that is killed, between."""
        data = ('--data-dir', os.path.join(self.directory.path, 'data'))
        server = self.start_server(flags=data)
        self.check(start(server.address))
        self.check(start(server.address))
        self.assertEqual(server.stop(), 0)
        server = self.start_server(server.address, data)
        self.check(start(server.address))
        server.process.kill()
        server.process.wait()
        later = threading.Timer(0.5, lambda: self.start_server(server.address))  # it lost all
        client = start(server.address)  # nobody is there yet
        later.start()
        self.check(client)
        later.join()

    def test_python(self):
        self.check_client(self.python)

    @unittest.skipUnless(shutil.which('npm'), 'npm is not here (packages.txt: npm, for CI)')
    def test_node(self):
        directory = os.path.join(self.directory.path, 'node')
        shutil.copytree(EXAMPLES / 'node', directory, ignore=shutil.ignore_patterns('node_modules'))
        subprocess.run(['npm', 'ci', '--no-audit', '--no-fund', '--ignore-scripts'], cwd=directory, check=True, timeout=120,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.check_client(lambda address: self.start(['node', os.path.join(directory, 'client.js'), address]))

    def test_what_is_retried_exists_and_changes_nothing_when_it_is_done_twice(self):
        config = json.loads((EXAMPLES / 'service-config.json').read_text())
        text = '\n'.join(path.read_text() for path in (SOURCE / 'proto').rglob('*.proto'))
        for entry in config['methodConfig']:
            for name in entry['name']:
                package, service = name['service'].rsplit('.', 1)
                body = re.search(rf'^service {service} {{$(.*?)^}}$', text, re.M | re.S).group(1)
                self.assertRegex(body, rf'rpc {name["method"]}\((?!stream)', name)
                self.assertNotRegex(name['method'], 'Create|Delete|Reclaim|Stream')
                self.assertIn(f'package {package};', text)


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
    EXAMPLES = SOURCE / 'examples'
    unittest.main(verbosity=2)
