#!/usr/bin/python3
"""Who may reach memcgd and do what: TLS, certificates of clients, tokens; and what it does not start with.

usage: access_test.py BINARY_DIRECTORY [unittest arguments]
"""
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest

import grpc

import processes
from processes import Directory, Memcgctl, Memcgd, wait_for


class Authority:
    """A certificate authority in a directory of its own, by openssl."""

    def __init__(self, path):
        self.path = path
        os.makedirs(path)
        self.ca = os.path.join(path, 'ca.pem')
        self.ca_key = os.path.join(path, 'ca.key')
        self._run('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
                  '-subj', '/CN=test-ca', '-keyout', self.ca_key, '-out', self.ca)

    def _run(self, *arguments):
        subprocess.run(['openssl', *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)

    def issue(self, directory, name='127.0.0.1'):
        """tls.crt and tls.key in that directory, for 127.0.0.1 and localhost."""
        os.makedirs(directory, exist_ok=True)
        cert, key, request, names = (os.path.join(directory, n) for n in ('tls.crt', 'tls.key', 'tls.csr', 'names'))
        self._run('req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj',
                  f'/CN={name}', '-keyout', key, '-out', request)
        with open(names, 'w') as out:
            out.write('subjectAltName=IP:127.0.0.1,DNS:localhost\n')
        self._run('x509', '-req', '-in', request, '-CA', self.ca, '-CAkey', self.ca_key, '-CAcreateserial', '-days', '2',
                  '-extfile', names, '-out', cert)
        return cert, key


def tokens(*entries):
    """The text of a token file: (token, tenant, rights)."""
    lines = ['tokens:']
    for token, tenant, rights in entries:
        lines += [f'  - sha256: {hashlib.sha256(token.encode()).hexdigest()}', f'    tenant: {tenant}', f'    {rights}']
    return '\n'.join(lines) + '\n'


class Access(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)

    def path(self, *names):
        return os.path.join(self.directory.path, *names)

    def start_server(self, *flags, **more):
        server = Memcgd(self.directory.path, flags=flags, **more)
        self.addCleanup(server.stop)
        return server

    def ctl(self, server, *arguments, environment=None):
        command = Memcgctl(*arguments, '--timeout', '10', server=server.address, environment=environment)
        self.addCleanup(command.kill)
        return command.finish()

    def assert_served(self, server, *arguments, **more):
        code, _, err = self.ctl(server, 'node', 'list', *arguments, **more)
        self.assertEqual(code, 0, err)

    def refusal(self, *flags):
        """What a memcgd that does not start says, in one line."""
        run = subprocess.run([os.path.join(processes.BINARIES, 'memcgd'), '--metrics-listen', 'off', *flags],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=processes.LIMIT_S)
        self.assertEqual((run.returncode, run.stdout), (2, ''), run.stderr)
        self.assertEqual(run.stderr.count('\n'), 1, run.stderr)
        return run.stderr


class Tls(Access):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.path('ca'))
        self.cert, self.key = self.authority.issue(self.path('server'))
        self.tls = ('--tls-cert', self.cert, '--tls-key', self.key)

    def test_a_client_has_to_know_who_signed_the_server(self):
        server = self.start_server(*self.tls)
        self.assert_served(server, '--tls-ca', self.authority.ca)
        self.assert_served(server, environment={'MEMCGCTL_TLS_CA': self.authority.ca})
        stranger = Authority(self.path('stranger'))
        for flags in ((), ('--tls-ca', stranger.ca)):
            code, _, err = self.ctl(server, 'node', 'list', *flags)
            self.assertEqual(code, 4, err)

    def test_a_server_that_wants_certificates_gets_them_from_clients_but_not_from_probes(self):
        server = self.start_server(*self.tls, '--tls-client-ca', self.authority.ca, '--health-listen', '127.0.0.1:0')
        cert, key = self.authority.issue(self.path('client'), 'client')
        self.assert_served(server, '--tls-ca', self.authority.ca, '--tls-cert', cert, '--tls-key', key)
        cert, key = Authority(self.path('stranger')).issue(self.path('strange-client'))
        for flags in ((), ('--tls-cert', cert, '--tls-key', key)):
            code, _, err = self.ctl(server, 'node', 'list', '--tls-ca', self.authority.ca, *flags)
            self.assertEqual(code, 4, err)
        with grpc.insecure_channel(server.bound['health-listen'], options=(('grpc.enable_http_proxy', 0),)) as channel:
            self.assertEqual(channel.unary_unary('/grpc.health.v1.Health/Check')(b'', timeout=10), b'\x08\x01')
            with self.assertRaises(grpc.RpcError) as refused:
                channel.unary_unary('/memcgd.v1.NodeService/ListNodes')(b'', timeout=10)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_certificates_are_swapped_under_load(self):
        """As Kubernetes does: a link to a directory with the new pair takes the place of the old one."""
        link = self.path('current')
        os.symlink(self.path('server'), link)
        server = self.start_server('--tls-cert', os.path.join(link, 'tls.crt'), '--tls-key', os.path.join(link, 'tls.key'))
        load = subprocess.Popen(
            [os.path.join(processes.BINARIES, 'memcg-loadgen'), 'mix', '--streams', '2', '--server', server.address,
             '--tls-ca', self.authority.ca, '--duration', '7', '--warmup', '0', '--repeat', '1'],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: load.poll() is None and load.kill())
        host, port = server.address.rsplit(':', 1)
        failed = []
        over = threading.Event()

        def connect_and_call():
            with open(self.authority.ca, 'rb') as file:
                credentials = grpc.ssl_channel_credentials(file.read())
            while not over.is_set():
                with grpc.secure_channel(server.address, credentials, options=(
                        ('grpc.enable_http_proxy', 0), ('grpc.use_local_subchannel_pool', 1))) as channel:
                    try:
                        channel.unary_unary('/memcgd.v1.NodeService/ListNodes')(b'', timeout=10)
                    except grpc.RpcError as error:
                        failed.append(error)
                time.sleep(0.01)

        others = threading.Thread(target=connect_and_call)
        others.start()
        self.addCleanup(others.join)
        self.addCleanup(over.set)
        for turn in range(3):
            cert, _ = self.authority.issue(self.path(f'server-{turn}'))
            os.symlink(os.path.dirname(cert), link + '.new')
            os.replace(link + '.new', link)
            with open(cert) as file:
                new = file.read()
            wait_for(lambda: ssl.get_server_certificate((host, int(port))).strip() == new.strip(), 'the new certificate', 10)
        out, err = load.communicate(timeout=processes.LIMIT_S)
        self.assertEqual(load.returncode, 0, err)  # a stream that broke is an error of memcg-loadgen
        over.set()
        self.assertEqual(failed, [])

    def test_what_it_does_not_start_with(self):
        cert, key = self.authority.issue(self.path('second'))
        self.assertIn('is not the key of the certificate', self.refusal('--tls-cert', self.cert, '--tls-key', key))
        self.assertIn('both --tls-cert and --tls-key', self.refusal('--tls-cert', self.cert))
        self.assertIn('No such file', self.refusal('--tls-cert', self.path('none'), '--tls-key', key))
        self.assertIn('no certificate in PEM', self.refusal('--tls-cert', self.key, '--tls-key', key))
        self.assertIn('no private key in PEM', self.refusal('--tls-cert', self.cert, '--tls-key', self.cert))
        self.assertIn('could feed and read every node', self.refusal('--check-config', '--listen', '0.0.0.0:0', *self.tls))


class Tokens(Access):
    def setUp(self):
        super().setUp()
        self.file = self.directory.file('tokens.yaml', tokens(('alpha', 'a', 'write: [a-]'), ('beta', 'b', 'write: [b-]')))
        self.alpha = self.directory.file('alpha', 'alpha\n')
        self.beta = self.directory.file('beta', 'beta\n')

    def test_a_tenant_feeds_and_reads_its_own_nodes_only(self):
        server = self.start_server('--token-file', self.file)
        trace = self.directory.file('t', processes.trace(50))
        code, _, err = self.ctl(server, 'replay', trace, '--node', 'a-1', '--token-file', self.alpha)
        self.assertEqual(code, 0, err)
        code, out, err = self.ctl(server, 'node', 'list', '-o', 'json', '--token-file', self.beta)
        self.assertEqual((code, out.strip()), (0, '[]'), err)
        code, _, err = self.ctl(server, 'replay', trace, '--node', 'a-1', '--token-file', self.beta)
        self.assertEqual(code, 1)
        self.assertRegex(err, r'PERMISSION_DENIED: tenant "b" may not (read|write) node "a-1"\n\Z')
        code, _, err = self.ctl(server, 'node', 'list')
        self.assertEqual(code, 1)
        self.assertIn('UNAUTHENTICATED: a token is wanted', err)
        with open(server.log.name) as log:
            self.assertEqual(log.read().count('audit: refused'), 2)

    def test_a_token_is_taken_away(self):
        server = self.start_server('--token-file', self.file)
        self.assert_served(server, '--token-file', self.alpha)
        self.directory.file('tokens.yaml', 'tokens: [')
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log(server, 'tokens stay as they were')
        self.assert_served(server, '--token-file', self.alpha)
        self.directory.file('tokens.yaml', tokens(('beta', 'b', 'write: [b-]')))
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log(server, 'tokens read again')
        self.assertIn('the token is unknown', self.ctl(server, 'node', 'list', '--token-file', self.alpha)[2])
        self.assert_served(server, '--token-file', self.beta)

    def wait_for_log(self, server, text):
        def there():
            with open(server.log.name) as log:
                return text in log.read()
        wait_for(there, text)

    def test_a_flood_of_refusals_is_not_a_flood_of_lines(self):
        server = self.start_server('--token-file', self.file)
        with grpc.insecure_channel(server.address, options=(('grpc.enable_http_proxy', 0),)) as channel:
            call = channel.unary_unary('/memcgd.v1.NodeService/ListNodes')
            waiting = [call.future(b'', timeout=20) for _ in range(3000)]
            self.assertEqual({one.code() for one in waiting}, {grpc.StatusCode.UNAUTHENTICATED})
            time.sleep(1.1)
            self.assertEqual(call.future(b'', timeout=20).code(), grpc.StatusCode.UNAUTHENTICATED)
        with open(server.log.name) as log:
            text = log.read()
        self.assertLess(text.count('audit: refused'), 300)
        self.assertRegex(text, r'audit: \d+ refusals more')

    def test_tokens_do_not_travel_in_the_open(self):
        self.assertIn('tokens could be read on their way', self.refusal('--listen', '0.0.0.0:0', '--token-file', self.file))
        code, _, err = Memcgctl('node', 'list', '--token-file', self.alpha, server='203.0.113.1:7077').finish()
        self.assertEqual(code, 2)
        self.assertIn('give --tls-ca', err)


class Loopback(Access):
    def test_an_address_that_others_reach_has_to_be_asked_for(self):
        self.assertEqual(self.refusal('--listen', '0.0.0.0:0'), 'memcgd: --listen: whoever reaches 0.0.0.0:0 could feed '
                         'and read every node; give --tls-cert and --tls-key with --token-file or --tls-client-ca, or '
                         '--insecure where that is meant\n')
        self.assertIn('could feed and read', self.refusal('--check-config', '--listen', '[::]:0'))
        self.assertIn('could feed and read', self.refusal('--check-config', '--listen', 'example.org:0'))
        for listen in ('127.0.0.2:0', '[::1]:0', 'localhost:0', 'unix:' + self.path('socket')):
            self.assertEqual(self.check('--listen', listen), 0, listen)
        self.assertEqual(self.check('--listen', '0.0.0.0:0', '--insecure'), 0)
        config = self.directory.file('c.yaml', 'listen: 0.0.0.0:0\ninsecure: true\n')
        self.assertEqual(self.check('--config', config), 0)

    def check(self, *flags):
        return subprocess.run([os.path.join(processes.BINARIES, 'memcgd'), '--check-config', *flags],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=processes.LIMIT_S).returncode

    def test_it_serves_where_it_was_asked_to(self):
        server = self.start_server('--insecure', listen='0.0.0.0:0')
        with socket.create_connection(('127.0.0.1', int(server.address.rsplit(':', 1)[1])), timeout=10):
            pass


if __name__ == '__main__':
    if shutil.which('openssl') is None:
        sys.exit('access_test.py needs openssl (scripts/install-deps.sh)')
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
