// The page: numbers and tables, the reader's view of the chart, and the reader's actions.

const $ = id => document.getElementById(id);
const root = document.documentElement;
const MOST_ROWS = 16; // devices up to which the table per device is open at first
const BY = { mb: 'microbatch', device: 'device', stage: 'stage' }; // highlights of the address after #
const view = { range: [0, 1], highlight: null, critical: false, causes: false, links: true, curve: -1, op: null, selected: null, rows: null, pinned: [] };
let shown = null; // geometry and panels of the last drawing
let curveNames = '';

/** Return a new element with properties and children. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties))
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const bold = textContent => element('b', { textContent });

const chartBox = () => $('chart').getBoundingClientRect();

/** Show a button as pressed or not. */
const press = (id, on) => $(id).setAttribute('aria-pressed', on);

/** Return the columns of numbers for a place of the page. */
const columnsOf = place => REPORT.columns.filter(({ places }) => places.includes(place));

const countText = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;
const shapeOf = t =>
  `${countText(t.devices, 'device')} × ${countText(t.chunks, 'chunk')} = ${countText(t.stages, 'stage')}, ${t.work}`;

function showHeader() {
  const shapes = new Set(TIMELINES.map(shapeOf));
  const sizes = new Set(TIMELINES.map(t => `${countText(t.devices, 'device')}, ${t.work}`));
  $('shape').textContent = [...(shapes.size === 1 ? shapes : sizes)].join(' · ');
  const { command } = REPORT.inputs;
  $('command').hidden = !command;
  $('command').textContent = command ?? '';
  $('command').onclick = () => copyText(command, 'Command copied', say, () => $('command'));
}

function cards(timeline) {
  const known = ({ key }) => !timeline.edited || timeline.numbers[key].text !== '-';
  const entries = columnsOf('cards').filter(known).map(({ key, heading }) => [heading, timeline.numbers[key]]);
  if (timeline.peak_memory) entries.push(['peak memory', timeline.peak_memory]);
  return element('dl', { className: 'cards' }, ...entries.map(([name, { text, note }]) => element(
    'div', {}, element('dt', { textContent: name }), element('dd', { className: 'value', textContent: text }),
    element('dd', { textContent: note }),
  )));
}

/** Return a table that scrolls if it is wider than the page. */
const sliding = (label, className, ...rows) => element('div', { className: 'scroll', tabIndex: 0, role: 'group', 'aria-label': label },
  element('table', { className, 'aria-label': label }, ...rows));

function table(head, rows, caption) {
  const cell = (name, content) => element(name, { textContent: content });
  return sliding(caption, '', element('thead', {}, element('tr', {}, ...head.map(content => cell('th', content)))),
    element('tbody', {}, ...rows.map(row => element('tr', {}, ...row.map(content => cell('td', content))))));
}

function comparison() {
  const shown = columnsOf('page');
  const head = ['schedule', ...shown.flatMap(({ key, heading }) => key === 'makespan' ? [heading, 'versus baseline'] : [heading.replaceAll('_', '_\u200b')])];
  const rows = TIMELINES.map((t, i) => [t.title, ...shown.flatMap(({ key }) => {
    const text = t.numbers[key].text;
    return key === 'makespan' ? [text, i === t.baseline ? 'baseline' : change(t.versus_baseline)] : [text];
  })]);
  return table(head, rows, 'Comparison');
}

/** Return a device's idle share of the iteration; of an order that cannot run, until the last op that can. */
function idleShare({ idle, makespan, edited }, device) {
  const whole = edited ? edited.makespan : makespan;
  return whole ? idle[device] / whole : 0;
}

function perDevice(timeline) {
  const [busy, idle] = [timeline.busy, timeline.idle].map(inColumn);
  const rows = busy.map((_, device) => [
    `device ${device}`, timeline.offsets[device + 1] - timeline.offsets[device], busy[device], idle[device], percent(idleShare(timeline, device)),
    timeline.peak_activations[device], ...(timeline.peak_memory ? [timeline.held[device]] : []),
  ]);
  const head = ['device', 'ops', `busy (${REPORT.unit})`, `idle (${REPORT.unit})`, 'idle share', 'peak activations',
    ...(timeline.peak_memory ? ['peak memory'] : [])];
  const open = TIMELINES.length === 1 && timeline.devices <= MOST_ROWS;
  const heading = TIMELINES.length === 1 ? 'Per device' : `Per device: ${timeline.title}`;
  return element('details', { open }, element('summary', { textContent: heading }), table(head, rows, heading));
}

const isDark = () => root.dataset.theme === 'dark';

/** Return the background of a legend's box: one colour, a hatch, or several colours in a row. */
function boxOf({ colours, hatch, bubble, cause }) {
  if (cause >= 0) return causeFill(cause, isDark());
  if (bubble) return LOOKS.bubble[+isDark()];
  if (hatch) return `repeating-linear-gradient(135deg, ${hatch} 0 2px, ${colours[0]} 2px 5px)`;
  const wide = 100 / colours.length;
  const parts = colours.map((colour, place) => `${colour} ${place * wide}% ${(place + 1) * wide}%`);
  return colours[1] ? `linear-gradient(90deg, ${parts})` : colours[0];
}

function showLegend() {
  const entries = (editable() ? legendOfEdits() : REPORT.legend).filter(({ cause, bubble }) => !(view.causes ? bubble && known() : cause >= 0));
  $('legend').replaceChildren(...entries.map(entry => {
    const swatch = element('span', { className: 'swatch' });
    swatch.style.background = boxOf(entry);
    return element('li', { className: entry.low ? 'lane' : '' }, swatch, entry.name);
  }));
}

function showCurveChoice() {
  const names = [...new Set(TIMELINES.flatMap(t => t.curves.map(curve => curve.name)))];
  const stacked = TIMELINES[0].curves.findIndex(curve => curve.parts);
  const special = TIMELINES.some(t => t.curves.length < names.length); // a curve of some timelines only is the subject of the page
  $('curve').replaceChildren(...names.map((name, i) => new Option(name, i)), new Option('no curve', -1));
  if (names.join() !== curveNames) // else a live page keeps the reader's choice
    view.curve = stacked >= 0 ? stacked : special ? names.length - 1 : TIMELINES.length === 1 || REPORT.memory ? 0 : -1;
  curveNames = names.join();
  $('curve').value = view.curve;
  $('curve').onchange = () => { view.curve = +$('curve').value; draw(); };
}

function describe() {
  const numbers = t => columnsOf('line').map(({ key, heading }) => `${heading} ${t.numbers[key].text}`);
  return TIMELINES.map(t => `${t.title}: ${[shapeOf(t), ...numbers(t)].join(', ')}`).join('. ');
}

const say = message => { $('status').textContent = message; };

/** Describe the highlighted ops of the first timeline in the status line. */
function sayPicked() {
  const [timeline] = TIMELINES;
  if (view.critical) {
    const cells = criticalPath(timeline);
    return say(`Critical path: ${cells.length} ops in a row, ${timed(timeline.makespan)}`);
  }
  if (!view.highlight) return folded ? sayFold(timeline) : say('');
  const { by, value } = view.highlight;
  const ops = opsWhere(timeline, chooser(timeline, view));
  if (!ops.length) return say(`No op of ${by} ${value}`);
  const first = ops.reduce((time, op) => Math.min(time, timeline.ops.start[op]), Infinity);
  const last = ops.reduce((time, op) => Math.max(time, timeline.ops.end[op]), 0);
  const what = by === 'microbatch' ? microbatchName(timeline, value) : `${by} ${value}`;
  return say(`${what[0].toUpperCase()}${what.slice(1)}: ${ops.length} ops, the first starts at ${number(first)}, `
    + `the last ends at ${timed(last)}`);
}

function themeNow() {
  const style = getComputedStyle(root);
  const value = name => style.getPropertyValue(name).trim();
  return {
    dark: isDark(), page: value('--page'), ink: value('--ink'), muted: value('--muted'),
    line: value('--line'),
  };
}

let wideRowsTimer = 0;

/** Make rows that are wider than the window scroll by keyboard. */
function focusWideRows() {
  for (const row of document.querySelectorAll('.cards, #legend'))
    if (row.scrollWidth > row.clientWidth) row.tabIndex = 0;
    else row.removeAttribute('tabindex');
}

const MOST_PINNED = 0.65; // share of the window's height up to which a chart stays in view above its explanation

let partsDrawn = []; // the parts of the drawing that are in the page

/** Put the parts of a drawing into the page; if their number is unchanged, only the changed parts. */
function putParts(drawn) {
  if (drawn.length !== partsDrawn.length) {
    const groups = drawn.map(part => `<g>${part}</g>`);
    $('marks').innerHTML = `<g font-family='${FONT}'>${groups.join('')}</g>`;
  } else {
    const groups = $('marks').firstElementChild.children;
    drawn.forEach((part, i) => { if (part !== partsDrawn[i]) groups[i].innerHTML = part; });
  }
  partsDrawn = drawn;
}

/** Draw the view. */
function draw(width = $('chart').clientWidth, tallest = undefined) {
  shown = geometryOf(view, width, tallest);
  const { canvases, content } = figure(view, shown, themeNow());
  for (const { canvas, left, top, width, height } of canvases)
    Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
  $('chart').style.height = `${shown.height}px`;
  $('chart').classList.toggle('pinned', Boolean(view.story) && shown.height <= MOST_PINNED * innerHeight);
  if ($('overview')) showOverview();
  const before = [...$('pixels').children];
  if (before.length !== canvases.length || canvases.some(({ canvas }, i) => canvas !== before[i]))
    $('pixels').replaceChildren(...canvases.map(({ canvas }) => canvas));
  putParts([...content, selectionMarks(shown, themeNow())]);
  if (view.story) joinTwins(joinedTwins);
  for (const item of $('legend').querySelectorAll('.lane')) item.hidden = !shown.panels.some(panel => panel.lane);
  clearTimeout(wideRowsTimer);
  wideRowsTimer = setTimeout(focusWideRows, 150); // once the view rests, as measuring is slow
  const plain = !view.highlight && !view.critical && !view.op && !editor.on;
  if (plain && !folded && TIMELINES.some(t => t.bands.length)) say(hiddenMessages(shown));
}

let waiting = false;

/** Draw with the next frame; calls before it count once. */
function drawSoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function show(from, to) {
  const whole = length();
  const width = clamp(to - from, whole * 1e-6, whole * 1.005);
  const start = clamp(from, -0.01 * whole, 1.01 * whole - width);
  view.range = width >= whole ? [0, whole * 1.005] : [start, start + width];
  hideTip();
  drawSoon();
}

function fit() {
  view.rows = null;
  show(0, length() * 1.005);
}

function zoom(factor, around = (view.range[0] + view.range[1]) / 2) {
  show(around - (around - view.range[0]) * factor, around + (view.range[1] - around) * factor);
}

function pan(share) {
  const step = share * (view.range[1] - view.range[0]);
  show(view.range[0] + step, view.range[1] + step);
}

/** Highlight a microbatch, device or stage (kept in the address), the critical path, or nothing. */
function pick(highlight, critical = false) {
  Object.assign(view, { highlight, critical, op: null });
  press('critical', critical);
  setAddress();
  sayPicked();
  hideTip();
  drawSoon();
}

let addressChangedAt = -Infinity; // time of the last change of the address
let addressTimer = 0; // timer of the next change

/** Write the highlight and the edits into the page's address. */
function setAddress() {
  clearTimeout(addressTimer);
  const wait = 200 - (performance.now() - addressChangedAt); // browsers limit how often it may change
  if (wait > 0) {
    addressTimer = setTimeout(setAddress, wait);
    return;
  }
  addressChangedAt = performance.now();
  const key = view.highlight && Object.keys(BY).find(name => BY[name] === view.highlight.by);
  const parts = [key ? `${key}=${view.highlight.value}` : '', editable() ? editsPart() : ''].filter(Boolean);
  try {
    history.replaceState(null, '', parts.length ? `#${parts.join('&')}` : location.pathname + location.search);
  } catch {
    // a sandboxed frame has no history to write to
  }
}

/** Return whether the page can edit a schedule; only then it has the editor's scripts. */
const editable = () => TIMELINES.some(({ edit }) => edit && !edit.off);

/** Return why the editor is disabled. */
const fixedReason = () => `Cannot be edited: ${TIMELINES.find(({ edit }) => edit?.off)?.edit.off}`;

function pickFromAddress() {
  const found = /^#(mb|device|stage)=(\d+)(&|$)/.exec(location.hash);
  if (found) pick({ by: BY[found[1]], value: +found[2] });
}

function step(by) {
  const at = view.highlight?.by === 'microbatch' ? view.highlight.value + by : by > 0 ? 0 : Infinity;
  pick({ by: 'microbatch', value: clamp(at, 0, Math.max(...TIMELINES.map(t => t.microbatches)) - 1) });
}

/** Scroll to an op, outline it and describe it. */
function visit(panel, op) {
  const { ops, fold } = TIMELINES[panel];
  const { device } = ops;
  view.op = { panel, op };
  if (hasManyDevices()) reveal(device[op]);
  if (fold && hidden(ops.left[op], ops.right[op])) toggleFold(false);
  const [from, to] = view.range;
  const [left, right] = [drawnAt(ops.left[op]), drawnAt(ops.right[op])];
  const wide = Math.min(to - from, (right - left) * 60 || to - from);
  const middle = (left + right) / 2;
  if (left < from || right > to || wide < to - from) show(middle - wide / 2, middle + wide / 2);
  draw();
  const { top, row, rows } = shown.panels[panel];
  const box = chartBox();
  const x = box.left + shown.left + (middle - shown.from) * shown.scale;
  tellOp(TIMELINES[panel], op, x, box.top + top + (rows[device[op]] + 1) * row);
  say($('tip').textContent.replaceAll('\n', ', '));
}

/** Visit the next or previous op on the device of the last visited op. */
function walk(by) {
  const { panel, op } = view.op ?? { panel: 0, op: view.highlight
    ? opsWhere(TIMELINES[0], chooser(TIMELINES[0], view))[0] - by : -by };
  const { offsets, ops } = TIMELINES[panel];
  const device = ops.device[Math.max(0, op)];
  visit(panel, clamp(op + by, offsets[device], offsets[device + 1] - 1));
}

/** Find a typed microbatch, op (2F5 or F5@2), device or stage. */
function find(query) {
  const words = query.trim();
  if (!words) return pick(null);
  let found = /^(?:mb|microbatch)?\s*(\d+)$/i.exec(words);
  if (found) return pick({ by: 'microbatch', value: +found[1] });
  found = /^(dev|device|stage)\s*(\d+)$/i.exec(words);
  if (found) return pick({ by: found[1].toLowerCase() === 'stage' ? 'stage' : 'device', value: +found[2] });
  found = hasManyDevices() && /^(?:devices|pin)\s*([\d\s,-]+)$/i.exec(words);
  if (found) return pinOnly(found[1]);
  found = OP.exec(words);
  const at = OP_AT_STAGE.exec(words);
  if (at) found = [null, at[3], at[1], at[2]];
  if (!found) return say(`Cannot read '${words}'; try 5, 2F5, device 3 or stage 1${hasManyDevices() ? ', or devices 0, 4-7' : ''}`);
  const label = `${+found[1]}${found[2].toUpperCase()}${+found[3]}`;
  const panel = TIMELINES.findIndex(t => opsWhere(t, op => labelOf(t, op) === label).length);
  if (panel < 0) return say(`No op ${label}`);
  const [op] = opsWhere(TIMELINES[panel], other => labelOf(TIMELINES[panel], other) === label);
  pick({ by: 'microbatch', value: +found[3] });
  return visit(panel, op);
}
