// One Chromium of our own, spoken to over a pipe: no port that somebody else could use, no library,
// and it ends when the pipe closes, whatever becomes of this process.

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// How long a single command or a page may take on a loaded machine.
const COMMAND_MS = 30_000;

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-dev-shm-usage',
  // A scroll bar of the desktop would take its width from the 360 px of a telephone.
  '--hide-scrollbars',
  // Whatever a page asks for: no name outside is ever looked up, so nothing is sent.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
  '--remote-debugging-pipe',
];

export class Chromium {
  // Starts `program` with an empty profile. Rejects when it does not answer, with its last words.
  static async start(program) {
    const chromium = new Chromium();
    chromium.folder = await mkdtemp(join(tmpdir(), 'book-browser-'));
    chromium.child = spawn(program, [...FLAGS, `--user-data-dir=${join(chromium.folder, 'profile')}`], {
      stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
    });
    chromium.listen();
    try {
      chromium.version = (await chromium.send('Browser.getVersion')).product;
    } catch (error) {
      await chromium.close();
      throw new Error(`${program} does not start: ${error.message}: ${chromium.stderr.trim()}`);
    }
    return chromium;
  }

  constructor() {
    // What is to go with the browser.
    this.folder = null;
    this.stderr = '';
    this.last = 0;
    this.waiting = new Map();
    this.tabs = new Map();
    this.gone = null;
  }

  // A tab with a storage of its own.
  async tab() {
    const { browserContextId } = await this.send('Target.createBrowserContext');
    const made = await this.send('Target.createTarget', { url: 'about:blank', browserContextId });
    const attached = { targetId: made.targetId, flatten: true };
    const { sessionId } = await this.send('Target.attachToTarget', attached);
    const tab = new Tab(this, sessionId);
    this.tabs.set(sessionId, tab);
    await tab.prepare();
    return tab;
  }

  // Sends one command; resolves to its result.
  send(method, params = {}, sessionId = undefined) {
    if (this.gone) return Promise.reject(new Error(`${method}: ${this.gone}`));
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id);
        reject(new Error(`${method}: no answer within ${COMMAND_MS} ms`));
      }, COMMAND_MS);
      this.waiting.set(id, { method, resolve, reject, timer });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  // Ends the browser, and only it, by the handle of the child; and removes its folder.
  async close() {
    if (this.child.exitCode === null && this.child.signalCode === null && !this.gone) {
      const ended = new Promise((resolve) => this.child.once('exit', resolve));
      this.child.stdio[3].end();
      const timer = setTimeout(() => this.child.kill('SIGKILL'), 2_000);
      await ended;
      clearTimeout(timer);
    }
    // Its helpers may still write for a moment.
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  listen() {
    let rest = '';
    this.child.stdio[4].setEncoding('utf8').on('data', (data) => {
      const messages = (rest + data).split('\0');
      rest = messages.pop();
      for (const message of messages) this.receive(JSON.parse(message));
    });
    this.child.stderr.setEncoding('utf8').on('data', (data) => {
      this.stderr = (this.stderr + data).slice(-2_000);
    });
    const gone = (why) => {
      this.gone ??= why;
      for (const { method, reject, timer } of this.waiting.values()) {
        clearTimeout(timer);
        reject(new Error(`${method}: ${why}`));
      }
      this.waiting.clear();
    };
    // Writing to one that has ended is told by its exit.
    this.child.stdio[3].on('error', () => {});
    this.child.on('error', (error) => gone(error.message));
    this.child.on('exit', (code, signal) => gone(`the browser has ended (${signal ?? code})`));
  }

  receive({ id, result, error, method, params, sessionId }) {
    if (id === undefined) {
      this.tabs.get(sessionId)?.hear(method, params);
      return;
    }
    const answer = this.waiting.get(id);
    if (!answer) return;
    this.waiting.delete(id);
    clearTimeout(answer.timer);
    if (error) answer.reject(new Error(`${answer.method}: ${error.message}`));
    else answer.resolve(result);
  }
}

// A tab that writes down what a reader would not see: errors, and requests that leave the machine.
class Tab {
  constructor(chromium, sessionId) {
    this.chromium = chromium;
    this.sessionId = sessionId;
    // The only origin that may be asked for anything.
    this.origin = null;
    this.heard = [];
    this.onload = null;
  }

  async prepare() {
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await this.send(`${domain}.enable`);
    await this.send('Fetch.enable', { patterns: [{ urlPattern: '*' }] });
    // The page with the whole book prints itself, and nobody is there to close the dialogue.
    await this.beforeEachPage('window.print = () => {};');
  }

  send(method, params) {
    return this.chromium.send(method, params, this.sessionId);
  }

  beforeEachPage(source) {
    return this.send('Page.addScriptToEvaluateOnNewDocument', { source });
  }

  async forget({ identifier }) {
    await this.send('Page.removeScriptToEvaluateOnNewDocument', { identifier });
  }

  // Loads `url`; resolves when everything that belongs to it is there.
  async open(url) {
    let timer;
    const loaded = new Promise((resolve, reject) => {
      this.onload = resolve;
      timer = setTimeout(() => reject(new Error(`${url}: not loaded in ${COMMAND_MS} ms`)), COMMAND_MS);
    });
    try {
      const { errorText } = await this.send('Page.navigate', { url });
      if (errorText) throw new Error(`${url}: ${errorText}`);
      await loaded;
    } finally {
      clearTimeout(timer);
    }
  }

  // Runs `call`, a function, in the page, and resolves to what it returns.
  async evaluate(call, ...parameters) {
    const expression = typeof call === 'string'
      ? call
      : `(${call})(${parameters.map((it) => JSON.stringify(it)).join(', ')})`;
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    }
    return result.value;
  }

  // What has been heard since the last call: `{ kind: 'error' | 'outside', what }`.
  told() {
    return this.heard.splice(0);
  }

  hear(event, it) {
    const error = (what) => this.heard.push({ kind: 'error', what });
    if (event === 'Page.loadEventFired') this.onload?.();
    if (event === 'Fetch.requestPaused') this.judge(it);
    if (event === 'Network.webSocketCreated') this.leaves(it.url);
    if (event === 'Runtime.exceptionThrown') {
      const { exception, text, url, lineNumber } = it.exceptionDetails;
      error(`${exception?.description?.split('\n')[0] ?? text} (${url ?? 'inline'}:${lineNumber + 1})`);
    }
    if (event === 'Runtime.consoleAPICalled' && ['error', 'assert'].includes(it.type)) {
      error(`console.${it.type}: ${it.args.map((arg) => arg.value ?? arg.description).join(' ')}`);
    }
    // A request that was refused here is told as such.
    if (event === 'Log.entryAdded' && it.entry.level === 'error'
        && !it.entry.text.includes('ERR_BLOCKED_BY_CLIENT')) {
      error(`${it.entry.text}${it.entry.url ? ` (${it.entry.url})` : ''}`);
    }
    if (event === 'Page.javascriptDialogOpening') {
      error(`a dialogue opens: ${it.message}`);
      this.send('Page.handleJavaScriptDialog', { accept: false }).catch(() => {});
    }
  }

  // Lets a request through to the book's server only.
  judge({ requestId, request }) {
    const stays = new URL(request.url).origin === this.origin || /^(data|blob|about):/.test(request.url);
    if (!stays) this.leaves(request.url);
    const [method, params] = stays
      ? ['Fetch.continueRequest', { requestId }]
      : ['Fetch.failRequest', { requestId, errorReason: 'BlockedByClient' }];
    // The page may have gone on meanwhile: then there is nothing to answer.
    this.send(method, params).catch(() => {});
  }

  leaves(url) {
    this.heard.push({ kind: 'outside', what: url });
  }
}
