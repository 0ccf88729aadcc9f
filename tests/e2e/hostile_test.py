#!/usr/bin/python3
"""Rude clients: memcgd stays up, keeps its memory, and serves a good client meanwhile.

usage: hostile_test.py BINARY_DIRECTORY [unittest arguments]

MEMCGD_HOSTILE_SECONDS is how long each flood lasts (default 2); MEMCGD_HOSTILE_SEQUENCES how many random sequences of
frames are sent (default 2000), of the seed MEMCGD_HOSTILE_SEED (default 1).  MEMCGD_HOSTILE=1 floods gRPC itself too.
"""
import os
import pathlib
import random
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

import grpc

import http2
import processes
from http2 import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, frame
from processes import Directory, Memcgctl, Memcgd, wait_for

SECONDS = float(os.environ.get('MEMCGD_HOSTILE_SECONDS', '2'))
SEQUENCES = int(os.environ.get('MEMCGD_HOSTILE_SEQUENCES', '2000'))
SEED = int(os.environ.get('MEMCGD_HOSTILE_SEED', '1'))
STREAM = '/memcgd.v1.IngestService/Stream'
LIST = '/memcgd.v1.NodeService/ListNodes'
NODE = (('x-memcg-node', 'n'),)
HAPROXY = '/usr/sbin/haproxy'


def varint(value):
    out = b''
    while value >= 128:
        out += bytes((value % 128 + 128,))
        value //= 128
    return out + bytes((value,))


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def open_request(node, stream_id):
    return field(1, field(1, node.encode()) + field(2, stream_id.encode()))


class GoodClient:
    """Asks again and again, on one connection, and notes how long each answer took."""

    def __init__(self, address):
        self.address = address
        self.seconds = []
        self.errors = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _run(self):
        with grpc.insecure_channel(self.address, options=(('grpc.enable_http_proxy', 0),)) as channel:
            ask = channel.unary_unary(LIST)
            while not self.over.is_set():
                start = time.monotonic()
                try:
                    ask(b'', timeout=20)
                    self.seconds.append(time.monotonic() - start)
                except grpc.RpcError as error:
                    self.errors.append(error)
                time.sleep(0.002)

    def p99(self):
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]


class Hostile(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)
        self.sockets = []
        self.addCleanup(lambda: [one.close() for one in self.sockets])

    def start_server(self, *flags, **more):
        server = Memcgd(self.directory.path, flags=flags if '--memory-budget' in flags else ('--memory-budget', '512M', *flags), **more)
        self.addCleanup(server.stop)
        self.address = self.in_front(server)
        return server

    def in_front(self, server):
        """Where clients reach the server."""
        return server.address

    def make_node(self, server):
        code, _, err = Memcgctl('node', 'create', 'n', server=server.address).finish()
        self.assertEqual(code, 0, err)

    def connect(self, server, *frames):
        one = http2.connect(self.address)
        self.sockets.append(one)
        one.sendall(http2.PREFACE + b''.join(frames))
        return one

    def resident(self, server):
        with open(f'/proc/{server.process.pid}/statm') as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def assert_well(self, server):
        """It lives, is within its memory, and answers."""
        self.assertIsNone(server.process.poll())
        self.assertLess(self.resident(server), 512 << 20)
        with GoodClient(self.address) as good:
            wait_for(lambda: len(good.seconds) >= 20 or good.errors, 'answers')
        self.assertEqual(good.errors, [])

    def flood(self, server, make_frames, connections=4):
        """Sends what `make_frames` gives on so many connections, over and over, and reads nothing but to be told off."""
        end = time.monotonic() + SECONDS
        sent = 0
        with GoodClient(self.address) as good:
            states = {}
            while time.monotonic() < end:
                while len(states) < connections:
                    try:
                        one = http2.connect(self.address)
                    except OSError:
                        break  # a proxy's right
                    one.setblocking(False)
                    states[one] = (bytearray(http2.PREFACE + http2.settings()), make_frames())
                readable, writable, _ = select.select(list(states), list(states), [], 0.1)
                gone = set()
                for one in readable:
                    try:
                        if not one.recv(1 << 16):
                            gone.add(one)
                    except OSError:
                        gone.add(one)
                for one in writable:
                    pending, frames = states[one]
                    while len(pending) < 1 << 16:
                        pending += next(frames)
                        sent += 1
                    try:
                        del pending[:one.send(pending)]
                    except OSError:
                        gone.add(one)
                for one in gone:
                    del states[one]
                    one.close()
            for one in states:
                one.close()
        self.assertEqual(good.errors, [])
        self.assertGreater(sent, 100)
        print(f'{sent} frames in {SECONDS} s; good client: {len(good.seconds)} answers, p99 {good.p99() * 1e3:.1f} ms',
              file=sys.stderr)
        self.assertLess(good.p99(), 5)  # served; how fast is up to the CPUs that are left
        self.assert_well(server)


class NeverReading(Hostile):
    def test_a_thousand_clients_that_open_streams_and_never_read(self):
        server = self.start_server('--stream-stalled', '0')
        self.make_node(server)
        quiet = http2.settings((http2.INITIAL_WINDOW_SIZE, 0))
        for i in range(1000):
            self.connect(server, quiet, http2.call(1, STREAM, open_request('n', f's{i}'), NODE, end=False))
        with GoodClient(self.address) as good:
            time.sleep(1)
            before = self.resident(server)
            time.sleep(max(SECONDS, 3))
            after = self.resident(server)
        self.assertEqual(good.errors, [])
        print(f'{before >> 20} MiB, then {after >> 20} MiB; p99 {good.p99() * 1e3:.1f} ms', file=sys.stderr)
        self.assertLess(abs(after - before), 0.05 * before)
        self.assertLess(good.p99(), 0.1)
        self.assert_well(server)

    def test_who_does_not_read_is_closed(self):
        server = self.start_server('--stream-stalled', '1', metrics='127.0.0.1:0')
        self.make_node(server)
        # What says that the stream is open waits for a window that never comes.
        quiet = http2.settings((http2.INITIAL_WINDOW_SIZE, 0))
        batches = b''.join(
            frame(DATA, 0, 1, http2.message(field(2, varint(1 << 3) + varint(number)))) for number in range(1, 500))
        one = self.connect(server, quiet, http2.call(1, STREAM, open_request('n', 's'), NODE, end=False), batches)
        one.settimeout(30)
        received = b''
        while frame(RST_STREAM, 0, 1)[3:9] not in received:
            more = one.recv(1 << 16)
            self.assertTrue(more, 'the connection ended without a reset of the stream')
            received += more

    def test_who_does_not_open_is_closed(self):
        server = self.start_server()
        with grpc.insecure_channel(server.address, options=(('grpc.enable_http_proxy', 0),)) as channel:
            waiting = threading.Event()

            def nothing():
                waiting.wait(40)
                yield from ()
            call = channel.stream_stream(STREAM)(nothing(), metadata=NODE, timeout=40)
            with self.assertRaises(grpc.RpcError) as ended:
                next(call)
            waiting.set()
        self.assertEqual(ended.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertIn('was not opened within 10 s', ended.exception.details())

    def test_streams_have_limits_in_all_and_per_peer(self):
        for flag in ('--max-streams', '--max-streams-per-peer'):
            server = self.start_server(flag, '3')
            self.make_node(server)
            with grpc.insecure_channel(server.address, options=(('grpc.enable_http_proxy', 0),)) as channel:
                stay = threading.Event()

                def opened(i):
                    yield open_request('n', f's{i}')
                    stay.wait(20)
                calls = [channel.stream_stream(STREAM)(opened(i), metadata=NODE, timeout=30) for i in range(3)]
                for call in calls:
                    next(call)
                refused = channel.stream_stream(STREAM)(opened(3), metadata=NODE, timeout=30)
                with self.assertRaises(grpc.RpcError) as error:
                    next(refused)
                stay.set()
            self.assertEqual(error.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, flag)
            details = dict(error.exception.trailing_metadata())['grpc-status-details-bin']
            self.assertIn(b'google.rpc.RetryInfo', details)
            self.assertIn(b'TOO_MANY_STREAMS', details)


class MemoryBudget(Hostile):
    def test_growth_ends_at_the_budget_and_goes_on_when_room_was_made(self):
        server = self.start_server('--memory-budget', '96M', metrics='127.0.0.1:0')
        peak = 0
        for turn in range(2):
            code, err = self.load(server, 'pft', '--pages', '524287', '--streams', '8')
            self.assertEqual(code, 1, err)
            self.assertRegex(err, r'RESOURCE_EXHAUSTED: .*(memory is used up|no new)')
            peak = max(peak, self.peak(server))
            self.assertLess(peak, 96 << 20)
            self.assertIsNone(server.process.poll())
        self.assertEqual(self.metric(server, 'memcgd_limit{limit="memory_bytes"}'), 96 << 20)
        self.assertLess(self.metric(server, 'memcgd_limit_used{limit="memory_bytes"}'), 96 << 20)
        # memcg-loadgen has deleted its node.
        code, err = self.load(server, 'pft', '--pages', '1000', '--streams', '1')
        self.assertEqual(code, 0, err)
        print(f'peak {peak >> 20} MiB of 96', file=sys.stderr)

    def metric(self, server, name):
        with urllib.request.urlopen(f'http://{server.bound["metrics-listen"]}/metrics', timeout=60) as answer:
            return float(re.search(rf'^{re.escape(name)} (\S+)$', answer.read().decode(), re.M).group(1))

    def load(self, server, *arguments):
        run = subprocess.run(
            [os.path.join(processes.BINARIES, 'memcg-loadgen'), *arguments, '--server', server.address, '--duration', '1',
             '--warmup', '0', '--repeat', '1'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=processes.LIMIT_S)
        return run.returncode, run.stderr

    def peak(self, server):
        with open(f'/proc/{server.process.pid}/status') as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith('VmHWM:'))


class Floods(Hostile):
    """Without HAProxy in front they are for a machine of their own: docs/security.md says what a run came to."""

    def setUp(self):
        if type(self) is Floods and not os.environ.get('MEMCGD_HOSTILE'):
            self.skipTest('set MEMCGD_HOSTILE=1 to flood gRPC itself')
        super().setUp()

    def test_rapid_resets(self):
        server = self.start_server()

        def frames():
            stream = 1
            while True:
                yield (frame(HEADERS, END_HEADERS, stream, http2.call_headers(LIST)) +
                       frame(RST_STREAM, 0, stream, struct.pack('>I', 8)))
                stream += 2
        self.flood(server, frames)

    def test_rapid_resets_of_streams(self):
        server = self.start_server()
        self.make_node(server)

        def frames():
            stream = 1
            while True:
                yield (http2.call(stream, STREAM, open_request('n', f's{stream % 100}'), NODE, end=False) +
                       frame(RST_STREAM, 0, stream, struct.pack('>I', 8)))
                stream += 2
        self.flood(server, frames)

    def test_headers_without_end(self):
        server = self.start_server()

        def frames():
            yield frame(HEADERS, 0, 1, http2.call_headers(LIST))
            while True:
                yield frame(CONTINUATION, 0, 1, b''.join(http2.header(f'x-{i}', 'y' * 1000) for i in range(16)))
        self.flood(server, frames)

    def test_headers_of_many_names_and_of_great_length(self):
        server = self.start_server()

        def frames():
            stream = 1
            while True:
                many = [(f'x-{i}', 'y') for i in range(1000)] if stream % 4 == 1 else [('x-long', 'y' * 15000)]
                yield frame(HEADERS, END_HEADERS | END_STREAM, stream, http2.call_headers(LIST, many))
                stream += 2
        self.flood(server, frames)

    def test_pings_settings_and_priorities(self):
        server = self.start_server()

        def frames():
            while True:
                yield (frame(PING, 0, 0, b'12345678') + http2.settings((http2.HEADER_TABLE_SIZE, 4096)) +
                       frame(PRIORITY, 0, 1, b'\x00\x00\x00\x00\x10'))
        self.flood(server, frames)

    def test_random_sequences(self):
        server = self.start_server()
        self.make_node(server)
        dice = random.Random(SEED)
        with GoodClient(self.address) as good:
            for sequence in range(SEQUENCES):
                try:
                    with http2.connect(self.address) as one:
                        one.sendall(self.random_sequence(dice))
                except OSError:
                    pass  # told off before it was done
                if sequence % 1000 == 0:
                    self.assertIsNone(server.process.poll(), f'sequence {sequence} of seed {SEED}')
        self.assertEqual(good.errors, [])
        self.assert_well(server)

    @staticmethod
    def random_sequence(dice):
        """A good beginning as a rule, then frames that are right, wrong, or noise."""
        out = http2.PREFACE if dice.random() < 0.95 else dice.randbytes(dice.randrange(1, 60))
        out += http2.settings(*[(dice.randrange(0, 9), dice.choice((0, 1, 100, 65535, 1 << 24, (1 << 31) - 1, (1 << 32) - 1)))
                                for _ in range(dice.randrange(0, 3))])
        stream = 1
        for _ in range(dice.randrange(1, 9)):
            what = dice.randrange(8)
            if what == 0:
                out += http2.call(stream, LIST, b'')
            elif what == 1:
                out += http2.call(stream, STREAM, open_request('n', 's'), NODE, end=dice.random() < 0.5)
            elif what == 2:
                out += http2.call(stream, STREAM, dice.randbytes(dice.randrange(0, 200)), NODE, end=False)
            elif what == 3:
                out += frame(dice.randrange(0, 12), dice.randrange(0, 256), dice.choice((0, 1, stream, 1 << 31 - 1)),
                             dice.randbytes(dice.randrange(0, 40)))
            elif what == 4:
                out += frame(HEADERS, END_HEADERS, stream, dice.randbytes(dice.randrange(0, 100)))
            elif what == 5:
                out += frame(DATA, dice.randrange(0, 2), stream, b'\x00' + struct.pack('>I', dice.randrange(0, 1 << 32)))
            elif what == 6:
                out += frame(http2.WINDOW_UPDATE, 0, dice.choice((0, stream)), struct.pack('>I', dice.randrange(0, 1 << 32)))
            else:
                out += struct.pack('>I', dice.randrange(0, 1 << 24))[1:] + dice.randbytes(dice.randrange(0, 30))
            stream += dice.choice((0, 2, 2, 2, 1, 100))
        return out


@unittest.skipUnless(os.path.exists(HAPROXY), f'{HAPROXY} is not installed')
class FloodsBehindHaproxy(Floods):
    """The same behind the configuration of docs/security.md."""

    def in_front(self, server):
        document = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'security.md'
        text = re.search(r'^```haproxy\n(.*?)^```$', document.read_text(), re.M | re.S).group(1)
        with socket.create_server(('127.0.0.1', 0)) as free:
            address = '127.0.0.1:%d' % free.getsockname()[1]
        for was, now in (('bind :7077 ssl crt /etc/haproxy/tls.pem alpn h2', f'bind {address} proto h2'),
                         ('unix@/run/memcgd/memcgd.sock', server.address)):
            self.assertIn(was, text)
            text = text.replace(was, now)
        proxy = subprocess.Popen([HAPROXY, '-db', '-f', self.directory.file('haproxy.cfg', text)],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (proxy.kill(), proxy.wait()))

        def up():
            self.assertIsNone(proxy.poll(), 'haproxy does not start')
            try:
                socket.create_connection(address.rsplit(':', 1), 10).close()
            except OSError:
                return False
            return True
        wait_for(up, 'haproxy')
        return address


class Descriptors(Hostile):
    def test_it_goes_on_when_descriptors_are_short(self):
        server = self.start_server()
        limit = 100
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        many = []
        for _ in range(300):
            one = http2.connect(server.address)
            many.append(one)
        self.sockets += many

        def descriptors():
            return len(os.listdir(f'/proc/{server.process.pid}/fd'))
        wait_for(lambda: descriptors() >= limit - 2, 'the descriptors to run out')
        for one in many:
            one.close()
        wait_for(lambda: descriptors() < limit // 2, 'the descriptors to come back')
        self.assert_well(server)
        with open(server.log.name) as log:
            self.assertIn('Too many open files: connections to', log.read())


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    unittest.main(verbosity=2)
