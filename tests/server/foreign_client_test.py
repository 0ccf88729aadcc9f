#!/usr/bin/python3
"""A client of memcgd that shares no code with ours: python3-grpcio, stubs by protoc, events packed by hand.

It is written from docs/protocol.md.  Usage: foreign_client_test.py MEMCGD [PROTO_DIRECTORY]

Starts the server on free ports, makes a node, streams two faults and a mark, reads the state and memory.stat, health
and reflection, repeats a batch, spoils another one, and at last sends SIGTERM while a stream is open.
"""

import importlib
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import grpc

TIMEOUT_S = 30
KIND_FAULT = 1
ERROR_WRITE, ERROR_USER = 2, 4


def compile_protos(protos, out):
    """Writes the messages' Python modules into `out` and imports them."""
    wanted = [p for package in ("memcgd", "grpc") for p in sorted((protos / package).glob("**/*.proto"))]
    files = [str(p.relative_to(protos)) for p in wanted]
    subprocess.run(["protoc", f"-I{protos}", f"--python_out={out}", *files], check=True, timeout=TIMEOUT_S)
    # memcgd/v1 and grpc/health/v1 become modules below `out`; the package grpc is python3-grpcio's and stays so.
    (out / "grpc").rename(out / "grpc_protos")
    sys.path.insert(0, str(out))
    importlib.invalidate_caches()
    names = ["cgroup", "events", "ingest", "node"]
    modules = {name: importlib.import_module(f"memcgd.v1.{name}_pb2") for name in names}
    modules["health"] = importlib.import_module("grpc_protos.health.v1.health_pb2")
    return modules


def start_server(binary, directory):
    """The server's process, its address and that of its metrics."""
    port_file = directory / "ports"
    process = subprocess.Popen(
        [binary, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--port-file", str(port_file)])
    deadline = time.monotonic() + TIMEOUT_S
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError("memcgd did not start")
        time.sleep(0.02)
    ports = dict(line.split("=", 1) for line in port_file.read_text().splitlines())
    return process, ports["listen"], ports["metrics-listen"]


def fault(tid, address, cpu=0, time_us=0):
    """The two words of a user's write fault."""
    head = KIND_FAULT | cpu << 6 | tid << 16 | time_us << 38
    body = address | (ERROR_WRITE | ERROR_USER) << 57
    return struct.unpack("<QQ", struct.pack("<QQ", head, body))


class Client:
    def __init__(self, address, pb):
        self.pb = pb
        self.channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])

    def unary(self, method, request, response_type, node=None):
        call = self.channel.unary_unary(method, request_serializer=lambda m: m.SerializeToString(),
                                        response_deserializer=response_type.FromString)
        return call(request, timeout=TIMEOUT_S, metadata=[("x-memcg-node", node)] if node else None)

    def stream(self, node, requests):
        call = self.channel.stream_stream("/memcgd.v1.IngestService/Stream",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=self.pb["ingest"].StreamResponse.FromString)
        return call(requests, timeout=TIMEOUT_S, metadata=[("x-memcg-node", node)])

    def open_request(self, node, stream_id, incarnation=0):
        request = self.pb["ingest"].StreamRequest()
        request.open.node, request.open.stream_id, request.open.incarnation = node, stream_id, incarnation
        return request

    def batch_request(self, sequence):
        """Two faults of thread 100, and a mark behind them."""
        request = self.pb["ingest"].StreamRequest()
        request.batch.sequence = sequence
        request.batch.base_time_ns = 1_000_000_000 * sequence
        first = 0x5555_0000_0000 + sequence * 0x10000
        request.batch.words.extend([*fault(100, first), *fault(100, first + 4096, time_us=3)])
        side = request.batch.side.add()
        side.position = 2
        side.mark.id = 40 + sequence
        return request


def check_health(client, expected_name):
    health = client.pb["health"]
    response = client.unary("/grpc.health.v1.Health/Check", health.HealthCheckRequest(), health.HealthCheckResponse)
    assert health.HealthCheckResponse.ServingStatus.Name(response.status) == expected_name, response


def check_reflection(client):
    """Asks for the list of services (field 7), and for the file that describes one of them (field 4)."""
    symbol = b"memcgd.v1.IngestService"
    requests = [b"\x3a\x00", b"\x22" + bytes([len(symbol)]) + symbol]
    call = client.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    answers = list(call(iter(requests), timeout=TIMEOUT_S))
    assert b"grpc.health.v1.Health" in answers[0] and symbol in answers[0], answers[0]
    assert b"StreamRequest" in answers[1], answers[1]


def check_stream(client):
    """Feeds a new stream; gives the node's incarnation."""
    answers = list(client.stream("py", iter([client.open_request("py", "s"), client.batch_request(1)])))
    assert [a.WhichOneof("response") for a in answers] == ["opened", "state", "ack"], answers
    opened, state, ack = answers[0].opened, answers[1].state, answers[2].ack
    assert opened.next_sequence == 1 and opened.incarnation != 0, opened
    assert opened.max_batch_events > 0 and opened.window_batches > 0, opened
    assert state.id == 41 and [c.path for c in state.cgroups] == ["/"], state
    stat = dict(zip(state.stat_names, state.cgroups[0].stat))
    assert stat["anon"] == 8192 and stat["pgfault"] == 2, stat
    assert ack.applied_through == 1 and ack.durable_through == 0, ack
    return opened.incarnation


def check_memory_stat(client):
    cgroup = client.pb["cgroup"]
    request = cgroup.ReadCgroupRequest(node="py", path="/")
    reading = client.unary("/memcgd.v1.CgroupService/ReadCgroup", request, cgroup.ReadCgroupResponse, "py")
    stat = {item.name: item.value for item in reading.stat}
    assert stat["anon"] == 8192 and stat["pgfault"] == 2, stat
    assert not reading.HasField("current_bytes"), "the root has no memory.current"


def check_resume(client, incarnation):
    """A repeated batch is acknowledged with its State and not applied again."""
    requests = [client.open_request("py", "s", incarnation), client.batch_request(1), client.batch_request(2)]
    answers = list(client.stream("py", iter(requests)))
    assert answers[0].opened.next_sequence == 2, answers[0]
    states = [a.state for a in answers if a.HasField("state")]
    assert [s.id for s in states] == [41, 42], states
    anon = [dict(zip(s.stat_names, s.cgroups[0].stat))["anon"] for s in states]
    assert anon == [8192, 16384], anon
    assert answers[-1].ack.applied_through == 2, answers[-1]


def expect_error(responses, code, text):
    try:
        list(responses)
    except grpc.RpcError as error:
        assert error.code() == code and text in error.details(), error
        return
    raise AssertionError(f"no error {code}")


def check_refusals(client):
    bad = client.batch_request(3)
    bad.batch.words[2] |= 63  # no kind
    expect_error(client.stream("py", iter([client.open_request("py", "s"), bad])),
                 grpc.StatusCode.INVALID_ARGUMENT, "event 1: ")
    expect_error(client.stream("py", iter([client.open_request("py", "s"), client.batch_request(4)])),
                 grpc.StatusCode.FAILED_PRECONDITION, "expected batch 3, got 4")
    expect_error(client.stream("other", iter([client.open_request("py", "s")])),
                 grpc.StatusCode.INVALID_ARGUMENT, '"other"')


def check_metrics(address):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    assert 'memcgd_events_total{kind="fault"} 4' in text, text
    assert 'memcgd_batches_total{result="repeated"} 1' in text, text


def check_drain(client, process):
    """SIGTERM while a stream is open: GoAway, the rest acknowledged, exit code 0."""
    told = []

    def requests():
        yield client.open_request("py", "s")
        yield client.batch_request(3)
        deadline = time.monotonic() + TIMEOUT_S
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)

    acked = 0
    for answer in client.stream("py", requests()):
        if answer.HasField("ack"):
            acked = answer.ack.applied_through
            process.send_signal(signal.SIGTERM)
        if answer.HasField("go_away"):
            told.append(answer.go_away.reason)
    assert told and acked == 3, (told, acked)
    assert process.wait(TIMEOUT_S) == 0, process.returncode


def main():
    binary = sys.argv[1]
    protos = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parents[2] / "proto")
    signal.alarm(4 * TIMEOUT_S)  # whatever happens, not for ever
    os.environ.update(no_proxy="*", NO_PROXY="*")
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "stubs").mkdir()
        pb = compile_protos(protos.resolve(), directory / "stubs")
        process, address, metrics_address = start_server(binary, directory)
        try:
            client = Client(address, pb)
            check_health(client, "SERVING")
            check_reflection(client)
            node = pb["node"]
            spec = node.NodeSpec(cpus=2, memory_bytes=1 << 30)
            made = client.unary("/memcgd.v1.NodeService/CreateNode", node.CreateNodeRequest(name="py", spec=spec),
                                node.CreateNodeResponse, "py").node
            assert made.spec.cpus == 2 and made.spec.page_size == 4096, made
            incarnation = check_stream(client)
            assert incarnation == made.incarnation
            check_memory_stat(client)
            check_resume(client, incarnation)
            check_refusals(client)
            check_metrics(metrics_address)
            check_drain(client, process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    print("foreign client: ok")


if __name__ == "__main__":
    main()
