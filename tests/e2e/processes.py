"""Real memcgd and memcgctl processes for the end-to-end tests: each bounded in time, each ended by its own pid."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

LIMIT_S = 60  # for anything at all; a machine under load is slow
BINARIES = None  # set by the test's main


def wait_for(condition, what, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f'waited {limit_s} s in vain for {what}')


def _default_signals():
    # A shell's background job ignores SIGINT, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _environment(extra=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(('MEMCGCTL_', 'MEMCGD_'))}
    environment.update(extra or {})
    return environment


class Memcgd:
    """A server on a port that the kernel chose, or on the address given.

    Without metrics unless they are asked for: their HTTP server takes up to two seconds to stop.
    """

    def __init__(self, directory, listen='127.0.0.1:0', metrics='off', flags=(), environment=None):
        self.port_file = os.path.join(directory, f'port-{time.monotonic_ns()}')
        self.log = open(os.path.join(directory, f'memcgd-{time.monotonic_ns()}.log'), 'w+')
        self.process = subprocess.Popen(
            [os.path.join(BINARIES, 'memcgd'), '--listen', listen, '--metrics-listen', metrics,
             '--port-file', self.port_file, *flags],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=_environment(environment),
            preexec_fn=_default_signals)
        self.bound = wait_for(self._bound, 'memcgd to listen')
        self.address = self.bound['listen']

    def _bound(self):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise AssertionError(f'memcgd ended with {self.process.returncode}: {self.log.read()}')
        if not os.path.exists(self.port_file):
            return None
        with open(self.port_file) as lines:
            return dict(line.rstrip('\n').split('=', 1) for line in lines)

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        return self.process.returncode


class Memcgctl:
    """A memcgctl that runs beside the test."""

    def __init__(self, *arguments, server=None, environment=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE):
        command = [os.path.join(BINARIES, 'memcgctl'), *arguments]
        if server is not None:
            command += ['--server', server]
        self.process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
                                        env=_environment(environment), preexec_fn=_default_signals)

    def finish(self, data=None, limit_s=LIMIT_S):
        """Its exit code, standard output and standard error."""
        try:
            out, err = self.process.communicate(data, timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f'memcgctl did not end within {limit_s} s; it said: {err.decode()}')
        return self.process.returncode, (out or b'').decode(), err.decode()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        self.process.wait()


class CuttingProxy:
    """Passes TCP on, and cuts the first connection after so many bytes towards the server."""

    def __init__(self, server, cut_after_bytes):
        host, port = server.rsplit(':', 1)
        self.server = (host, int(port))
        self.cut_after_bytes = cut_after_bytes
        self.cuts = 0
        self.connections = 0
        self.sockets = []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()
        for one in self.sockets:
            one.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(self.server)
            self.sockets += [client, server]
            for source, sink, upward in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, upward), daemon=True).start()

    def _pass_on(self, source, sink, upward):
        passed = 0
        try:
            while data := source.recv(16384):
                sink.sendall(data)
                passed += len(data)
                if upward and self.cuts == 0 and passed >= self.cut_after_bytes:
                    self.cuts += 1
                    break
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Directory:
    """A temporary directory that is removed whatever happens."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix='memcgctl-e2e-')

    def file(self, name, content):
        path = os.path.join(self.path, name)
        with open(path, 'wb') as out:
            out.write(content if isinstance(content, bytes) else content.encode())
        return path

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


def line(microseconds, event, pid=100, comm='job', cpu=0):
    return (f'{comm:>16}-{pid:<7} ({pid:>7}) [{cpu:03d}] .....  {microseconds // 1000000}.'
            f'{microseconds % 1000000:06d}: {event}\n')


def trace(pages, cgroup='/job', start_us=1000000, pid=100):
    """A process in a cgroup of its own that touches so many anonymous pages, one every 10 µs."""
    text = ['# tracer: nop\n', '#\n', '# entries-in-buffer/entries-written: 1/1   #P:2\n']
    text.append(line(start_us, f'cgroup_mkdir: root=4 id=7 level=1 path={cgroup}', pid))
    text.append(line(start_us + 1, f'cgroup_attach_task: dst_root=4 dst_id=7 dst_level=1 dst_path={cgroup} '
                                   f'pid={pid} comm=job', pid))
    length = pages * 4096
    text.append(line(start_us + 2, f'sys_mmap(addr: 0, len: 0x{length:x}, prot: 3, flags: 0x22, '
                                   'fd: 0xffffffffffffffff, off: 0)', pid))
    text.append(line(start_us + 3, 'sys_mmap -> 0x7f0000000000', pid))
    for page in range(pages):
        text.append(line(start_us + 10 * (page + 1),
                         f'page_fault_user: address=0x{0x7f0000000000 + 4096 * page:x} ip=0x401000 error_code=0x6',
                         pid, cpu=page % 2))
    return ''.join(text)
