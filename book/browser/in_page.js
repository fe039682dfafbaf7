// What is looked at from inside a page. The check puts this file into each page that it has loaded.
//
// A finding is `{ where, what, remedy }`: the element, what is wrong with it, what mends it.

globalThis.reader = (() => {
  // Contrast that the Web Content Accessibility Guidelines (2.1, AA) ask for: text, large text, graphics.
  const TEXT_CONTRAST = 4.5;
  const LARGE_TEXT_CONTRAST = 3;
  const GRAPHIC_CONTRAST = 3;
  // A line thinner than this may be faint, as that of a grid may; but not as faint as nothing.
  const BOLD_LINE_PX = 2;
  const FAINT_CONTRAST = 1.1;
  // A picture whose pixels stand out from the page in less than one of this many shows nothing.
  const PIXELS_PER_INK = 1000;
  // Letters lower than this are a texture, whatever their contrast.
  const LETTERS_PX = 8;

  // The figures, but not the little signs that mdBook puts beside notes and on buttons.
  const FIGURES = 'main figure svg, main figure img, main p > img, main svg[role="img"]';

  // How long a style sheet of the book may take.
  const SHEETS_MS = 10_000;

  const WHITE = [255, 255, 255, 1];

  function figures() {
    return [...document.querySelectorAll(FIGURES)].filter((it) => !it.parentElement.closest('svg'));
  }

  // A name by which somebody who edits the page finds the element.
  function name(element) {
    const figure = element.closest('figure, svg, img');
    const title = figure?.querySelector('svg title, title')?.textContent.trim() || figure?.getAttribute('alt');
    const said = element.closest('svg') && element.textContent.trim();
    const parts = [element.localName];
    if (element.id) parts.push(`#${element.id}`);
    if (element.getAttribute('class')) parts.push(`.${element.getAttribute('class').trim().replaceAll(/\s+/g, '.')}`);
    if (said && !element.matches('svg')) parts.push(` "${said.slice(0, 40)}"`);
    if (title) parts.push(` of the figure "${title.slice(0, 60)}"`);
    return parts.join('');
  }

  // ---------------------------------------------------------------------------------------------
  // Colours.

  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const colours = new Map();

  // [red, green, blue, alpha] of whatever CSS calls a colour.
  function colour(css) {
    if (!colours.has(css)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = css;
      context.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
      colours.set(css, [r, g, b, a / 255]);
    }
    return colours.get(css);
  }

  function over([r, g, b, a], below, opacity = 1) {
    const part = a * opacity;
    return [...[r, g, b].map((it, at) => it * part + below[at] * (1 - part)), 1];
  }

  function luminance(rgb) {
    const [r, g, b] = rgb.map((it) => {
      const part = it / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function contrast(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }

  function hex(rgb) {
    return `#${rgb.slice(0, 3).map((it) => Math.round(it).toString(16).padStart(2, '0')).join('')}`;
  }

  // What is behind a figure. A printer leaves backgrounds out, so that on paper it is white.
  function ground(element, paper) {
    if (paper) return WHITE;
    const layers = [];
    for (let it = element; it; it = it.parentElement) {
      const layer = colour(getComputedStyle(it).backgroundColor);
      layers.unshift(layer);
      if (layer[3] === 1) break;
    }
    return layers.reduce((below, layer) => over(layer, below), WHITE);
  }

  function opacity(element) {
    let all = 1;
    for (let it = element; it; it = it.parentElement) all *= Number(getComputedStyle(it).opacity);
    return all;
  }

  // ---------------------------------------------------------------------------------------------
  // Figures.

  function isShown(figure) {
    return figure.checkVisibility({ visibilityProperty: true });
  }

  // A figure may be drawn twice, for a wide page and for a narrow one, of which one is shown.
  function hasStandIn(figure) {
    const title = (it) => it.querySelector('title')?.textContent;
    const others = [...figure.closest('figure')?.querySelectorAll('svg') ?? []];
    return !isShown(figure) && others.some((it) => it !== figure && isShown(it) && title(it) === title(figure));
  }

  // What keeps a figure from being seen, on the screen or on paper.
  function unseen(figure) {
    const { width, height } = figure.getBoundingClientRect();
    if (!isShown(figure)) return 'is not displayed';
    if (width < 8 || height < 8) return `is ${Math.round(width)} × ${Math.round(height)} px`;
    if (opacity(figure) < 0.5) return `has an opacity of ${opacity(figure)}`;
    if (figure.localName === 'img' && !(figure.complete && figure.naturalWidth)) return 'is not loaded';
    if (figure.localName === 'svg' && !figure.querySelector('path, line, rect, circle, polyline, text, use')) {
      return 'is empty';
    }
    return null;
  }

  function lookAtFigures(paper) {
    const found = [];
    for (const figure of figures().filter((it) => !hasStandIn(it))) {
      const why = unseen(figure);
      if (why) {
        found.push({ where: name(figure), what: why, remedy: 'give it a size and let it be shown' });
      } else if (figure.localName === 'img') {
        found.push(...lookAtPicture(figure, ground(figure, paper)));
      } else {
        found.push(...lookAtDrawing(figure, ground(figure, paper)));
      }
    }
    return found;
  }

  function lookAtPicture(image, below) {
    const area = document.createElement('canvas');
    area.width = Math.min(image.width, 800);
    area.height = Math.max(1, Math.round((image.height * area.width) / image.width));
    const draw = area.getContext('2d');
    draw.fillStyle = hex(below);
    draw.fillRect(0, 0, area.width, area.height);
    draw.drawImage(image, 0, 0, area.width, area.height);
    const { data } = draw.getImageData(0, 0, area.width, area.height);
    let ink = 0;
    for (let at = 0; at < data.length; at += 4) {
      if (contrast([data[at], data[at + 1], data[at + 2]], below) >= GRAPHIC_CONTRAST) ink += 1;
    }
    if (ink * PIXELS_PER_INK >= area.width * area.height) return [];
    return [{
      where: name(image),
      what: `does not stand out from the page, which is ${hex(below)}`,
      remedy: 'a picture cannot follow the theme: put the SVG itself into the page, or give it a ground of its own',
    }];
  }

  function lookAtDrawing(svg, page) {
    const found = [];
    const below = [];
    let most = 1;
    for (const shape of svg.querySelectorAll('path, line, rect, circle, ellipse, polyline, polygon, text')) {
      if (shape.closest('defs, marker, clipPath, mask, pattern, symbol')) continue;
      const style = getComputedStyle(shape);
      if (!shape.checkVisibility({ visibilityProperty: true })) continue;
      const alpha = opacity(shape);
      const paint = (kind) => (/^(none|url)/.test(style[kind])
        ? null
        : [...colour(style[kind]).slice(0, 3), colour(style[kind])[3] * alpha * Number(style[`${kind}Opacity`])]);
      const fill = paint('fill');
      if (shape.localName === 'text') {
        if (shape.textContent.trim()) found.push(...lookAtText(shape, style, fill, below, page));
        continue;
      }
      const stroke = paint('stroke');
      for (const it of [fill, stroke]) most = Math.max(most, it ? contrast(over(it, page), page) : 1);
      found.push(...lookAtLine(shape, style, fill, stroke, page));
      if (fill && fill[3] > 0 && shape.localName !== 'line') below.push({ shape, fill });
    }
    if (most < GRAPHIC_CONTRAST) {
      found.push({
        where: name(svg),
        what: `nothing in it has a contrast of more than ${most.toFixed(1)} on ${hex(page)}`,
        remedy: 'let its fills and strokes be currentColor or a hue that the theme defines',
      });
    }
    return found;
  }

  function lookAtText(text, style, fill, below, page) {
    const box = text.getBBox();
    const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2).matrixTransform(text.getScreenCTM());
    // What was painted before it, where its middle is.
    const ground = below
      .filter(({ shape }) => shape.isPointInFill(middle.matrixTransform(shape.getScreenCTM().inverse())))
      .reduce((colour, { fill }) => over(fill, colour), page);
    const seen = fill ? over(fill, ground) : ground;
    const px = parseFloat(style.fontSize);
    const large = px >= 24 || (px >= 18.66 && Number(style.fontWeight) >= 700);
    const needed = large ? LARGE_TEXT_CONTRAST : TEXT_CONTRAST;
    const has = contrast(seen, ground);
    if (has >= needed) return [];
    return [{
      where: name(text),
      what: `${hex(seen)} on ${hex(ground)} is a contrast of ${has.toFixed(2)}, not ${needed}`,
      remedy: 'let its fill be currentColor, the colour of the page\'s text',
    }];
  }

  function lookAtLine(shape, style, fill, stroke, page) {
    const box = shape.getBBox();
    // Whether there is an area; a straight line has none, whatever it is to be filled with.
    const isFilled = fill && fill[3] > 0 && box.width > 0 && box.height > 0;
    if (isFilled || !stroke || stroke[3] === 0) return [];
    const px = parseFloat(style.strokeWidth) * scale(shape);
    const needed = px >= BOLD_LINE_PX ? GRAPHIC_CONTRAST : FAINT_CONTRAST;
    const seen = over(stroke, page);
    const has = contrast(seen, page);
    if (px === 0 || has >= needed) return [];
    return [{
      where: name(shape),
      what: `a line ${hex(seen)} on ${hex(page)} is a contrast of ${has.toFixed(2)}, not ${needed}`,
      remedy: 'let its stroke be currentColor or a hue that the theme defines',
    }];
  }

  // How many pixels of the screen a unit of the drawing has.
  function scale(shape) {
    const { a, b } = shape.getScreenCTM();
    return Math.hypot(a, b);
  }

  function lookAtLetters() {
    const found = [];
    for (const figure of figures().filter((it) => it.localName === 'svg' && isShown(it))) {
      const heights = [...figure.querySelectorAll('text')]
        .filter((it) => it.textContent.trim() && it.checkVisibility())
        .map((it) => parseFloat(getComputedStyle(it).fontSize) * scale(it));
      const least = Math.min(...heights);
      if (least < LETTERS_PX) {
        found.push({
          where: name(figure),
          what: `letters of ${least.toFixed(1)} px, not ${LETTERS_PX}`,
          remedy: 'give the drawing a least width, and let its own box scroll',
        });
      }
    }
    return found;
  }

  // ---------------------------------------------------------------------------------------------
  // The page.

  // Anchors and links, and what is named twice so that an anchor leads to the first only.
  function lookAtLinks() {
    const names = [...document.querySelectorAll('[id]')].map((it) => it.id);
    return {
      anchors: [...names, ...[...document.querySelectorAll('a[name]')].map((it) => it.name)],
      twice: [...new Set([...document.querySelectorAll('main [id]')].map((it) => it.id)
        .filter((it) => names.indexOf(it) !== names.lastIndexOf(it)))],
      links: [...document.querySelectorAll('a[href]')].map((it) => ({
        href: it.href,
        written: it.getAttribute('href'),
        text: it.textContent.trim().slice(0, 40) || it.title,
        ours: Boolean(it.closest('main')),
      })),
    };
  }

  // What the reader gets without a script: how much text, how many figures.
  function content() {
    const main = document.querySelector('main');
    return { words: main?.textContent.trim().split(/\s+/).length ?? 0, figures: figures().length };
  }

  function lookAtWidth() {
    const root = document.scrollingElement;
    const width = root.clientWidth;
    if (root.scrollWidth <= width) return [];
    const found = [];
    for (const it of document.querySelectorAll('main, main *')) {
      // A long word leaves the box of its paragraph.
      const { right, width: own } = extent(it);
      const scrolls = it.parentElement.closest('pre, .table-wrapper') ?? scroller(it.parentElement);
      if (own === 0 || right + scrollX <= width + 0.5 || scrolls) continue;
      // The innermost says most.
      while (found.length && found.at(-1).element.contains(it)) found.pop();
      found.push({ element: it, px: Math.round(right + scrollX) });
    }
    const remedy = 'let it wrap (overflow-wrap: anywhere) or scroll in a box of its own (overflow-x: auto)';
    const told = found.map(({ element, px }) => ({
      where: `${name(element)} "${element.textContent.trim().slice(0, 30)}"`,
      what: `reaches to ${px} px of ${width} px`,
      remedy,
    }));
    return told.length ? told : [{ where: 'the page', what: `is ${root.scrollWidth} px wide, not ${width} px`, remedy }];
  }

  function extent(element) {
    const words = document.createRange();
    words.selectNodeContents(element);
    const [one, other] = [element.getBoundingClientRect(), words.getBoundingClientRect()];
    return one.right > other.right ? one : other;
  }

  function scroller(element) {
    for (let it = element; it && it !== document.body; it = it.parentElement) {
      if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(it).overflowX)) return it;
    }
    return null;
  }

  // On paper nobody can open anything: what a figure keeps behind "show the numbers" has to stand there.
  function lookAtFolded() {
    return [...document.querySelectorAll('main figure details')]
      .filter((it) => [...it.children].some((child) => {
        const { height } = child.getBoundingClientRect();
        return child.localName !== 'summary' && child.textContent.trim()
          && !(height > 0 && child.checkVisibility({ visibilityProperty: true }));
      }))
      .map((it) => ({
        where: `details "${it.querySelector('summary')?.textContent.trim()}" (${name(it.closest('figure'))})`,
        what: 'stays closed on paper',
        remedy: '@media print { figure details::details-content { content-visibility: visible; block-size: auto } }',
      }));
  }

  function unfold() {
    for (const it of document.querySelectorAll('main details')) it.open = true;
  }

  // As the reader does it. A page without mdBook's list of themes only has the name to change.
  async function wear(theme, all) {
    const button = document.getElementById(`mdbook-theme-${theme}`);
    if (button) button.click();
    else document.documentElement.classList.replace(all.find((it) => document.documentElement.matches(`.${it}`)), theme);
    if (!document.documentElement.matches(`.${theme}`)) throw new Error(`the theme ${theme} cannot be chosen`);
    // A style sheet that is switched on again is loaded again.
    const sheets = [...document.querySelectorAll('link[rel="stylesheet"]')];
    const end = performance.now() + SHEETS_MS;
    while (sheets.some((it) => !it.disabled && !it.sheet)) {
      if (performance.now() > end) throw new Error(`the style sheets of ${theme} are not loaded`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  // Half a second of changing colours would be measured halfway.
  function stand() {
    const style = document.createElement('style');
    style.textContent = '*, ::before, ::after { transition: none !important; animation: none !important; }';
    document.head.append(style);
  }

  // What axe finds in <main>, by all rules or by these, but not in the elements that are somebody else's, and
  // without what is excused.
  async function accessible(others, excused, rules) {
    const options = { resultTypes: ['violations'], elementRef: true };
    if (rules) options.runOnly = rules;
    const exclude = others.filter((it) => document.querySelector(`main ${it}`)).map((it) => [`main ${it}`]);
    const { violations } = await axe.run({ include: [['main']], exclude }, options);
    const found = [];
    for (const rule of violations) {
      for (const node of rule.nodes) {
        if (excused.some((it) => it.rule === rule.id && node.element?.matches(it.element))) continue;
        const said = [...node.any, ...node.all, ...node.none].map((it) => it.message);
        found.push({
          where: `${node.target.flat().join(' ')}: ${node.html.replaceAll(/\s+/g, ' ').slice(0, 100)}`,
          what: `${rule.id}: ${said[0] ?? rule.description}`,
          remedy: rule.help,
        });
      }
    }
    return found;
  }

  return {
    accessible, content, lookAtFigures, lookAtFolded, lookAtLetters, lookAtLinks, lookAtWidth, stand, unfold, wear,
  };
})();
