#!/usr/bin/env node
// A client of memcgd in Node.js: streams the page faults of a job, then prints its memory.stat.
//
//   npm ci && node client.js 127.0.0.1:7077
'use strict';
const fs = require('fs');
const path = require('path');
const {setTimeout: sleep} = require('timers/promises');
const {promisify} = require('util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [NODE, STREAM, TID, BATCHES, FAULTS] = ['example-node', 'faults', 100n, 100, 50];
const root = process.env.MEMCGD_SOURCE || path.join(__dirname, '..', '..');
const options = {keepCase: true, longs: String, includeDirs: [path.join(root, 'proto')]};
const {memcgd} = grpc.loadPackageDefinition(loader.loadSync(
    ['node', 'cgroup', 'ingest'].map((name) => `memcgd/v1/${name}.proto`), options));
const metadata = new grpc.Metadata();
metadata.set('x-memcg-node', NODE);

// The same each time that it is made: a server that was killed asks for it again.
function batch(sequence) {
  const words = [];
  for (let i = 0; i < FAULTS; ++i) {  // kind 1, CPU 0; a write (2) by the user (4)
    const page = BigInt((sequence - 1) * FAULTS + i);
    words.push(1n | TID << 16n | BigInt(i) << 38n, 0x7f0000000000n + 4096n * page | (2n | 4n) << 57n);
  }
  const side = sequence > 1 ? [] : [  // names, then what happened
    {define_path: {handle: 1, path: Buffer.from('/job')}}, {cgroup_create: {path: 1}},
    {cgroup_attach: {path: 1, moved_tid: Number(TID)}}];
  return {sequence, base_time_ns: sequence * 1e6, words: words.map(String), side};
}

// Sends what the server does not have yet.
function feed(client) {
  return new Promise((resolve, reject) => {
    const call = client.Stream(metadata);
    let next = 1, end = 0;  // end: the first batch behind the window
    const send = (acknowledged, window) => {
      for (end = acknowledged + window + 1; next <= BATCHES && next < end; ++next) call.write({batch: batch(next)});
      if (next > BATCHES) call.end();
    };
    let window = 0;
    call.on('data', ({opened, ack}) => {
      if (opened) next = Number(opened.next_sequence), window = opened.window_batches, send(next - 1, window);
      if (ack) send(Number(ack.applied_through), window);
    });
    call.on('error', reject).on('end', resolve);
    call.write({open: {node: NODE, stream_id: STREAM}});
  });
}

async function main() {
  const channel = [process.argv[2], grpc.credentials.createInsecure(), {
    'grpc.service_config': fs.readFileSync(path.join(root, 'examples', 'service-config.json'), 'utf8'),
    'grpc.enable_http_proxy': 0}];
  const [nodes, cgroups, ingest] = ['Node', 'Cgroup', 'Ingest'].map((name) => new memcgd.v1[`${name}Service`](...channel));
  const call = (client, method, request) => promisify(client[method]).call(client, request, metadata);
  for (const pause of [100, 200, 500, 1000, 2000, null]) {
    try {
      await call(nodes, 'CreateNode', {name: NODE}).catch((error) => {
        if (error.code !== grpc.status.ALREADY_EXISTS) throw error;
      });
      await feed(ingest);
      break;
    } catch (error) {  // the server stopped, or another one answers for the node now
      if (pause === null || ![grpc.status.UNAVAILABLE, grpc.status.NOT_FOUND].includes(error.code)) throw error;
      await sleep(pause);
    }
  }
  const {stat} = await call(cgroups, 'ReadCgroup', {node: NODE, path: '/job'});
  for (const {name, value} of stat) console.log(name, value);
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
