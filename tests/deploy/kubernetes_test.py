#!/usr/bin/python3
"""The manifests of deploy/kubernetes: built by kustomize, checked against the types of Kubernetes and of the Prometheus operator,
and every flag, port and path in them held against the binaries.

usage: kubernetes_test.py BINARY_DIRECTORY SOURCE_DIRECTORY [unittest arguments]
"""
import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

SOURCE = None  # set by main
BINARIES = None
LIMIT_S = 120
KINDS = {  # of kubernetes-types
    'apps/v1': ('StatefulSet', 'Deployment', 'DaemonSet'),
    'core/v1': ('Namespace', 'ServiceAccount', 'Service', 'ConfigMap'),
    'policy/v1': ('PodDisruptionBudget',),
    'networking/v1': ('NetworkPolicy',),
    'autoscaling/v2': ('HorizontalPodAutoscaler',),
}
FOLDERS = ('base', 'overlays/single', 'overlays/sharded', 'recorder')


def run(*command, **more):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, **more)


def help_flags(*command):
    shown = run(os.path.join(BINARIES, command[0]), *command[1:], '--help').stdout
    return set(re.findall(r'(?<![\w-])--[a-z][a-z0-9-]*', shown))


def typescript_of(manifest):
    """A module that compiles where the manifest is right: literals may have no key that the type does not have."""
    kind, group = manifest['kind'], manifest['apiVersion']
    if group == 'monitoring.coreos.com/v1':
        head = f"import type {{I{kind} as T}} from '@kubernetes-models/prometheus-operator/{group}/{kind}';\n"
    else:
        module = next(module for module, kinds in KINDS.items() if kind in kinds)
        head = f"import type {{{kind} as T}} from 'kubernetes-types/{module}';\n"
    return f'{head}export const manifest: T = {json.dumps(manifest, indent=1)};\n'


@unittest.skipUnless(shutil.which('kubectl'), 'kubectl is not here: no Debian package has one whose kustomize is of this decade')
class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.built = {}
        for folder in FOLDERS:
            done = run('kubectl', 'kustomize', str(SOURCE / 'deploy/kubernetes' / folder))
            assert done.returncode == 0, done.stderr
            cls.built[folder] = list(yaml.safe_load_all(done.stdout))

    def one(self, folder, kind, name=None):
        found = [m for m in self.built[folder] if m['kind'] == kind and name in (None, m['metadata']['name'])]
        self.assertEqual(len(found), 1, f'{folder}: {kind} {name}')
        return found[0]

    def config(self, folder, prefix, key):
        found = [m for m in self.built[folder] if m['kind'] == 'ConfigMap' and m['metadata']['name'].startswith(prefix)]
        return next(m['data'][key] for m in found)

    def container(self, folder, kind):
        return self.one(folder, kind)['spec']['template']['spec']['containers'][0]

    # --- types

    @unittest.skipUnless(shutil.which('npm'), 'npm is not here (packages.txt: npm, for CI)')
    def test_types_and_that_they_catch_faults(self):
        def fault(folder, kind, change):
            manifest = copy.deepcopy(self.one(folder, kind))
            change(manifest)
            return manifest

        def pod(manifest):
            return manifest['spec']['template']['spec']

        faults = {
            'misspelt_probe': fault('base', 'StatefulSet', lambda m: pod(m)['containers'][0].update(readinesProbe={})),
            'deep_key': fault('base', 'StatefulSet',
                              lambda m: pod(m)['containers'][0]['securityContext'].update(readonlyRootFilesystem=True)),
            'text_for_number': fault('base', 'StatefulSet', lambda m: m['spec'].update(replicas='3')),
            'missing_key': fault('base', 'StatefulSet', lambda m: m['spec'].pop('selector')),
            'old_version': fault('base', 'PodDisruptionBudget', lambda m: m.update(apiVersion='policy/v1beta1')),
            'old_autoscaler': fault('base', 'HorizontalPodAutoscaler', lambda m: m['spec'].update(targetCPU=80)),
            'policy': fault('base', 'NetworkPolicy', lambda m: m['spec']['ingress'][0].update(form=[])),
            'monitor': fault('base', 'PodMonitor', lambda m: m['spec']['podMetricsEndpoints'][0].update(intervall='15s')),
            'deployment': fault('overlays/sharded', 'Deployment', lambda m: m['spec'].update(strategi={})),
            'daemon_set': fault('recorder', 'DaemonSet', lambda m: pod(m).update(hostPid=True)),
        }
        good = {f'{folder.replace("/", "_")}_{i}': manifest for folder, manifests in self.built.items()
                for i, manifest in enumerate(manifests)}
        with tempfile.TemporaryDirectory() as directory:
            for name in ('package.json', 'package-lock.json'):
                shutil.copy(SOURCE / 'tests/deploy' / name, directory)
            done = run('npm', 'ci', '--no-audit', '--no-fund', '--ignore-scripts', cwd=directory)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name, manifest in {**good, **{f'fault_{name}': m for name, m in faults.items()}}.items():
                pathlib.Path(directory, f'{name}.ts').write_text(typescript_of(manifest))
            done = run('node_modules/.bin/tsc', '--noEmit', '--strict', '--module', 'esnext', '--moduleResolution', 'bundler',
                       '--skipLibCheck', *sorted(name for name in os.listdir(directory) if name.endswith('.ts')),
                       cwd=directory)
        wrong = set(re.findall(r'^(\w+)\.ts\(', done.stdout, re.M))
        self.assertEqual({name for name in wrong if not name.startswith('fault_')}, set(), done.stdout)
        self.assertEqual(wrong, {f'fault_{name}' for name in faults}, 'a planted fault was not caught')

    # --- against the binaries

    def settings(self):
        return yaml.safe_load(self.config('base', 'memcgd', 'memcgd.yaml'))

    def port(self, setting):
        return int(self.settings()[setting].rsplit(':', 1)[1])

    def test_flags_and_settings_are_memcgds(self):
        flags = help_flags('memcgd')
        args = self.container('base', 'StatefulSet')['args']
        self.assertEqual([arg for arg in args if arg.startswith('-') and arg not in flags], [])
        self.assertEqual([key for key in self.settings() if f'--{key}' not in flags], [])
        # And as a whole, without the files that are not here.
        settings = {key: value for key, value in self.settings().items() if not key.startswith(('tls-', 'token-'))}
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            yaml.safe_dump({**settings, 'insecure': True}, file)
            done = run(os.path.join(BINARIES, 'memcgd'), '--config', file.name, '--check-config')
            self.assertEqual((done.returncode, done.stdout), (0, 'configuration ok\n'), done.stderr)

    def test_ports(self):
        container = self.container('base', 'StatefulSet')
        ports = {port['name']: port['containerPort'] for port in container['ports']}
        self.assertEqual(ports, {'grpc': self.port('listen'), 'health': self.port('health-listen'),
                                 'metrics': self.port('metrics-listen')})
        for probe in ('startupProbe', 'readinessProbe', 'livenessProbe'):
            self.assertEqual(container[probe]['grpc']['port'], ports['health'], probe)
        for folder in FOLDERS[:3]:
            for service in (m for m in self.built[folder] if m['kind'] == 'Service'):
                for port in service['spec']['ports']:
                    self.assertEqual(ports[port['targetPort']], port['port'], service['metadata']['name'])
            for policy in (m for m in self.built[folder] if m['kind'] == 'NetworkPolicy'):
                for rule in policy['spec']['ingress'] + policy['spec']['egress']:
                    for port in rule['ports']:
                        self.assertTrue(port['port'] in ports or port['port'] == 53, policy)
        endpoint = self.one('base', 'PodMonitor')['spec']['podMetricsEndpoints'][0]
        self.assertIn(endpoint['port'], ports)
        self.assertIn(f'`GET {endpoint["path"]}`', (SOURCE / 'docs/metrics.md').read_text())

    def check_mounts(self, folder, kind, paths):
        """Each path is below a mount, and each mount has its volume."""
        container, spec = self.container(folder, kind), self.one(folder, kind)['spec']
        volumes = {volume['name'] for volume in spec['template']['spec'].get('volumes', [])}
        volumes |= {claim['metadata']['name'] for claim in spec.get('volumeClaimTemplates', [])}
        mounts = {mount['mountPath']: mount['name'] for mount in container['volumeMounts']}
        self.assertEqual(set(mounts.values()), volumes)
        for path in paths:
            self.assertTrue(any(f'{path}/'.startswith(f'{mount}/') for mount in mounts), path)

    def test_paths(self):
        settings = self.settings()
        args = self.container('base', 'StatefulSet')['args']
        self.check_mounts('base', 'StatefulSet', [args[args.index('--config') + 1], *(
            settings[key] for key in ('data-dir', 'tls-cert', 'tls-key', 'token-file'))])
        text = self.config('overlays/sharded', 'haproxy', 'haproxy.cfg')
        self.check_mounts('overlays/sharded', 'Deployment', ['/etc/haproxy/config/haproxy.cfg',
                                                             *re.findall(r'(?:crt|ca-file) (\S+)', text)])
        args = self.container('recorder', 'DaemonSet')['args']
        self.check_mounts('recorder', 'DaemonSet', [args[args.index(flag) + 1] for flag in ('--tls-ca', '--token-file')])

    def test_haproxy_knows_the_servers(self):
        text = self.config('overlays/sharded', 'haproxy', 'haproxy.cfg')
        servers = self.one('overlays/sharded', 'StatefulSet')
        service = servers['spec']['serviceName']
        self.one('overlays/sharded', 'Service', service)
        wanted = [(f'memcgd-{i}', f'memcgd-{i}.{service}:{self.port("listen")}')
                  for i in range(servers['spec']['replicas'])]
        self.assertEqual(re.findall(r'^    server (\S+) (\S+) id \d+$', text, re.M), wanted)
        self.assertIn(f'tcp-check connect port {self.port("health-listen")}\n', text)
        ports = {port['name']: port['containerPort'] for port in self.container('overlays/sharded', 'Deployment')['ports']}
        self.assertEqual({int(port) for port in re.findall(r'^    bind :(\d+)', text, re.M)}, set(ports.values()))
        probe = self.container('overlays/sharded', 'Deployment')['readinessProbe']['httpGet']
        self.assertIn(f'monitor-uri {probe["path"]}\n', text)

    @unittest.skipUnless(shutil.which('haproxy', path='/usr/sbin:/usr/bin') and shutil.which('openssl'),
                         'haproxy or openssl is not here (packages.txt, for CI)')
    def test_haproxy_takes_its_configuration_as_it_is(self):
        text = self.config('overlays/sharded', 'haproxy', 'haproxy.cfg')
        with tempfile.TemporaryDirectory() as directory:
            key, cert = os.path.join(directory, 'key'), os.path.join(directory, 'ca.crt')
            done = run('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj',
                       '/CN=test', '-keyout', key, '-out', cert)
            self.assertEqual(done.returncode, 0, done.stderr)
            pathlib.Path(directory, 'tls.pem').write_text(pathlib.Path(cert).read_text() + pathlib.Path(key).read_text())
            config = pathlib.Path(directory, 'haproxy.cfg')
            config.write_text(text.replace('/etc/haproxy/tls', directory))
            done = run(shutil.which('haproxy', path='/usr/sbin:/usr/bin'), '-c', '-f', str(config))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn('[WARNING]', done.stderr)
            config.write_text(text.replace('/etc/haproxy/tls', directory).replace('hash-type consistent', 'hash-type no'))
            self.assertNotEqual(run(shutil.which('haproxy', path='/usr/sbin:/usr/bin'), '-c', '-f', str(config)).returncode, 0)

    def test_the_autoscaler_is_only_in_the_base_and_its_metric_is_memcgds(self):
        scaler = self.one('base', 'HorizontalPodAutoscaler')['spec']
        self.assertEqual(scaler['scaleTargetRef']['name'], self.one('base', 'StatefulSet')['metadata']['name'])
        metric = scaler['metrics'][0]['pods']['metric']['name']
        self.assertRegex((SOURCE / 'docs/metrics.md').read_text(), rf'(?m)^\| `{metric}` \| gauge \|')
        for folder in ('overlays/single', 'overlays/sharded'):
            self.assertNotIn('HorizontalPodAutoscaler', [m['kind'] for m in self.built[folder]])

    def test_every_pod_but_the_recorder_is_restricted(self):
        for folder, kind in (('base', 'StatefulSet'), ('overlays/sharded', 'Deployment')):
            pod, container = self.one(folder, kind)['spec']['template']['spec'], self.container(folder, kind)
            self.assertTrue(pod['securityContext']['runAsNonRoot'])
            self.assertEqual(pod['securityContext']['seccompProfile'], {'type': 'RuntimeDefault'})
            self.assertEqual(container['securityContext'], {'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
                                                            'capabilities': {'drop': ['ALL']}})

    def test_the_recorders_flags_are_memcgctls(self):
        if not re.search(r'^  record\b', run(os.path.join(BINARIES, 'memcgctl'), '--help').stdout, re.M):
            self.skipTest('this memcgctl does not record')
        flags = help_flags('memcgctl') | help_flags('memcgctl', 'record')
        args = self.container('recorder', 'DaemonSet')['args']
        self.assertEqual(args[0], 'record')
        self.assertEqual([arg for arg in args if arg.startswith('-') and arg not in flags], [])
        server = args[args.index('--server') + 1].split('.')[:2]
        self.assertEqual(server, ['memcgd', self.one('base', 'Namespace')['metadata']['name']])


if __name__ == '__main__':
    BINARIES = os.path.abspath(sys.argv.pop(1))
    SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
