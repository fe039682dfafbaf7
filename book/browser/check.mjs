// Reads the built book in a browser as a reader would, and says what a reader would stumble over.
//
//     node check.mjs BOOK        the folder that mdBook wrote
//     node check.mjs --self-test pages that are wrong on purpose: each fault has to be found
//
// $CHROMIUM is the browser, $AXE the file axe.min.js; book/browser/run finds both.

import { existsSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

import { Chromium } from './chromium.mjs';
import { pagesOf, serve } from './server.mjs';
import { FAULTS, writeFaultyBook } from './faults.mjs';

// The whole may not hang, whatever the browser does.
const ALL_MS = 480_000;

// How many different findings of one check are printed for one page, and how many places of each.
const FINDINGS_MAX = 6;
const PLACES_MAX = 3;

// How many pages are read at a time.
const TABS = 2;

const WIDE = { width: 1200, height: 900, deviceScaleFactor: 1, mobile: false };
const NARROW = { width: 360, height: 740, deviceScaleFactor: 1, mobile: false };

const THEMES = ['light', 'rust', 'coal', 'navy', 'ayu'];

// What is not asked of a page that mdBook makes: it is not counted either.
const NOT_ASKED = {
  // All other pages in one: what is ours in it is looked at in its own page.
  'print.html': ['axe'],
  // A server shows it for whatever is missing, at any path: nothing leads to it, and its links begin at the top.
  '404.html': ['links'],
};

// What is in <main> and not ours to mend: axe does not look at it.
const MDBOOKS_OWN = [
  // Programs: the colours are those of the highlighting that mdBook carries, and it is mdBook that lets long
  // lines scroll (see below).
  'pre > code',
  // The button beside a program, drawn by its script.
  'pre > .buttons',
];

// What axe says of a single element that mdBook makes, while it looks at what we wrote into it.
const EXCUSED = [
  // mdBook puts a box around each table, and lets it scroll. Chromium and Firefox let the keyboard into a box
  // that scrolls; axe does not count on it.
  { rule: 'scrollable-region-focusable', element: '.table-wrapper' },
];

// What a theme can break.
const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];

const CHECKS = ['loads', 'links', 'figures', 'without_javascript', 'narrow', 'print', 'axe'];

async function main() {
  const [what] = process.argv.slice(2);
  if (!what) {
    console.error('usage: node check.mjs BOOK | --self-test');
    return 2;
  }
  const axe = process.env.AXE ? await readFile(process.env.AXE, 'utf8') : null;
  const chromium = await Chromium.start(process.env.CHROMIUM ?? 'chromium');
  const leave = (status) => chromium.close().finally(() => process.exit(status));
  const timer = setTimeout(() => {
    console.log(`FAILED: not through after ${ALL_MS / 1000} s`);
    leave(1);
  }, ALL_MS);
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => leave(130));
  try {
    console.log(`${chromium.version}${axe ? '' : '\nNEEDS axe-core: npm has to reach its registry'}`);
    return what === '--self-test' ? await testItself(chromium, axe) : await checkBook(chromium, axe, what);
  } finally {
    clearTimeout(timer);
    await chromium.close();
  }
}

async function checkBook(chromium, axe, book) {
  if (!existsSync(join(book, 'index.html'))) {
    console.error(`${book}/index.html is not there: mdbook build book`);
    return 1;
  }
  const count = { passed: 0, failed: 0, skipped: 0 };
  let figures = 0;
  await readBook(chromium, axe, book, (page, results, { ms, content }) => {
    const words = [];
    figures += content?.figures ?? 0;
    for (const [check, findings] of results) {
      const how = findings === null ? 'skipped' : findings.length ? 'failed' : 'passed';
      count[how] += 1;
      words.push(how === 'passed' ? check : `${check} ${how.toUpperCase()}`);
    }
    console.log(`${page} (${(ms / 1000).toFixed(1)} s): ${words.join(', ')}`);
    for (const [check, findings] of results) tell(page, check, findings ?? []);
  });
  if (!figures) {
    count.failed += 1;
    console.log('FAILED the book has no figure: has the way changed in which they stand in a page? See in_page.js');
  }
  // `.ci/run` adds it to the results of the other harnesses.
  console.log(`\nbrowser test result: ${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
  return count.failed ? 1 : 0;
}

function tell(page, check, findings) {
  const alike = new Map();
  for (const it of findings) {
    const key = `${it.what}\0${it.remedy}`;
    alike.set(key, [...(alike.get(key) ?? []), it]);
  }
  for (const places of [...alike.values()].slice(0, FINDINGS_MAX)) {
    console.log(`  FAILED ${page} [${check}]: ${places[0].what}`);
    for (const { where, when } of places.slice(0, PLACES_MAX)) console.log(`      at ${where}${when ? ` (${when})` : ''}`);
    if (places.length > PLACES_MAX) console.log(`      and in ${places.length - PLACES_MAX} more places`);
    console.log(`      remedy: ${places[0].remedy}`);
  }
  if (alike.size > FINDINGS_MAX) console.log(`  and ${alike.size - FINDINGS_MAX} other findings`);
}

// A check that cannot fail is worse than none: each fault is found, by its checks and by no other.
async function testItself(chromium, axe) {
  const book = join(chromium.folder, 'faults');
  const count = { passed: 0, failed: 0, skipped: 0 };
  await mkdir(book);
  await writeFaultyBook(book);
  await readBook(chromium, axe, book, (page, results) => {
    const { checks, says } = FAULTS[page];
    const found = results.filter(([, findings]) => findings?.length);
    const named = `${found.map(([check]) => check)}` === `${checks}`
      && (!checks.length || found[0][1].some((it) => saidIn(it, says)));
    const how = checks[0] === 'axe' && !axe ? 'skipped' : named ? 'passed' : 'failed';
    count[how] += 1;
    console.log(`${page}: ${checks.join(', ') || 'nothing'} to be found: ${how}`);
    if (how === 'failed') for (const [check, findings] of found) tell(page, check, findings);
  });
  console.log(`\nbrowser test result: ${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped (self-test)`);
  return count.failed ? 1 : 0;
}

function saidIn({ where, what, when }, says) {
  return `${where} ${what} ${when ?? ''}`.includes(says);
}

// Reads every page of `book` and calls `report(page, [[check, findings or null]], told)` for each.
async function readBook(chromium, axe, book, report) {
  const server = await serve(book);
  try {
    const source = await readFile(new URL('in_page.js', import.meta.url), 'utf8');
    const pages = pagesOf(book);
    const waiting = [...pages];
    const read = new Map();
    await Promise.all(Array.from({ length: TABS }, async () => {
      const reader = new Reader(await chromium.tab(), server.origin, { source, axe });
      for (let page = waiting.shift(); page; page = waiting.shift()) {
        const start = performance.now();
        const told = await reader.read(page);
        read.set(page, { ...told, ms: performance.now() - start });
        // What hangs in this one is left to itself.
        if (told.stuck) reader.use(await chromium.tab());
      }
    }));
    for (const page of pages) {
      const { findings } = read.get(page);
      if (findings.get('links')) findings.set('links', lookAtLinks(page, read, server));
      report(page, [...findings], read.get(page));
    }
  } finally {
    await server.close();
  }
}

// ---------------------------------------------------------------------------------------------------
// A page, in every way in which it is read.

class Reader {
  constructor(tab, origin, { source, axe }) {
    Object.assign(this, { origin, source, axe });
    this.use(tab);
  }

  use(tab) {
    this.tab = tab;
    tab.origin = this.origin;
  }

  // What is found, by check, and what the other pages have to know of this one.
  async read(page) {
    this.page = page;
    const asked = CHECKS.filter((it) => !NOT_ASKED[page]?.includes(it));
    this.findings = new Map(asked.map((it) => [it, it === 'axe' && !this.axe ? null : []]));
    const told = { findings: this.findings, anchors: [], links: [], twice: [], stuck: false };
    try {
      Object.assign(told, await this.onDesktop());
      await this.onTelephone();
      await this.withoutScripts(told.content);
    } catch (error) {
      told.stuck = true;
      const remedy = 'look at it in a browser: it has not been read to its end';
      this.add('loads', null, [{ where: 'the page', what: error.message.split('\n')[0], remedy }]);
      // What has not been looked at has not passed.
      for (const [check, findings] of this.findings) if (!findings?.length) this.findings.set(check, null);
    }
    return told;
  }

  add(check, when, findings) {
    this.findings.get(check)?.push(...findings.map((it) => ({ ...it, when })));
  }

  // Wide and light; then in the other themes, and on paper.
  async onDesktop() {
    await this.open({ size: WIDE, theme: 'light', when: 'light' });
    const links = await this.ask('lookAtLinks');
    const content = await this.ask('content');
    await this.runAxe('light');
    for (const theme of ['light', 'navy']) {
      await this.ask('wear', theme, THEMES);
      await this.onPaper(theme);
    }
    await this.ask('unfold');
    for (const theme of THEMES) {
      await this.ask('wear', theme, THEMES);
      this.add('figures', theme, await this.ask('lookAtFigures', false));
      // All rules have been applied to the light page.
      if (theme !== 'light') await this.runAxe(theme, COLOUR_RULES);
    }
    return { ...links, content };
  }

  async onPaper(theme) {
    await this.tab.send('Emulation.setEmulatedMedia', { media: 'print' });
    await this.tab.evaluate("dispatchEvent(new Event('beforeprint'))");
    const when = `printed from ${theme}`;
    this.add('print', when, await this.ask('lookAtFigures', true));
    this.add('print', when, await this.ask('lookAtFolded'));
    await this.tab.evaluate("dispatchEvent(new Event('afterprint'))");
    await this.tab.send('Emulation.setEmulatedMedia', { media: '' });
  }

  // 360 px, with the dark theme that the reader chose some time ago.
  async onTelephone() {
    await this.open({ size: NARROW, theme: 'navy', when: '360 px, navy' });
    const worn = await this.tab.evaluate("document.documentElement.classList.contains('navy')");
    if (!worn) this.add('narrow', 'navy', [{ where: 'html', what: 'the stored theme is not worn', remedy: 'see mdbook-theme in the page' }]);
    this.add('narrow', '360 px', await this.ask('lookAtWidth'));
    await this.runAxe('360 px, navy');
    await this.ask('unfold');
    this.add('narrow', '360 px, unfolded', await this.ask('lookAtWidth'));
    this.add('narrow', '360 px, navy', await this.ask('lookAtFigures', false));
    this.add('narrow', '360 px', await this.ask('lookAtLetters'));
  }

  // mdBook then follows the system, light or dark.
  async withoutScripts(withThem) {
    await this.tab.send('Emulation.setScriptExecutionDisabled', { value: true });
    try {
      await this.open({ size: WIDE, when: 'without JavaScript' });
      const without = await this.ask('content');
      if (without.words < withThem.words * 0.95 || without.figures < withThem.figures) {
        this.add('without_javascript', null, [{
          where: 'main',
          what: `${without.words} of ${withThem.words} words and ${without.figures} of ${withThem.figures} figures`,
          remedy: 'write it into the page when the book is built',
        }]);
      }
      await this.ask('unfold');
      for (const scheme of ['light', 'dark']) {
        const features = [{ name: 'prefers-color-scheme', value: scheme }];
        await this.tab.send('Emulation.setEmulatedMedia', { media: '', features });
        this.add('without_javascript', `${scheme} system`, await this.ask('lookAtFigures', false));
      }
    } finally {
      await this.tab.send('Emulation.setScriptExecutionDisabled', { value: false });
      await this.tab.send('Emulation.setEmulatedMedia', { media: '', features: [] });
    }
  }

  async open({ size, theme, when }) {
    await this.tab.send('Emulation.setDeviceMetricsOverride', size);
    const stored = theme && await this.tab.beforeEachPage(
      `try { localStorage.setItem('mdbook-theme', '${theme}'); } catch {}`,
    );
    this.tab.told();
    await this.tab.open(`${this.origin}/${this.page}`);
    if (stored) await this.tab.forget(stored);
    await this.tab.evaluate(this.source);
    await this.ask('stand');
    await this.tab.evaluate('document.fonts.ready.then(() => {})');
    this.add('loads', when, this.tab.told().map(({ kind, what }) => (kind === 'error'
      ? { where: 'console', what, remedy: 'the page has to load without an error' }
      : { where: 'request', what: `${what} leaves the machine`, remedy: 'put what it fetches into the book' })));
  }

  async runAxe(when, rules = null) {
    if (!this.findings.get('axe')) return;
    if (!rules) await this.tab.evaluate(this.axe);
    const found = await this.ask('accessible', MDBOOKS_OWN, EXCUSED, rules);
    this.add('axe', when, found);
  }

  ask(what, ...parameters) {
    return this.tab.evaluate(`reader.${what}(${parameters.map((it) => JSON.stringify(it)).join(', ')})`);
  }
}

// ---------------------------------------------------------------------------------------------------
// Links, when all pages have been read.

function lookAtLinks(page, read, server) {
  const { links, twice } = read.get(page);
  const found = twice.map((id) => ({
    where: `#${id}`,
    what: 'is the name of two elements: a link leads to the first only',
    remedy: 'begin the ids of a figure with a prefix of its own',
  }));
  const seen = new Set();
  for (const { href, written, text } of links) {
    const url = new URL(href);
    if (url.origin !== server.origin || seen.has(href)) continue;
    seen.add(href);
    const target = decodeURIComponent(url.pathname.slice(1)) || 'index.html';
    const anchor = decodeURIComponent(url.hash.slice(1));
    const where = `link "${text}" to ${written}`;
    if (!server.has(target)) {
      found.push({ where, what: `${target} is not in the book`, remedy: 'mend the link, or name the page in SUMMARY.md' });
    } else if (anchor && anchor !== 'top' && !read.get(target)?.anchors.includes(anchor)) {
      found.push({ where, what: `${target} has no #${anchor}`, remedy: 'link to one of its headings' });
    }
  }
  const linked = [...read].some(([other, it]) => other !== page
    && it.links.some(({ href }) => new URL(href).pathname === `/${page}`));
  if (!linked && page !== 'index.html') {
    found.push({ where: page, what: 'no page leads to it', remedy: 'name it in SUMMARY.md' });
  }
  return found;
}

process.exitCode = await main().catch((error) => {
  console.log(`FAILED: ${error.message}`);
  return 1;
});
