#!/usr/bin/python3
"""What goes into the image, started as it will be: no shell, not root, nothing writable but its data.  And, where buildah can and
MEMCGD_TEST_IMAGE=1 asks for it (it compiles everything), deploy/Containerfile itself.  And the units of deploy/systemd.

usage: image_test.py BINARY_DIRECTORY SOURCE_DIRECTORY [unittest arguments]
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = None  # set by main
BINARIES = None
LIMIT_S = 60
LIMIT_BYTES = 120 << 20


def run(*command, limit_s=LIMIT_S, **more):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, **more)


class Image(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='memcgd-image-')
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def check_root(self, root):
        files = [path for path in pathlib.Path(root).rglob('*') if path.is_file()]
        self.assertLess(sum(path.stat().st_size for path in files), LIMIT_BYTES)
        programs = {path.name for path in files if '/bin/' in str(path)}
        self.assertEqual(programs, {'memcgd', 'memcgctl'})
        command = ['chroot', '--userspec=65532:65532', root, '/usr/bin/memcgd']
        self.assertRegex(run(*command, '--version').stdout, r'\Amemcgd \d')
        ports = pathlib.Path(root, 'tmp/ports')
        begin = time.monotonic()
        server = subprocess.Popen([*command, '--listen', '127.0.0.1:0', '--metrics-listen', 'off', '--data-dir',
                                   '/var/lib/memcgd', '--port-file', '/tmp/ports'], stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        try:
            while not ports.exists() and server.poll() is None and time.monotonic() < begin + LIMIT_S:
                time.sleep(0.002)
            self.assertIsNone(server.poll())
            print(f'ready after {1000 * (time.monotonic() - begin):.0f} ms')
            status = pathlib.Path(f'/proc/{server.pid}/status').read_text()
            self.assertRegex(status, r'(?m)^Uid:\t65532\t65532\t65532\t65532$')
            resident_kib = int(re.search(r'^VmRSS:\s+(\d+) kB$', status, re.M).group(1))
            print(f'idle: {resident_kib} KiB resident')
            self.assertLess(resident_kib, 30 << 10)
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(LIMIT_S), 0)
        finally:
            if server.poll() is None:
                server.kill()
            server.communicate()
        self.assertTrue(pathlib.Path(root, 'var/lib/memcgd/clean').exists())

    @unittest.skipUnless(os.geteuid() == 0, 'chroot takes root')
    def test_what_is_collected_runs(self):
        root = os.path.join(self.directory, 'root')
        done = run(str(SOURCE / 'deploy/collect.sh'), root, os.path.join(BINARIES, 'memcgd'), os.path.join(BINARIES, 'memcgctl'))
        self.assertEqual(done.returncode, 0, done.stderr)
        os.chmod(self.directory, 0o755)
        self.check_root(root)

    @unittest.skipUnless(os.environ.get('MEMCGD_TEST_IMAGE') == '1', 'compiles everything anew: MEMCGD_TEST_IMAGE=1 asks for it')
    @unittest.skipUnless(shutil.which('buildah') and shutil.which('mmdebstrap'), 'buildah or mmdebstrap is not here')
    def test_the_image(self):
        os.chmod(self.directory, 0o755)
        buildah = ['buildah', '--storage-driver', 'vfs', '--root', os.path.join(self.directory, 'storage'), '--runroot',
                   os.path.join(self.directory, 'run')]
        base = os.path.join(self.directory, 'base.tar')
        done = run('mmdebstrap', '--variant=minbase', '--include=ca-certificates', 'bookworm', base, limit_s=600)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        scratch = run(*buildah, 'from', 'scratch')
        self.assertEqual(scratch.returncode, 0, scratch.stderr)
        self.assertEqual(run(*buildah, 'add', scratch.stdout.strip(), base, '/', limit_s=300).returncode, 0)
        self.assertEqual(run(*buildah, 'commit', scratch.stdout.strip(), 'localhost/base', limit_s=300).returncode, 0)
        done = run(*buildah, 'bud', '--isolation', 'chroot', '--build-arg', 'BASE=localhost/base', '-f',
                   str(SOURCE / 'deploy/Containerfile'), '-t', 'memcgd', str(SOURCE), limit_s=7200)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        container = run(*buildah, 'from', 'memcgd').stdout.strip()
        self.check_root(run(*buildah, 'mount', container).stdout.strip())


@unittest.skipUnless(shutil.which('systemd-analyze'), 'systemd-analyze is not here (packages.txt: systemd, for CI)')
class Units(unittest.TestCase):
    def unit(self, name, directory, **changes):
        text = (SOURCE / 'deploy/systemd' / name).read_text().replace('/usr/bin/memcg', f'{BINARIES}/memcg')
        for old, new in changes.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = os.path.join(directory, name)
        pathlib.Path(path).write_text(text)
        return path

    def test_they_are_right_and_a_fault_is_found(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in ('memcgd.service', 'memcgd-recorder.service'):
                done = run('systemd-analyze', 'verify', '--man=no', self.unit(name, directory))
                self.assertEqual((done.returncode, done.stderr), (0, ''))
            done = run('systemd-analyze', 'verify', '--man=no', self.unit('memcgd.service', directory, NoNewPrivileges='NoNew'))
            self.assertIn('NoNew', done.stderr)

    def test_flags_are_the_programs(self):
        for name in ('memcgd.service', 'memcgd-recorder.service'):
            start = re.search(r'^ExecStart=(.*)$', (SOURCE / 'deploy/systemd' / name).read_text(), re.M).group(1).split()
            program = os.path.join(BINARIES, os.path.basename(start[0]))
            shown = run(program, '--help').stdout
            if start[1] == 'record':
                if not re.search(r'^  record\b', shown, re.M):
                    continue  # this memcgctl does not record
                shown += run(program, 'record', '--help').stdout
            for flag in start[1:]:
                if flag.startswith('--'):
                    self.assertRegex(shown, rf'{flag}(?![\w-])')

    def test_the_server_is_locked_in(self):
        with tempfile.TemporaryDirectory() as directory:
            done = run('systemd-analyze', 'security', '--offline=true', '--threshold=20',
                       self.unit('memcgd.service', directory))
            self.assertEqual(done.returncode, 0, done.stdout[-400:])


if __name__ == '__main__':
    BINARIES = os.path.abspath(sys.argv.pop(1))
    SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
