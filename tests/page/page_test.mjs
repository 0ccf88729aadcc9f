// The live page in a real Chromium, against a real memcgd.
// usage: node page_test.mjs BINARY_DIRECTORY PLAYWRIGHT_DIRECTORY [DIRECTORY for screenshots]
import assert from 'node:assert/strict';
import {execFileSync, spawn} from 'node:child_process';
import {existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';

const [binaries, playwright, shots] = process.argv.slice(2).map(path => resolve(path));
const {chromium} = createRequire(join(playwright, 'x.js'))('playwright-core');
const kLimitMs = 60000, kCgroups = 10000, kFirstPaintMs = 1000;
const directory = mkdtempSync(join(tmpdir(), 'memcgd-page-'));
const hostile = '/<img src=x onerror=document.title="hit">';

async function until(condition, what) {
  for (const end = Date.now() + kLimitMs; Date.now() < end;) {
    if (await condition()) return;
    await new Promise(done => setTimeout(done, 50));
  }
  throw new Error(`waited in vain for ${what}`);
}

const portFile = join(directory, 'port');
const server = spawn(join(binaries, 'memcgd'), ['--listen', '127.0.0.1:0', '--metrics-listen', '127.0.0.1:0', '--port-file', portFile],
                     {stdio: 'ignore'});
const ended = new Promise(done => server.once('exit', done));
let browser;

// A trace whose process touches pages in /job; the cgroups of `more` beside it.
function trace(name, pages, more) {
  const lines = ['# tracer: nop', '#', '# entries-in-buffer/entries-written: 1/1   #P:2'];
  let us = 1000000;
  const add = event => {
    ++us;
    lines.push(`             job-100     (    100) [000] .....  ${Math.floor(us / 1e6)}.${String(us % 1e6).padStart(6, '0')}: ${event}`);
  };
  add('cgroup_mkdir: root=4 id=7 level=1 path=/job');
  more.forEach((path, i) => add(`cgroup_mkdir: root=4 id=${100 + i} level=${path.split('/').length - 1} path=${path}`));
  add('cgroup_attach_task: dst_root=4 dst_id=7 dst_level=1 dst_path=/job pid=100 comm=job');
  add(`sys_mmap(addr: 0, len: 0x${(pages * 4096).toString(16)}, prot: 3, flags: 0x22, fd: 0xffffffffffffffff, off: 0)`);
  add('sys_mmap -> 0x7f0000000000');
  for (let page = 0; page < pages; ++page) {
    add(`page_fault_user: address=0x${(0x7f0000000000 + 4096 * page).toString(16)} ip=0x401000 error_code=0x6`);
  }
  writeFileSync(join(directory, name), `${lines.join('\n')}\n`);
  return join(directory, name);
}

try {
  await until(() => existsSync(portFile), 'memcgd to listen');
  const bound = Object.fromEntries(readFileSync(portFile, 'utf8').trim().split('\n').map(line => line.split('=')));
  const ctl = (...args) => execFileSync(join(binaries, 'memcgctl'), [...args, '--server', bound.listen], {timeout: kLimitMs, stdio: ['ignore', 'ignore', 'pipe']});
  const many = ['/many', ...Array.from({length: kCgroups}, (_, i) => `/many/cgroup-${String(i).padStart(5, '0')}`)];
  ctl('replay', trace('big', 5000, many), '--node', 'big', '--reclaim', 'modelled', '--memory-max', '/job=64M');

  browser = await chromium.launch({
    executablePath: '/usr/bin/chromium', headless: true,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
           '--disable-component-update', '--disable-sync']});
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, colorScheme: 'light'});
  const page = await context.newPage();
  const wrong = [];
  page.on('pageerror', error => wrong.push(String(error)));
  page.on('console', message => { if (message.type() === 'error') wrong.push(message.text()); });
  page.on('request', request => { if (!request.url().startsWith(`http://${bound['metrics-listen']}/`)) wrong.push(request.url()); });

  // (waitForFunction() evaluates strings in the page, which its policy forbids.)
  const seen = (condition, argument) => until(() => page.evaluate(condition, argument), condition);

  // The first paint, and the tree with all its cgroups.
  const response = await page.goto(`http://${bound['metrics-listen']}/`);
  assert.match(response.headers()['content-security-policy'], /default-src 'none'/);
  const tree = page.locator('#tree');
  await seen(() => document.body.dataset.ready === 'yes');
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
  const ready = await page.evaluate(() => performance.now());
  console.log(`first contentful paint ${paint.toFixed(0)} ms, tree of ${kCgroups} cgroups within ${ready.toFixed(0)} ms`);
  assert.ok(paint < kFirstPaintMs, `first paint after ${paint} ms`);
  const row = text => tree.locator('.row', {hasText: text}).first();
  await row('many').waitFor();
  assert.match(await page.locator('#status').textContent(), /^1 node, 10\.0 k cgroups$/);

  // By keyboard alone: to /job, then all of /many, whose rows are not all drawn.
  await tree.focus();
  for (const key of ['Home', 'ArrowDown', 'ArrowDown']) await page.keyboard.press(key);
  await seen(() => document.getElementById('name').textContent === 'big: /job');
  const facts = await page.locator('#facts').textContent();
  assert.match(facts, /memory\.max64\.0 MiB/);
  assert.match(facts, /anon, file, kernel19\.[2-5] MiB/);
  await page.keyboard.press('ArrowDown');
  assert.equal(await row('many').getAttribute('aria-expanded'), 'false');
  await page.keyboard.press('ArrowRight');
  assert.equal(await row('many').getAttribute('aria-expanded'), 'true');
  await page.keyboard.press('End');
  await row('cgroup-09999').waitFor();
  assert.ok(await tree.locator('.row').count() < 100, 'only what is seen is drawn');
  const active = await tree.getAttribute('aria-activedescendant');
  assert.match(await page.locator(`#${active}`).getAttribute('aria-label'), /^cgroup-09999, 0 B of no limit/);
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  assert.equal(await row('many').getAttribute('aria-expanded'), 'false');
  await page.locator('#find').fill('ROUP-0123');
  await row('/many/cgroup-01239').waitFor();
  assert.equal(await tree.locator('.row').count(), 11);
  await page.locator('#find').fill('');

  // A second node, fed with limits that kill; hostile names are text.
  ctl('replay', trace('small', 2000, [hostile]), '--node', 'small', '--reclaim', 'modelled', '--memory-max', '/job=2M');
  await row('small').waitFor();
  await row('small').click();
  await page.keyboard.press('ArrowRight');
  await row(hostile.slice(1)).waitFor();
  await row(hostile.slice(1)).click();
  await seen(name => document.getElementById('name').textContent === name, `small: ${hostile}`);
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.title(), 'memcgd');
  await page.locator('#ooms').getByText('/job').first().waitFor();
  assert.match(await page.locator('#ooms').textContent(), /(job|process) \(100\) in \/job/);
  await page.locator('#streams').getByText('no call has it open').first().waitFor();

  // The last minutes are drawn.
  await tree.locator('.row', {hasText: 'job'}).first().click();
  await seen(() => /^The last \d+ s: usage/.test(document.getElementById('caption').textContent));
  assert.ok(await page.locator('#chart path').count() >= 3);
  await page.waitForTimeout(4500);  // something to draw
  if (shots !== undefined) {
    for (const [scheme, width, height] of [['light', 1280, 800], ['dark', 1280, 800], ['light', 420, 800], ['dark', 420, 800]]) {
      await page.setViewportSize({width, height});
      await page.emulateMedia({colorScheme: scheme});
      await page.waitForTimeout(300);
      await page.screenshot({path: join(shots, `page-${scheme}-${width}.png`)});
    }
  }
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  assert.equal(overflow, false, 'nothing runs out of a narrow page');
  assert.deepEqual(wrong, []);

  // A server that drains, then is gone, says so.
  const watch = spawn(join(binaries, 'memcgctl'), ['replay', '-', '--node', 'open', '--server', bound.listen], {stdio: ['pipe', 'ignore', 'ignore']});
  await until(async () => (await (await fetch(`http://${bound['metrics-listen']}/api/nodes`)).json()).nodes.length === 3, 'a third node');
  server.kill('SIGTERM');
  await page.locator('#banner', {hasText: /draining|does not answer/}).waitFor({timeout: kLimitMs});
  watch.kill();
  await page.locator('#banner', {hasText: 'does not answer'}).waitFor({timeout: kLimitMs});
  console.log('ok');
} finally {
  await browser?.close();
  server.kill('SIGKILL');
  await ended;
  rmSync(directory, {recursive: true, force: true});
}
