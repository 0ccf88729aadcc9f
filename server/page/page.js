// The live page: polls the server's JSON, keeps each cgroup's last minutes, and draws only the rows that are seen.
// Names come from whoever feeds the server: they become text by textContent, never markup.
'use strict';

const kPollMs = 2000, kKeptSamples = 150, kRowHeight = 26, kSpareRows = 8;
const element = id => document.getElementById(id);
const nodes = new Map();  // by name: {info, open, cgroups: Map by path, roots}
let chosen = '';          // the key of a row
let rows = [];            // those that are unfolded, from the top
let find = '';
let failed = '';

function bytes(n) {
  if (n === null || n === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; ++unit; }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}
const count = n => n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n >= 1e4 ? `${(n / 1e3).toFixed(1)} k` : String(Math.round(n));

async function get(path, node) {
  const url = node === undefined ? path : `${path}?node=${encodeURIComponent(node)}`;
  const answer = await fetch(url, {cache: 'no-store', signal: AbortSignal.timeout(10000)});
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// --- what the server said ---

function takeNodes(answer) {
  const names = new Set(answer.nodes.map(info => info.name));
  for (const name of nodes.keys()) if (!names.has(name)) nodes.delete(name);
  const first = nodes.size === 0;
  for (const info of answer.nodes) {
    const node = nodes.get(info.name) ?? {name: info.name, open: first && answer.nodes.length === 1, cgroups: new Map(),
                                          unfolded: new Set(['/'])};
    nodes.set(info.name, Object.assign(node, {info}));
  }
}

function parentOf(path) {
  const at = path.lastIndexOf('/');
  return path === '/' ? null : at === 0 ? '/' : path.slice(0, at);
}

function takeCgroups(node, answer) {
  const now = performance.now(), column = {};
  answer.columns.forEach((name, i) => { column[name] = i; });
  const cgroups = new Map();
  for (const values of answer.cgroups) {
    const path = values[column.path];
    let cgroup = node.cgroups.get(path);
    if (cgroup === undefined || cgroup.id !== values[column.id]) {
      cgroup = {id: values[column.id], path, past: [], faultsPerSecond: 0};
    }
    const last = cgroup.past.at(-1);
    for (const name in column) cgroup[name] = values[column[name]];
    if (last !== undefined && now > last.at) {
      cgroup.faultsPerSecond = Math.max(0, (cgroup.faults - last.faults) * 1000 / (now - last.at));
    }
    cgroup.past.push({at: now, usage: cgroup.usage, anon: cgroup.anon, file: cgroup.file, faults: cgroup.faults});
    if (cgroup.past.length > kKeptSamples) cgroup.past.shift();
    cgroup.children = [];
    cgroups.set(path, cgroup);
  }
  for (const cgroup of cgroups.values()) cgroups.get(parentOf(cgroup.path))?.children.push(cgroup);
  node.cgroups = cgroups;
}

// --- the tree ---

function keyOf(node, path) { return `${node.name}\n${path}`; }

function unfold() {
  rows = [];
  const words = find.toLowerCase();
  for (const node of nodes.values()) {
    rows.push({key: keyOf(node, ''), node, cgroup: null, level: 1, open: node.open, branch: true});
    if (!node.open) continue;
    if (words !== '') {
      for (const cgroup of node.cgroups.values()) {
        if (cgroup.path.toLowerCase().includes(words)) {
          rows.push({key: keyOf(node, cgroup.path), node, cgroup, level: 2, open: false, branch: false});
        }
      }
      continue;
    }
    const add = (cgroup, level) => {
      const open = node.unfolded.has(cgroup.path);
      rows.push({key: keyOf(node, cgroup.path), node, cgroup, level, open, branch: cgroup.children.length > 0});
      if (open) for (const child of cgroup.children) add(child, level + 1);
    };
    const root = node.cgroups.get('/');
    if (root !== undefined) add(root, 2);
  }
}

function span(kind, text) {
  const made = document.createElement('span');
  made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

// The smallest limit on the way to the root; the machine's memory where there is none.
function limitOf(node, cgroup) {
  let limit = node.info.memory;
  for (let level = cgroup; level !== undefined; level = node.cgroups.get(parentOf(level.path))) {
    if (level.max !== null) limit = Math.min(limit, level.max);
  }
  return limit;
}

function bar(parts, usage, limit) {
  const made = span(limit > 0 && usage >= 0.95 * limit ? 'bar full' : 'bar');
  for (const [kind, amount] of parts) {
    const part = span(kind);
    part.style.width = `${Math.min(100, 100 * amount / Math.max(limit, 1))}%`;
    made.append(part);
  }
  return made;
}

function barOf(row) {
  if (row.cgroup === null) {
    return bar([['other', row.node.info.resident]], row.node.info.resident, row.node.info.memory);
  }
  const {anon, file, kernel, usage} = row.cgroup;
  return bar([['anon', anon], ['file', file], ['kernel', kernel], ['other', Math.max(0, usage - anon - file - kernel)]],
             usage, limitOf(row.node, row.cgroup));
}

function nameOf(row) {
  if (row.cgroup === null) return row.node.name;
  if (find !== '' || row.cgroup.path === '/') return row.cgroup.path;
  return row.cgroup.path.slice(row.cgroup.path.lastIndexOf('/') + 1);
}

function drawRow(row, at) {
  const {node, cgroup} = row, made = document.createElement('div');
  made.className = 'row';
  made.id = `row${at}`;
  made.dataset.at = at;
  made.style.top = `${at * kRowHeight}px`;
  made.setAttribute('role', 'treeitem');
  made.setAttribute('aria-level', row.level);
  made.setAttribute('aria-selected', row.key === chosen);
  if (row.branch) made.setAttribute('aria-expanded', row.open);
  const label = span(cgroup === null ? 'label node' : 'label');
  label.style.paddingLeft = `${(row.level - 1) * 16}px`;
  label.append(span('twisty', row.branch ? (row.open ? '▾' : '▸') : ''), nameOf(row));
  label.title = cgroup === null ? node.name : cgroup.path;
  const kills = cgroup === null ? node.info.oom_calls : cgroup.ev_oom_kill;
  const events = cgroup === null ? node.info.oom_calls : cgroup.ev_high + cgroup.ev_max + cgroup.ev_oom;
  const usage = cgroup === null ? node.info.resident : cgroup.usage;
  const limit = cgroup === null ? node.info.memory : cgroup.max;
  const faults = cgroup === null ? node.cgroups.get('/')?.faultsPerSecond ?? 0 : cgroup.faultsPerSecond;
  made.setAttribute('aria-label', `${nameOf(row)}, ${bytes(usage)} of ${limit === null ? 'no limit' : bytes(limit)}, ` +
                                      `${count(faults)} faults a second, ${events} events, ${kills} OOM kills`);
  made.append(label, barOf(row), span('number', bytes(usage)), span('number', bytes(limit)), span('number', count(faults)),
              span(kills > 0 ? 'number bad' : 'number', count(events)));
  return made;
}

function drawTree() {
  const tree = element('tree'), holder = element('rows');
  holder.style.height = `${rows.length * kRowHeight}px`;
  const from = Math.max(0, Math.floor(tree.scrollTop / kRowHeight) - kSpareRows);
  const to = Math.min(rows.length, from + Math.ceil(tree.clientHeight / kRowHeight) + 2 * kSpareRows);
  const made = [];
  for (let at = from; at < to; ++at) made.push(drawRow(rows[at], at));
  holder.replaceChildren(...made);
  const at = rows.findIndex(row => row.key === chosen);
  if (at >= from && at < to) tree.setAttribute('aria-activedescendant', `row${at}`);
  else tree.removeAttribute('aria-activedescendant');
}

function choose(at) {
  if (rows.length === 0) return;
  at = Math.max(0, Math.min(rows.length - 1, at));
  const tree = element('tree'), changed = rows[at].node !== chosenRow()?.node;
  chosen = rows[at].key;
  tree.scrollTop = Math.min(at * kRowHeight, Math.max(tree.scrollTop, (at + 1) * kRowHeight - tree.clientHeight));
  drawTree();
  drawDetail();
  if (changed) pollNode(rows[at].node);
}

function setOpen(row, open) {
  if (row.cgroup === null) {
    row.node.open = open;
    if (open && row.node.cgroups.size === 0) poll();
  } else if (open) {
    row.node.unfolded.add(row.cgroup.path);
  } else {
    row.node.unfolded.delete(row.cgroup.path);
  }
  unfold();
  drawTree();
}

function onKey(event) {
  const at = rows.findIndex(row => row.key === chosen), row = rows[at];
  const page = Math.max(1, Math.floor(element('tree').clientHeight / kRowHeight) - 1);
  const moves = {ArrowDown: at + 1, ArrowUp: Math.max(0, at - 1), Home: 0, End: rows.length - 1, PageDown: at + page,
                 PageUp: at - page};
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key in moves) choose(moves[event.key]);
  else if (row === undefined) return;
  else if (event.key === 'ArrowRight' && row.branch && !row.open) setOpen(row, true);
  else if (event.key === 'ArrowRight' && row.branch) choose(at + 1);
  else if (event.key === 'ArrowLeft' && row.branch && row.open) setOpen(row, false);
  else if (event.key === 'ArrowLeft') choose(rows.findLastIndex((other, i) => i < at && other.level < row.level));
  else if ((event.key === 'Enter' || event.key === ' ') && row.branch) setOpen(row, !row.open);
  else return;
  event.preventDefault();
}

// --- what is chosen ---

function chosenRow() { return rows.find(row => row.key === chosen); }

function drawChart(node, cgroup) {
  const past = cgroup.past, chart = element('chart'), limit = cgroup.max;
  const most = Math.max(1, ...past.map(sample => sample.usage));
  const top = limit !== null && limit < 4 * most ? Math.max(limit, most) * 1.05 : most * 1.1;
  const begin = past[0].at, length = Math.max(1, past.at(-1).at - begin);
  const draw = (kind, value) => {
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('class', kind);
    path.setAttribute('d', past.map((sample, i) => `${i === 0 ? 'M' : 'L'}${(600 * (sample.at - begin) / length).toFixed(1)} ` +
                                                   `${(158 - 156 * value(sample) / top).toFixed(1)}`).join(''));
    return path;
  };
  const lines = [draw('f', s => s.file), draw('a', s => s.anon), draw('usage', s => s.usage)];
  if (limit !== null && limit <= top) lines.push(draw('limit', () => limit));
  chart.replaceChildren(...lines);
  const text = `The last ${Math.round(length / 1000)} s: usage ${bytes(past[0].usage)} → ${bytes(cgroup.usage)}; ` +
      `top of the drawing ${bytes(top)}`;
  chart.setAttribute('aria-label', text);
  element('caption').textContent = `${text}. Usage in the colour of text; anon and file as in the bars` +
      `${limit !== null && limit <= top ? '; the limit is dashed' : ''}.`;
}

function drawFacts(facts) {
  element('facts').replaceChildren(...facts.flatMap(([name, value]) => {
    const term = document.createElement('dt'), text = document.createElement('dd');
    term.textContent = name;
    text.textContent = value;
    return [term, text];
  }));
}

function drawDetail() {
  const row = chosenRow();
  element('hint').hidden = row !== undefined;
  element('figure').hidden = row === undefined || row.cgroup === null;
  if (row === undefined) {
    element('name').textContent = 'Nothing chosen';
    drawFacts([]);
    return;
  }
  const {node, cgroup} = row;
  if (cgroup === null) {
    const info = node.info;
    element('name').textContent = `Node ${node.name}`;
    drawFacts([['memory', `${bytes(info.resident)} of ${bytes(info.memory)}`], ['swap', bytes(info.swap)],
               ['Committed_AS', `${bytes(info.committed)} of ${bytes(info.commit_limit)}`],
               ['cgroups', `${info.cgroups}, ${info.dying} dying`], ['streams', String(info.streams)],
               ['events applied', count(info.events)], ['OOM killer called', String(info.oom_calls)]]);
    return;
  }
  element('name').textContent = `${node.name}: ${cgroup.path}`;
  drawChart(node, cgroup);
  drawFacts([['usage', `${bytes(cgroup.usage)}, peak ${bytes(cgroup.peak)}`],
             ['memory.max', cgroup.max === null ? 'max' : bytes(cgroup.max)],
             ['memory.high', cgroup.high === null ? 'max' : bytes(cgroup.high)],
             ['smallest limit above', bytes(limitOf(node, cgroup))],
             ['anon, file, kernel', `${bytes(cgroup.anon)}, ${bytes(cgroup.file)}, ${bytes(cgroup.kernel)}`],
             ['swap', bytes(cgroup.swap)], ['faults', `${count(cgroup.faults)}, ${count(cgroup.major)} major`],
             ['refaults', count(cgroup.refaults)],
             ['memory.events', `high ${cgroup.ev_high}, max ${cgroup.ev_max}, oom ${cgroup.ev_oom}, oom_kill ${cgroup.ev_oom_kill}`]]);
}

function drawTable(id, lines, none, columns) {
  const shown = lines.length > 0 ? lines : [[none, ...Array(columns - 1).fill('')]];
  element(id).replaceChildren(...shown.map(line => {
    const row = document.createElement('tr');
    for (const text of line) {
      const cell = document.createElement('td');
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
}

async function pollNode(node) {
  try {
    const [ooms, streams] = await Promise.all([get('api/ooms', node.name), get('api/streams', node.name)]);
    if (chosenRow()?.node !== node) return;
    drawTable('ooms', ooms.records.reverse().map(one => [
      one.sequence, `${(one.time_ns / 1e9).toFixed(3)} s`, one.breached, one.charged,
      one.killed.map(victim => `${victim.comm || 'process'} (${victim.pid}) in ${victim.cgroup}`).join(', ') || 'nobody']), 'none', 5);
    drawTable('streams', streams.streams.map(one => [one.id, one.open ? 'open' : 'no call has it open']), 'none', 2);
  } catch (error) {
    failed = error.message;
  }
}

// --- time ---

function drawStatus(draining) {
  const cgroups = [...nodes.values()].reduce((sum, node) => sum + node.info.cgroups, 0);
  element('status').textContent = failed !== '' ? '' : `${nodes.size} node${nodes.size === 1 ? '' : 's'}, ${count(cgroups)} cgroups`;
  const banner = element('banner');
  const text = failed !== '' ? `The server does not answer (${failed}). What is shown is as of the last answer.`
      : draining ? 'The server is draining: it takes no new calls and ends soon.' : '';
  if (banner.textContent !== text) banner.textContent = text;
  banner.hidden = text === '';
}

let polling = false;
async function poll() {
  if (polling) return;
  polling = true;
  let draining = false;
  try {
    const answer = await get('api/nodes');
    draining = answer.draining;
    takeNodes(answer);
    for (const node of nodes.values()) {
      // One that was deleted since is gone at the next poll.
      if (node.open) await get('api/cgroups', node.name).then(cgroups => takeCgroups(node, cgroups), () => {});
    }
    failed = '';
    unfold();
    drawTree();
    drawDetail();
    const row = chosenRow();
    if (row !== undefined) await pollNode(row.node);
  } catch (error) {
    failed = error.message;
  }
  drawStatus(draining);
  document.body.dataset.ready = 'yes';
  polling = false;
}

element('tree').addEventListener('scroll', drawTree);
element('tree').addEventListener('keydown', onKey);
element('tree').addEventListener('click', event => {
  const made = event.target.closest('.row');
  if (made === null) return;
  const row = rows[made.dataset.at];
  choose(Number(made.dataset.at));
  if (row.branch && event.target.classList.contains('twisty')) setOpen(row, !row.open);
});
element('tree').addEventListener('dblclick', () => { const row = chosenRow(); if (row?.branch) setOpen(row, !row.open); });
element('find').addEventListener('input', event => { find = event.target.value; unfold(); drawTree(); });
addEventListener('resize', drawTree);
drawTable('ooms', [], 'none', 5);
drawTable('streams', [], 'none', 2);
poll();
setInterval(() => { if (!document.hidden) poll(); }, kPollMs);
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
