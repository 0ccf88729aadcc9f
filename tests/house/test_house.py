#!/usr/bin/python3
"""The rules of the house that no compiler checks.  usage: test_house.py SOURCE_DIRECTORY BUILD_DIRECTORY"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = None  # set by main
BUILD = None

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)


def files_of(folder):
    return sorted(path for path in (SOURCE / folder).iterdir() if path.suffix in ('.h', '.cc'))


def includes_of(path):
    """What it includes: quoted names and names in angle brackets."""
    found = INCLUDE.findall(path.read_text())
    return [quoted for quoted, _ in found if quoted], [angled for _, angled in found if angled]


def text_of(*parts):
    return SOURCE.joinpath(*parts).read_text()


def tracked_files():
    listed = subprocess.run(['git', '-c', f'safe.directory={SOURCE}', 'ls-files', '-z'], cwd=SOURCE, check=True,
                            timeout=60, stdout=subprocess.PIPE, text=True).stdout
    return [SOURCE / name for name in listed.split('\0') if name and (SOURCE / name).is_file()]


class Dependencies(unittest.TestCase):
    """They point one way: core → Abseil, std; server → core, proto; client → proto."""

    def check_no_include(self, folder, *forbidden):
        for path in files_of(folder):
            for name in sum(includes_of(path), []):
                self.assertFalse(name.startswith(forbidden), f'{folder}/{path.name} includes {name}')

    def test_core_knows_itself_abseil_and_std_only(self):
        system = {'folio.cc': ['sys/mman.h']}  # the arena's memory
        for path in files_of('core'):
            quoted, angled = includes_of(path)
            for name in quoted:
                self.assertTrue(name.startswith(('core/', 'absl/')), f'core/{path.name} includes {name}')
            for name in angled:
                self.assertTrue('.' not in name or name in system.get(path.name, ()),
                                f'core/{path.name} includes {name}')

    def test_core_has_no_clock_no_io_and_no_threads_of_its_own(self):
        for path in files_of('core'):
            for name in includes_of(path)[1]:
                self.assertNotIn(name, ('chrono', 'ctime', 'condition_variable', 'filesystem', 'fstream', 'future',
                                        'iostream'), f'core/{path.name}')
            self.assertNotRegex(path.read_text(), r'std::j?thread\b|std::random_device', f'core/{path.name}')

    def test_client_knows_neither_core_nor_server(self):
        self.check_no_include('client', 'core/', 'server/')
        self.check_no_include('client/loadgen', 'core/', 'server/')
        self.check_no_include('client/record', 'core/', 'server/')

    def test_server_does_not_know_client(self):
        self.check_no_include('server', 'client/')

    def test_targets_say_the_same(self):
        self.assertNotRegex(text_of('client', 'CMakeLists.txt'), r'memcgd_(core|server)')
        self.assertNotRegex(text_of('server', 'CMakeLists.txt'), r'memcgd_client')
        self.assertNotRegex(text_of('core', 'CMakeLists.txt'), r'memcgd_(proto|server|client)|gRPC|protobuf')

    def test_one_file_pair_of_the_server_knows_both_wire_and_core_types(self):
        # Locks and the rule of paths are no types of the model.
        common = {'core/mutex.h', 'core/cgroup_path.h'}
        both = set()
        for stem in {path.stem for path in files_of('server')}:
            included = set()
            for path in files_of('server'):
                if path.stem == stem:
                    included.update(includes_of(path)[0])
            knows_core = any(name.startswith('core/') for name in included - common)
            if knows_core and any(name.startswith('memcgd/v1/') for name in included):
                both.add(stem)
        self.assertEqual(both, {'wire'})

    def test_one_file_knows_prometheus(self):
        knows = {path.relative_to(SOURCE).as_posix() for folder in ('core', 'server', 'client')
                 for path in files_of(folder) if any(name.startswith('prometheus/') for name in sum(includes_of(path), []))}
        self.assertEqual(knows, {'server/metrics_exposer.cc'})


class ReadingOrder(unittest.TestCase):
    """docs/design.md lists the files of core/; a file includes only files above it."""

    def listed(self):
        section = re.search(r'^## core/, in reading order$(.*?)^## ', text_of('docs', 'design.md'), re.M | re.S).group(1)
        rows = re.findall(r'^\| ([^|]+) \|', section, re.M)[1:]  # below the heading
        place = {}
        for at, row in enumerate(row for row in rows if not row.startswith('---')):
            for name in row.replace('`', '').split(', '):
                for file in [name] if '.' in name else [f'{name}.h', f'{name}.cc']:
                    self.assertNotIn(file, place, 'listed twice')
                    place[file] = at
        return place

    def test_every_file_is_listed(self):
        place = self.listed()
        self.assertEqual([path.name for path in files_of('core') if path.name not in place], [])
        stems = {path.stem for path in files_of('core')}
        self.assertEqual([name for name in place if name.split('.')[0] not in stems], [])

    def test_a_file_includes_only_files_above_it(self):
        place = self.listed()
        for path in files_of('core'):
            for name in includes_of(path)[0]:
                if not name.startswith('core/'):
                    continue
                included = name.removeprefix('core/')
                own_header = included == f'{path.stem}.h'
                self.assertTrue(own_header or place[included] < place[path.name],
                                f'core/{path.name} includes {included}, which stands below it')


class Documents(unittest.TestCase):
    def test_the_kernel_map_names_every_header_of_core(self):
        text = text_of('docs', 'kernel-map.md')
        headers = [path.name for path in files_of('core') if path.suffix == '.h']
        self.assertEqual([name for name in headers if f'`{name}`' not in text], [])
        self.assertEqual(sorted(set(re.findall(r'^\| `(\w+\.h)`', text, re.M)) - set(headers)), [], 'no such header')

    def test_links_lead_somewhere(self):
        for path in tracked_files():
            if path.suffix != '.md':
                continue
            for target in re.findall(r'\]\(([^)#\s]+)(?:#[^)]*)?\)', path.read_text()):
                if '://' not in target:
                    self.assertTrue((path.parent / target).exists(), f'{path.relative_to(SOURCE)} links to {target}')

    def test_readme_begins_with_two_commands_that_exist(self):
        block = re.search(r'^```\w*\n(.*?)^```$', text_of('README.md'), re.M | re.S).group(1)
        commands = [line for line in block.splitlines() if line.strip()]
        self.assertEqual(len(commands), 2, commands)
        for command in commands:
            self.assertTrue(os.access(SOURCE / command.split()[0], os.X_OK), command)
        self.assertIn(commands[1], text_of('.ci', 'run'), 'CI runs the command that the README gives')


class Packages(unittest.TestCase):
    def test_the_list_is_sorted_and_names_each_once(self):
        lines = [line.split() for line in text_of('packages.txt').splitlines() if line and not line.startswith('#')]
        names = [line[0] for line in lines]
        self.assertEqual(names, sorted(set(names)))
        self.assertEqual([line for line in lines if line[1:] not in ([], ['ci'])], [])


class TrackedFiles(unittest.TestCase):
    def test_no_path_of_a_machine_and_no_package_host(self):
        # In pieces, as this file is tracked as well.
        wrong = re.compile('|'.join(('/wo' + r'rk/\w', r'(?<![\w$}"\'])/tm' + r'p/\w', '/ro' + r'ot/\w',
                                     r'deb\.deb' + r'ian\.org', r'npm' + r'js\.(org|com)', 'nodesource' + r'\.com',
                                     'artifact' + 'ory', r'pypi\.' + 'org')).encode())
        for path in tracked_files():
            if path.suffix in ('.zst', '.gz', '.bin') or 'testdata' in path.parts or 'traces' in path.parts:
                continue  # recorded on some machine
            found = wrong.search(path.read_bytes())
            self.assertIsNone(found, f'{path.relative_to(SOURCE)}: {found and found.group()}')


class Flags(unittest.TestCase):
    """Whatever --help shows, the documents explain."""

    def help_of(self, *command):
        run = subprocess.run([str(BUILD / 'bin' / command[0]), *command[1:], '--help'], check=True, timeout=60,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        return run.stdout

    def check(self, document, *command):
        text = text_of('docs', document)
        shown = self.help_of(*command)
        options = shown.split('\nOptions:\n', 1)[1].split('\n\n', 1)[0]
        self.assertIn('--help', options)
        for line in options.splitlines():
            names = line.split('  ')[1] if line.startswith('  -') else ''
            for flag in re.findall(r'(?<![\w-])--[a-z][a-z0-9-]*', names):
                explained = flag in ('--help', '--version') or re.search(rf'{flag}(?![\w-])', text)
                self.assertTrue(explained, f'{" ".join(command)} {flag} is not in docs/{document}')
            for variable in re.findall(r'\(Env:(\w+)\)', line):
                self.assertTrue(f'`{variable}`' in text, f'{variable} is not in docs/{document}')
        if '\nSubcommands:\n' in shown:
            listed = shown.split('\nSubcommands:\n', 1)[1].split('\n\n', 1)[0]
            for name in re.findall(r'^  (\S+)', listed, re.M):
                self.assertTrue(re.search(rf'\b{name}\b', text), f'{" ".join(command)} {name} is not in docs/{document}')
                self.check(document, *command, name)

    def test_memcgd(self):
        self.check('memcgd.md', 'memcgd')

    def test_memcgctl(self):
        self.check('memcgctl.md', 'memcgctl')

    def test_memcg_loadgen(self):
        self.check('loadgen.md', 'memcg-loadgen')


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
