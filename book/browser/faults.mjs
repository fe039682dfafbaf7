// A small book with one fault on each page, and pages without any: what the check has to find, and only that.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

// In which form mdBook keeps and wears a theme.
const STYLE = `
:root, .light, .rust { --fg: #000; --bg: #fff; --hue: #1F3A93; }
.coal, .navy, .ayu { --fg: #bcbdd0; --bg: #161923; --hue: #67D5F0; }
@media (prefers-color-scheme: dark) {
  html:not(.js) { --fg: #bcbdd0; --bg: #161923; --hue: #67D5F0; }
}
body { color: var(--fg); background: var(--bg); margin: 8px; }
a { color: inherit; }
figure { margin: 0; }
figure svg { display: block; max-width: 100%; }
figure text { fill: currentColor; }
figure .line { fill: none; stroke: var(--hue); stroke-width: 3; }
@media print {
  :root, .light, .rust, .coal, .navy, .ayu { --fg: #000; --bg: #fff; --hue: #1F3A93; }
  figure details::details-content { content-visibility: visible; block-size: auto; }
}
`;

const THEME = `
let theme = null;
try { theme = localStorage.getItem('mdbook-theme'); } catch (e) {}
document.documentElement.classList.remove('light');
document.documentElement.classList.add('js', theme || 'light');
`;

// A drawing of its own kind: `inside` is what it shows, `attributes` how.
function figure(inside, attributes = '', below = '') {
  return `<figure><svg viewBox="0 0 300 60" width="300" height="60" role="img" aria-label="A figure" ${attributes}>
${inside}</svg><figcaption>A figure${below}</figcaption></figure>`;
}

const LINE = '<path class="line" d="M10,50 L290,10"/>';
const NUMBERS = '<details><summary>Show the numbers</summary><table><tr><th>step</th></tr><tr><td>1</td></tr></table></details>';

// By page: which checks have to find something, what the first of them says, and the page.
export const FAULTS = {
  'index.html': { checks: [], says: '', body: '' },
  'sound.html': {
    checks: [],
    says: '',
    body: `${figure(`${LINE}<rect x="100" y="20" width="90" height="20" fill="#222"/>
<text x="145" y="34" text-anchor="middle" style="fill: #fff">on dark</text><text x="10" y="20">a label</text>`, '', NUMBERS)}
<h2 id="below">Below</h2><p><a href="#below">here</a>, <a href="index.html">there</a>,
<a href="https://stalled-client.invalid/">outside, where nobody is asked</a></p>
<div class="table-wrapper" style="width: 200px; overflow-x: auto"><table style="width: 800px"><tr><th>wide</th></tr></table></div>
<pre><code class="hljs" style="display: block; overflow-x: auto">
${'a long line of code '.repeat(20)}<span style="color: #888">pale</span></code></pre>`,
  },
  'sound-twice.html': {
    checks: [],
    says: '',
    body: `<style>.narrow { display: none } @media (max-width: 400px) { .narrow { display: block } .wide { display: none } }</style>
<figure>${['wide', 'narrow'].map((it) => `<svg class="${it}" viewBox="0 0 300 60" width="300" height="60" role="img" aria-labelledby="t-${it}">
<title id="t-${it}">Drawn twice</title>${LINE}</svg>`).join('')}</figure>`,
  },
  'neither.html': {
    checks: ['narrow'],
    says: 'not displayed',
    body: `<style>.wide-only { display: block } @media (max-width: 400px) { figure svg.wide-only { display: none } }</style>${figure(LINE, 'class="wide-only"')}`,
  },
  'console-error.html': { checks: ['loads'], says: 'went wrong', body: '<script>console.error("went wrong")</script>' },
  'exception.html': { checks: ['loads'], says: 'nobody caught', body: '<script>throw new Error("nobody caught")</script>' },
  'missing-file.html': { checks: ['loads'], says: '404', body: '<script src="nowhere.js"></script>' },
  'outside-request.html': {
    checks: ['loads'],
    says: 'https://stalled-client.invalid/font.css leaves',
    body: '<link rel="stylesheet" href="https://stalled-client.invalid/font.css">',
  },
  'outside-script.html': {
    checks: ['loads'],
    says: 'https://stalled-client.invalid/ask leaves',
    body: '<script>fetch("https://stalled-client.invalid/ask").catch(() => {})</script>',
  },
  'broken-link.html': { checks: ['links'], says: 'nowhere.html is not in', body: '<a href="nowhere.html">nowhere</a>' },
  'broken-anchor.html': { checks: ['links'], says: 'no #gone', body: '<a href="sound.html#gone">gone</a>' },
  'two-names.html': { checks: ['links'], says: '#one', body: '<p id="one">One</p><p id="one">Two</p>' },
  'orphan.html': { checks: ['links'], says: 'no page leads to it', body: '' },
  'dark-line.html': {
    checks: ['figures', 'narrow'],
    says: 'navy',
    body: `<style>.js.navy .dark { stroke: #161923 } @media print { .js.js.js .dark { stroke: var(--hue) } }</style>
${figure('<path class="line dark" d="M10,50 L290,10"/>')}`,
  },
  'dark-bars.html': {
    checks: ['figures'],
    says: 'nothing in it has a contrast',
    body: `<style>.js.coal .bar { fill: #222 }</style>
${figure('<rect class="bar" fill="#777" x="10" y="5" width="20" height="50"/><rect class="bar" fill="#777" x="50" y="20" width="20" height="35"/>')}`,
  },
  'straight-line.html': {
    checks: ['figures'],
    says: 'a line',
    body: `<style>.js.rust .straight { stroke: #ddd }</style>
${figure(`${LINE}<path class="straight" stroke="#808080" stroke-width="4" d="M10,30 H290"/>`)}`,
  },
  'dark-text.html': {
    checks: ['figures'],
    says: '"black on ayu"',
    body: `<style>.js.ayu .dark { fill: #333 }</style>
${figure(`${LINE}<text class="dark" x="10" y="20">black on ayu</text>`)}`,
  },
  'picture.html': {
    checks: ['figures', 'without_javascript', 'narrow'],
    says: 'does not stand out',
    body: '<figure><img src="black.svg" alt="A picture" width="200" height="60"></figure>',
  },
  'no-picture.html': {
    checks: ['loads', 'figures', 'without_javascript', 'narrow', 'print'],
    says: 'nowhere.svg',
    body: '<figure><img src="nowhere.svg" alt="A picture" width="200" height="60"></figure>',
  },
  'transparent.html': {
    checks: ['figures', 'narrow'],
    says: 'opacity',
    body: `<style>@media screen { .js .pale { opacity: 0.1 } }</style>${figure(LINE, 'class="pale"')}`,
  },
  'hidden.html': {
    checks: ['print'],
    says: 'not displayed',
    body: `<style>@media print { figure { display: none } }</style>${figure(LINE)}`,
  },
  'script-only.html': {
    checks: ['without_javascript'],
    says: '0 of 1 figures',
    body: `<div id="drawn"></div><script>document.getElementById('drawn').innerHTML = ${JSON.stringify(figure(LINE))}</script>`,
  },
  'dark-system.html': {
    checks: ['without_javascript'],
    says: 'dark system',
    body: `<style>html:not(.js) .navy-only { stroke: #1F3A93 }</style>${figure('<path class="line navy-only" d="M10,50 L290,10"/>')}`,
  },
  'overflow.html': { checks: ['narrow'], says: 'reaches to', body: '<p style="width: 500px">Too wide for a telephone</p>' },
  'long-word.html': { checks: ['narrow'], says: 'reaches to', body: `<p>${'one_long_word_'.repeat(8)}</p>` },
  'tiny-letters.html': {
    checks: ['narrow'],
    says: 'letters of',
    body: figure(`${LINE}<text x="10" y="20" font-size="5">tiny</text>`),
  },
  'print-folded.html': {
    checks: ['print'],
    says: 'stays closed on paper',
    body: `<style>@media print { figure .folded details::details-content { content-visibility: hidden; block-size: 0 } }</style>
<div>${figure(LINE, '', `<div class="folded">${NUMBERS}</div>`)}</div>`,
  },
  'print-pale.html': {
    checks: ['print'],
    says: 'printed from navy',
    body: `<style>@media print { .navy .pale { stroke: #eee } }</style>${figure('<path class="line pale" d="M10,50 L290,10"/>')}`,
  },
  'axe.html': { checks: ['axe'], says: 'image-alt', body: '<img src="black.svg" width="20" height="20">' },
  'axe-scroller.html': {
    checks: ['axe'],
    says: 'scrollable-region-focusable',
    body: '<div style="width: 200px; overflow-x: auto"><p style="width: 800px">A box of our own, without the keyboard</p></div>',
  },
  'axe-ayu.html': {
    checks: ['axe'],
    says: 'ayu',
    body: '<style>.ayu p { color: #444 }</style><p>Dark on dark in one theme</p>',
  },
  'axe-contrast.html': { checks: ['axe'], says: 'color-contrast', body: '<p style="color: #888">Grey on white or on navy</p>' },
};

// Nothing leads to this one: that is its fault.
const UNLINKED = 'orphan.html';

export async function writeFaultyBook(folder) {
  const links = Object.keys(FAULTS)
    .filter((it) => it !== UNLINKED)
    .map((it) => `<li><a href="${it}">${it}</a></li>`);
  FAULTS['index.html'].body = `<ul>${links.join('')}</ul>`;
  for (const [page, { body }] of Object.entries(FAULTS)) {
    await writeFile(join(folder, page), `<!DOCTYPE html>
<html lang="en" class="light"><head><meta charset="utf-8"><title>${page}</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width"><style>${STYLE}</style><script>${THEME}</script></head>
<body><main><h1>${page}</h1>
${body}
</main></body></html>
`);
  }
  const picture = (fill) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 60" width="200" height="60"><path d="M0,30 H200" stroke="${fill}" stroke-width="4"/></svg>`;
  await writeFile(join(folder, 'black.svg'), picture('#000'));
  await writeFile(join(folder, 'grey.svg'), picture('#808080'));
}
