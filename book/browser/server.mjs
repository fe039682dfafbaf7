// The book on a port of this machine's own, as a web server would give it.

import { createReadStream, existsSync, readdirSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};

// What mdBook shows in a frame of every page when there is no script: no page that is read by itself.
const FRAME = 'toc.html';

// The pages of the book in `folder`, as paths below it.
export function pagesOf(folder) {
  return readdirSync(folder, { recursive: true })
    .filter((it) => it.endsWith('.html') && it !== FRAME)
    .sort();
}

// Serves `folder` on a free port of 127.0.0.1. Resolves to `{ origin, has(path), close() }`.
export async function serve(folder) {
  const has = (path) => {
    const file = join(folder, normalize(`/${path}`));
    return existsSync(file) && statSync(file).isFile();
  };
  const server = createServer(({ url }, response) => {
    const asked = decodeURIComponent(new URL(url, 'http://127.0.0.1').pathname);
    const path = asked.endsWith('/') ? `${asked}index.html` : asked;
    if (!has(path)) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': TYPES[extname(path)] ?? 'application/octet-stream' });
    createReadStream(join(folder, normalize(path))).pipe(response);
  });
  await new Promise((resolve, reject) => {
    server.once('error', reject).listen(0, '127.0.0.1', resolve);
  });
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    has,
    close: () => new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    }),
  };
}
