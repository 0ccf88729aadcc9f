"""Frames of HTTP/2 by hand, for clients that no library would be: nothing here reads more than it is told to."""
import socket
import struct

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(1, 7)


def frame(kind, flags=0, stream=0, payload=b''):
    return struct.pack('>I', len(payload))[1:] + bytes((kind, flags)) + struct.pack('>I', stream) + payload


def settings(*pairs):
    return frame(SETTINGS, payload=b''.join(struct.pack('>HI', key, value) for key, value in pairs))


def _integer(value, prefix_bits):
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes((value,))
    out = [most]
    value -= most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + [value])


def header(name, value):
    """A literal that is not indexed, without Huffman."""
    return b'\x00' + _integer(len(name), 7) + name.encode() + _integer(len(value), 7) + value.encode()


def call_headers(path, extra=()):
    fields = [(':method', 'POST'), (':scheme', 'http'), (':path', path), (':authority', 'test'), ('te', 'trailers'),
              ('content-type', 'application/grpc'), *extra]
    return b''.join(header(name, value) for name, value in fields)


def message(payload):
    """A gRPC message as it stands in DATA."""
    return b'\x00' + struct.pack('>I', len(payload)) + payload


def call(stream, path, payload, extra=(), end=True):
    return (frame(HEADERS, END_HEADERS, stream, call_headers(path, extra)) +
            frame(DATA, END_STREAM if end else 0, stream, message(payload)))


def connect(address, timeout=10):
    """From another address than good clients have."""
    host, port = address.rsplit(':', 1)
    return socket.create_connection((host, int(port)), timeout=timeout, source_address=('127.0.0.2', 0))
