#!/usr/bin/python3
"""A client of memcgd in Python: streams the page faults of a job, then prints its memory.stat.

mkdir stubs && protoc -I proto --python_out=stubs proto/memcgd/v1/*.proto
PYTHONPATH=stubs examples/python/client.py 127.0.0.1:7077
"""
import pathlib
import sys
import threading
import time

import grpc
from memcgd.v1 import cgroup_pb2, ingest_pb2, node_pb2

NODE, STREAM, TID, BATCHES, FAULTS = 'example-python', 'faults', 100, 100, 50
SERVICE_CONFIG = (pathlib.Path(__file__).parents[1] / 'service-config.json').read_text()


def call(channel, method, request, response):
    stub = channel.unary_unary(f'/memcgd.v1.{method}', type(request).SerializeToString, response.FromString)
    return stub(request, timeout=30, wait_for_ready=True, metadata=[('x-memcg-node', NODE)])


def batch(sequence):
    """The same each time that it is made: a server that was killed asks for it again."""
    made = ingest_pb2.Batch(sequence=sequence, base_time_ns=sequence * 1_000_000)
    if sequence == 1:  # names, then what happened
        for event in ({'define_path': {'handle': 1, 'path': b'/job'}}, {'cgroup_create': {'path': 1}},
                      {'cgroup_attach': {'path': 1, 'moved_tid': TID}}):
            made.side.add(tid=0, **event)
    for i in range(FAULTS):  # kind 1, CPU 0; a write (2) by the user (4)
        page = (sequence - 1) * FAULTS + i
        made.words.extend([1 | TID << 16 | i << 38, 0x7f0000000000 + 4096 * page | (2 | 4) << 57])
    return made


def feed(channel):
    """Sends what the server does not have yet."""
    next_sequence, window = [], threading.Semaphore(0)

    def requests():
        yield ingest_pb2.StreamRequest(open={'node': NODE, 'stream_id': STREAM})
        window.acquire()
        for sequence in range(next_sequence[0], BATCHES + 1):
            window.acquire()
            yield ingest_pb2.StreamRequest(batch=batch(sequence))

    stub = channel.stream_stream('/memcgd.v1.IngestService/Stream', ingest_pb2.StreamRequest.SerializeToString,
                                 ingest_pb2.StreamResponse.FromString)
    acknowledged = 0
    for response in stub(requests(), metadata=[('x-memcg-node', NODE)]):
        if response.HasField('opened'):
            acknowledged = response.opened.next_sequence - 1
            next_sequence.append(response.opened.next_sequence)
            window.release(1 + response.opened.window_batches)
        elif response.HasField('ack'):
            window.release(response.ack.applied_through - acknowledged)
            acknowledged = response.ack.applied_through


def main():
    options = [('grpc.service_config', SERVICE_CONFIG), ('grpc.enable_http_proxy', 0)]
    channel = grpc.insecure_channel(sys.argv[1], options)
    for pause in (0.1, 0.2, 0.5, 1, 2, None):
        try:
            try:
                call(channel, 'NodeService/CreateNode', node_pb2.CreateNodeRequest(name=NODE), node_pb2.CreateNodeResponse)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.ALREADY_EXISTS:
                    raise
            feed(channel)
            break
        except grpc.RpcError as error:  # the server stopped, or another one answers for the node now
            if pause is None or error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND):
                raise
            time.sleep(pause)
    reading = call(channel, 'CgroupService/ReadCgroup', cgroup_pb2.ReadCgroupRequest(node=NODE, path='/job'),
                   cgroup_pb2.ReadCgroupResponse)
    for item in reading.stat:
        print(item.name, item.value)


main()
