#!/usr/bin/python3
"""Three memcgd behind HAProxy, with the configuration of deploy/kubernetes/overlays/sharded: 300 nodes stream, one server is
stopped, one is killed.  Only their nodes move, every stream goes on, and every node ends as in a run without any of that.

usage: sharded_test.py BINARY_DIRECTORY SOURCE_DIRECTORY [unittest arguments]
"""
import asyncio
import importlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest
import urllib.request

import grpc

import processes
from processes import Directory, Memcgctl, Memcgd, trace, wait_for

SOURCE = None  # set by main
HAPROXY = shutil.which('haproxy', path=f'{os.environ.get("PATH", "")}:/usr/sbin')
NODES, BATCHES, FAULTS = 300, 12, 20
TID = 100
AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL,
         grpc.StatusCode.UNKNOWN}
GRPC_OPTIONS = [('grpc.enable_http_proxy', 0), ('grpc.max_reconnect_backoff_ms', 500)]


def replaced(text, pattern, by, count):
    """The text with `pattern` replaced, which stands there so many times."""
    text, found = re.subn(pattern, by, text, flags=re.M)
    assert found == count, f'{pattern} stands {found} times in haproxy.cfg, not {count}'
    return text


class Haproxy:
    """The configuration as it is delivered, but for addresses and without TLS."""

    def __init__(self, directory, servers):
        self.sockets = [socket.create_server(('127.0.0.1', 0), backlog=512) for _ in range(2)]
        self.address, self.health = ('127.0.0.1:%d' % one.getsockname()[1] for one in self.sockets)
        calls, health = (one.fileno() for one in self.sockets)
        text = (SOURCE / 'deploy/kubernetes/overlays/sharded/haproxy.cfg').read_text()
        text = replaced(text, r'^    bind :7077 ssl crt \S+ alpn h2$', f'    bind fd@{calls} proto h2', 1)
        text = replaced(text, r' init-addr none resolvers cluster', '', 1)
        text = replaced(text, r' ssl verify required ca-file \S+ alpn h2 no-check-ssl$', '', 1)
        text = replaced(text, r'^    tcp-check connect port 7078$', '    tcp-check connect', 1)
        text = replaced(text, r'^    bind :8080$', f'    bind fd@{health}', 1)
        for i, server in enumerate(servers):
            port = server.bound['health-listen'].rsplit(':', 1)[1]
            text = replaced(text, rf'^    server memcgd-{i} \S+ ', f'    server memcgd-{i} {server.address} port {port} ', 1)
        path = os.path.join(directory, 'haproxy.cfg')
        with open(path, 'w') as out:
            out.write(text)
        self.log = open(os.path.join(directory, 'haproxy.log'), 'w+')
        self.process = subprocess.Popen([HAPROXY, '-db', '-f', path], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, pass_fds=[calls, health])
        wait_for(self._healthy, 'haproxy to serve')

    def _healthy(self):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise AssertionError(f'haproxy ended with {self.process.returncode}: {self.log.read()}')
        return b'memcgd' in self.get('/metrics') and self.get('/healthz')

    def get(self, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f'http://{self.health}{path}', timeout=5) as answer:
            return answer.read()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for one in self.sockets:
            one.close()
        self.log.close()


class Feeder:
    """One node's client: makes it, and streams until every batch is applied, whatever becomes of servers."""

    def __init__(self, channel, pb, number, pause_s):
        self.pb, self.number, self.pause_s = pb, number, pause_s
        self.name = f'node-{number}'
        self.acknowledged = 0
        self.opened = 0  # times
        self.stream = channel.stream_stream('/memcgd.v1.IngestService/Stream',
                                            request_serializer=lambda message: message.SerializeToString(),
                                            response_deserializer=pb.ingest.StreamResponse.FromString)
        self.create = channel.unary_unary('/memcgd.v1.NodeService/CreateNode',
                                          request_serializer=lambda message: message.SerializeToString(),
                                          response_deserializer=pb.node.CreateNodeResponse.FromString)
        self.metadata = (('x-memcg-node', self.name),)

    def batch(self, sequence):
        batch = self.pb.ingest.Batch(sequence=sequence, base_time_ns=sequence * 1_000_000)
        if sequence == 1:
            for event in ({'define_path': {'handle': 1, 'path': b'/job'}}, {'cgroup_create': {'path': 1}},
                          {'cgroup_attach': {'path': 1, 'moved_tid': TID}}):
                batch.side.add(**event)
        for i in range(FAULTS + self.number % 7):  # nodes differ
            page = sequence * 1000 + i * (1 + self.number % 3)
            batch.words.extend([1 | TID << 16 | i << 38, 0x7f0000000000 + 4096 * page | 6 << 57])
        return self.pb.ingest.StreamRequest(batch=batch)

    async def feed(self):
        while self.acknowledged < BATCHES:
            try:
                await self.make()
                await self.run_call()
            except grpc.aio.AioRpcError as error:
                if error.code() not in AGAIN:
                    raise AssertionError(f'{self.name}: {error.code()}: {error.details()}')
            except asyncio.InvalidStateError:  # a write to a call that has ended
                pass
            if self.acknowledged < BATCHES:
                await asyncio.sleep(0.1)

    async def make(self):
        request = self.pb.node.CreateNodeRequest(name=self.name)
        try:
            await self.create(request, metadata=self.metadata, timeout=30)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.ALREADY_EXISTS:
                raise

    async def run_call(self):
        call = self.stream(metadata=self.metadata)
        await call.write(self.pb.ingest.StreamRequest(open={'node': self.name, 'stream_id': 's'}))
        answer = await call.read()
        if answer is grpc.aio.EOF:
            return
        self.opened += 1
        for sequence in range(answer.opened.next_sequence, BATCHES + 1):
            await call.write(self.batch(sequence))
            while True:
                answer = await call.read()
                if answer is grpc.aio.EOF or answer.HasField('go_away'):
                    await call.done_writing()
                    return
                if answer.HasField('ack'):
                    break
            # Of the state that the node has now: it may be behind that of a server that is gone.
            self.acknowledged = answer.ack.applied_through
            await asyncio.sleep(self.pause_s)
        await call.done_writing()


class Pb:
    def __init__(self, stubs):
        sys.path.insert(0, stubs)
        self.ingest = importlib.import_module('memcgd.v1.ingest_pb2')
        self.node = importlib.import_module('memcgd.v1.node_pb2')


@unittest.skipUnless(HAPROXY, 'haproxy is not here (packages.txt: haproxy, for CI)')
class Sharded(unittest.TestCase):
    def setUp(self):
        self.directory = Directory()
        self.addCleanup(self.directory.remove)
        stubs = os.path.join(self.directory.path, 'stubs')
        os.mkdir(stubs)
        protos = sorted(str(path.relative_to(SOURCE / 'proto')) for path in (SOURCE / 'proto/memcgd').rglob('*.proto'))
        subprocess.run(['protoc', f'-I{SOURCE / "proto"}', f'--python_out={stubs}', *protos], check=True,
                       timeout=processes.LIMIT_S)
        self.pb = Pb(stubs)

    def start_server(self, name):
        server = Memcgd(self.directory.path, flags=('--health-listen', '127.0.0.1:0', '--data-dir',
                                                    os.path.join(self.directory.path, name)))
        self.addCleanup(server.stop)
        return server

    def nodes_of(self, server):
        """The nodes that this server has, by name, and their events."""
        command = Memcgctl('node', 'list', '-o', 'json', server=server.address)
        self.addCleanup(command.kill)
        code, out, err = command.finish()
        self.assertEqual(code, 0, err)
        return {node['name']: node for node in json.loads(out)}

    async def until(self, condition, what):
        for _ in range(50 * processes.LIMIT_S):
            if condition():
                return
            await asyncio.sleep(0.02)
        self.fail(f'waited in vain for {what}')

    async def feed(self, address, pause_s, disturb=None):
        async with grpc.aio.insecure_channel(address, options=GRPC_OPTIONS) as channel:
            feeders = [Feeder(channel, self.pb, number, pause_s) for number in range(NODES)]
            tasks = [asyncio.create_task(feeder.feed()) for feeder in feeders]
            if disturb is not None:
                await disturb(feeders)
            await asyncio.wait_for(asyncio.gather(*tasks), processes.LIMIT_S)
            return feeders

    def test_one_stopped_one_killed(self):
        alone = self.start_server('alone')
        asyncio.run(self.feed(alone.address, 0))
        wanted = {name: node['state_hash'] for name, node in self.hashes(alone.address).items()}
        self.assertEqual(alone.stop(), 0)

        servers = [self.start_server(f'memcgd-{i}') for i in range(3)]
        stopped, killed, left = servers
        proxy = Haproxy(self.directory.path, servers)
        self.addCleanup(proxy.stop)
        placed = []

        async def disturb(feeders):
            await self.until(lambda: all(feeder.acknowledged >= 1 for feeder in feeders), 'every stream to open')
            placed.extend(set(self.nodes_of(server)) for server in servers)
            print('nodes of each server:', [len(names) for names in placed])
            stopped.process.terminate()
            await self.until(lambda: stopped.process.poll() is not None, 'the server to stop')
            self.assertEqual(stopped.process.returncode, 0)
            of_stopped = [feeder for feeder in feeders if feeder.name in placed[0]]
            await self.until(lambda: all(feeder.opened >= 2 for feeder in of_stopped), 'its streams to open elsewhere')
            killed.process.kill()

        feeders = asyncio.run(self.feed(proxy.address, 0.4, disturb))

        self.assertEqual(sum(map(len, placed)), NODES)
        self.assertTrue(all(len(names) > NODES / 10 for names in placed), 'the hash spreads')
        opened = {feeder.name: feeder.opened for feeder in feeders}
        self.assertEqual({name: opened[name] for name in placed[2] if opened[name] != 1}, {}, 'they did not move')
        self.assertEqual({name: opened[name] for name in placed[1] if opened[name] != 2}, {}, 'they moved once')
        self.assertEqual({name: opened[name] for name in placed[0] if opened[name] not in (2, 3)}, {}, 'once or twice')
        self.assertEqual(set(self.nodes_of(left)), set(wanted), 'all are there now')
        got = {name: node['state_hash'] for name, node in self.hashes(proxy.address).items()}
        self.assertEqual(got, wanted)

    def hashes(self, address):
        """Every node as its server has it, by way of the address."""
        async def read():
            async with grpc.aio.insecure_channel(address, options=GRPC_OPTIONS) as channel:
                get = channel.unary_unary('/memcgd.v1.NodeService/GetNode',
                                          request_serializer=lambda message: message.SerializeToString(),
                                          response_deserializer=self.pb.node.GetNodeResponse.FromString)
                names = [f'node-{number}' for number in range(NODES)]
                answers = await asyncio.gather(*(
                    get(self.pb.node.GetNodeRequest(name=name), metadata=(('x-memcg-node', name),), timeout=30)
                    for name in names))
                return {name: {'state_hash': answer.node.state_hash} for name, answer in zip(names, answers)}
        return asyncio.run(read())

    def test_memcgctl_replay_goes_on_elsewhere(self):
        job = self.directory.file('t', trace(60000))
        files = 8 * [job]
        servers = [self.start_server(f'memcgd-{i}') for i in range(3)]
        proxy = Haproxy(self.directory.path, servers)
        self.addCleanup(proxy.stop)

        def replay(node, address):
            command = Memcgctl('replay', *files, '--node', node, '-o', 'json', server=address)
            self.addCleanup(command.kill)
            return command

        command = replay('r', proxy.address)
        owner = wait_for(lambda: next((server for server in servers
                                       if self.nodes_of(server).get('r', {'events': 0})['events'] > 0), None), 'events')
        owner.process.kill()
        owner.process.wait()
        code, out, err = command.finish()
        self.assertEqual(code, 0, err)
        self.assertIn('sending it again', err)
        rest = [server for server in servers if server is not owner]
        self.assertEqual(sum('r' in self.nodes_of(server) for server in rest), 1)
        code, alone, err = replay('r', rest[0].address if 'r' not in self.nodes_of(rest[0]) else rest[1].address).finish()
        self.assertEqual(code, 0, err)
        self.assertEqual(out, alone)


if __name__ == '__main__':
    processes.BINARIES = os.path.abspath(sys.argv.pop(1))
    SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
