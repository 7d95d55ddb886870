// The reader's actions: pointer, keyboard, buttons, printing and saving; and the start of the page.

/** Return whether a timeline has strips of links. */
const hasLinks = () => TIMELINES.some(timeline => timeline.links?.names.length);

const curveRow = panel => panel.curveHeight / panel.devices.length;

/** Return the panel, device and time under the pointer, and whether it is over a curve; null outside the chart. */
function place(event) {
  if (!shown) return null;
  const box = chartBox();
  const [x, y] = [event.clientX - box.left - shown.left, event.clientY - box.top];
  if (x < 0 || x > shown.plotWidth) return null;
  const time = timeAt(shown.from + x / shown.scale);
  for (const [index, panel] of shown.panels.entries()) {
    if (y >= panel.top && y < panel.top + panel.height)
      return {
        index, panel, time, device: panel.devices[Math.floor((y - panel.top) / panel.row)], curve: false,
        high: (y - panel.top) / panel.row % 1,
      };
    if (panel.linkTop && y >= panel.linkTop && y < panel.linkTop + panel.timeline.links.names.length * linkRow())
      return { index, panel, time, link: Math.floor((y - panel.linkTop) / linkRow()), curve: true };
    if (panel.curve && y >= panel.curveTop && y < panel.curveTop + panel.curveHeight)
      return { index, panel, time, device: panel.devices[Math.floor((y - panel.curveTop) / curveRow(panel))], high: y - panel.curveTop, curve: true };
  }
  return null;
}

function tip(x, y, ...content) {
  $('tip').replaceChildren(...content);
  $('tip').hidden = false;
  const { width, height } = $('tip').getBoundingClientRect();
  $('tip').style.left = `${clamp(x + 14, 4, Math.max(4, innerWidth - width - 4))}px`;
  $('tip').style.top = `${y + 14 + height > innerHeight ? Math.max(4, y - height - 10) : y + 14}px`;
}

const hideTip = () => {
  $('tip').hidden = true;
  if (view.story) joinTwins(null);
};
const interval = (from, to) => `${number(from)} → ${number(to)} (${timed(to - from)})`;

function tellOp(timeline, op, x, y) {
  const { ops } = timeline;
  const cell = cellOf(timeline, op);
  const lines = membersOf(timeline, cell).flatMap(member => {
    const where = ops.stage[member] < 0 ? [] : [`stage ${ops.stage[member]}`, `chunk ${ops.chunk[member]}`];
    const which = microbatchName(timeline, ops.microbatch[member], ops.kind[member]);
    const facts = [LOOKS.kinds[ops.kind[member]].name, ...where, ...(which ? [which] : [])];
    return [bold(labelOf(timeline, member)), `  ${facts.join(' · ')}\n`];
  });
  const critical = view.critical && criticalPath(timeline).includes(cell) ? '\non the critical path' : '';
  const pair = ops.pair[cell] >= 0 ? 'a pair, run as one · ' : '';
  const why = reason(timeline, op);
  tip(x, y, ...lines, `${pair}device ${ops.device[op]} · ${interval(ops.start[op], ops.end[op])}\n${why}${critical}${view.story ? tellTwin(timeline, op) : ''}`);
}

function tellIdle(timeline, device, time, x, y) {
  const [first, stop] = [timeline.offsets[device], timeline.offsets[device + 1]];
  const next = firstAfter(timeline, device, time);
  const from = next > first ? timeline.ops.end[next - 1] : 0;
  const to = next < stop ? timeline.ops.start[next] : timeline.makespan;
  const own = timeline.waits ? causeAt(timeline, device, time) : '';
  const left = own ? '' : '\nnothing left to do';
  const why = next < stop
    ? `\nuntil ${nameOf(timeline, cellOf(timeline, next))}: ${reason(timeline, next).replace(/^device idle .* before it, /, '')}` : left;
  tip(x, y, bold('idle'), `  device ${device} · ${interval(from, to)}${why}${own}`);
}

/** Fade the lines of all devices but one. */
function bringForward(device, off = 0.2) {
  for (const lines of document.querySelectorAll('.lines'))
    [...lines.children].forEach((line, d) => { line.style.opacity = device === d ? 1 : off; });
}

function tellCurve({ panel, device, time, high }, x, y) {
  const { curve, timeline } = panel;
  if (curve.parts) return tellParts(panel, time, x, y);
  const told = d => `device ${d}: ${measured(heldAt(curve, d, time), curve.unit)}`;
  const off = d => Math.abs(curveScale(view, panel).y(heldAt(curve, d, time)) - high);
  const devices = timeline.devices > LINES ? [device] : [...curve.peak.keys()];
  const near = devices.reduce((a, b) => off(b) < off(a) ? b : a);
  bringForward(near);
  tip(x, y, bold(told(near)), `\n${curve.name} at ${timed(time)}\n${devices.filter(d => d !== near).map(told).join('\n')}`);
}

function hover(event) {
  const { clientX: x, clientY: y } = event;
  const at = event.buttons ? null : place(event);
  bringForward(-1, 1);
  if (!at || at.time < 0 || at.time > at.panel.timeline.makespan) return hideTip();
  if (at.link >= 0) return tellLink(at.panel.timeline, at.link, at.time, x, y);
  if (at.curve) return tellCurve(at, x, y);
  const message = at.panel.lane ? messageAt(at.panel, at.device, at.time, at.high) : -1;
  if (message >= 0) return tellMessage(at.panel.timeline, message, x, y);
  if (at.panel.lane && at.high > 1 - at.panel.lane) return hideTip();
  const op = opAt(at.panel.timeline, at.device, at.time);
  if (op >= 0) return tellOp(at.panel.timeline, op, x, y);
  return tellIdle(at.panel.timeline, at.device, at.time, x, y);
}

/** Listen to pointers: a drag moves the view, or selects with Shift; two fingers zoom; a press without a drag is a click. */
function pointers() {
  let pressed = null; // place of the press, and the view at that time
  let dragged = false;
  const fingers = new Map(); // places of the fingers on the chart
  $('chart').addEventListener('pointerdown', event => {
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (editable() && fingers.size === 1 && grab(event)) return;
    if (editable() && editor.held) letGo(false); // two fingers zoom
    pressed = event.button === 0 && fingers.size === 1
      ? { x: event.clientX, y: event.clientY, range: [...view.range], rows: view.rows, selects: event.shiftKey } : null;
    dragged = fingers.size > 1;
  });
  addEventListener('pointermove', event => {
    if (fingers.size === 2 && fingers.has(event.pointerId) && shown) return pinch(fingers, event);
    if (editable() && editor.held) return carry(event);
    if (!pressed || !shown) return undefined;
    const by = event.clientX - pressed.x;
    dragged ||= Math.hypot(by, event.clientY - pressed.y) > 4;
    if (dragged && pressed.selects) return selectTo(pressed, event);
    if (dragged) show(...pressed.range.map(time => time - by / shown.scale));
    if (dragged && pressed.rows?.[1])
      showRows(pressed.rows[0] - (event.clientY - pressed.y) / shown.panels[0].row, pressed.rows[1]);
    return undefined;
  });
  addEventListener('pointercancel', event => {
    pressed = null;
    fingers.delete(event.pointerId);
    if (editable() && editor.held) letGo(false);
  });
  addEventListener('pointerup', event => {
    fingers.delete(event.pointerId);
    if (editable() && editor.held) letGo(true);
    if (pressed && !dragged) click(event);
    pressed = null;
  });
}

/**
 * Zoom by the distance of two fingers, around the middle between them: time if they are next to each other, rows if one
 * is above the other.
 */
function pinch(fingers, event) {
  const before = [...fingers.values()];
  const apart = (places, axis) => Math.max(20, Math.abs(places[0][axis] - places[1][axis]));
  if (hasManyDevices() && apart(before, 1) > apart(before, 0)) return pinchRows(fingers, event, places => apart(places, 1));
  fingers.set(event.pointerId, [event.clientX, event.clientY]);
  const after = [...fingers.values()];
  const middle = (after[0][0] + after[1][0]) / 2 - chartBox().left - shown.left;
  return zoom(apart(before, 0) / apart(after, 0), shown.from + middle / shown.scale);
}

/** Highlight the microbatch of the op under the pointer; a second click on it removes the highlight. */
function click(event) {
  const named = hasManyDevices() ? nameAt(event) : -1;
  if (named >= 0) return togglePins([named]);
  const at = place(event);
  if (!at || at.curve) return;
  const { timeline } = at.panel;
  const message = at.panel.lane ? messageAt(at.panel, at.device, at.time, at.high) : -1;
  const op = message >= 0 ? message : opAt(timeline, at.device, at.time);
  if (editable() && editor.on) { // the op is selected
    if (event.pointerType === 'touch') hover(event);
    return;
  }
  const value = (message >= 0 ? timeline.lane : timeline.ops).microbatch[op];
  if (value < 0) return;
  const same = view.highlight?.by === 'microbatch' && view.highlight.value === value;
  pick(op < 0 || same ? null : { by: 'microbatch', value });
  if (event.pointerType === 'touch') hover(event); // as fingers cannot hover
}

let wheeled = false; // whether the hint on zooming was shown

function wheel(event) {
  if (!event.ctrlKey && !event.metaKey) {
    if (!wheeled) say(`Ctrl + wheel zooms; W and S do as well${hasManyDevices() ? '; with Shift they zoom rows' : ''}`);
    wheeled = true;
    return undefined;
  }
  event.preventDefault();
  const turn = clamp(event.deltaY || event.deltaX, -200, 200) / 300;
  if (hasManyDevices() && event.shiftKey) return wheelRows(event, turn);
  const x = event.clientX - chartBox().left - shown.left;
  const [from, to] = view.range;
  return zoom(Math.exp(turn), from + clamp(x / shown.plotWidth, 0, 1) * (to - from));
}

const KEYS = {
  w: () => zoom(0.6), s: () => zoom(1 / 0.6), a: () => pan(-0.25), d: () => pan(0.25), f: fit,
  arrowleft: () => step(-1), arrowright: () => step(1), ',': () => walk(-1), '.': () => walk(1),
  c: () => pick(null, !view.critical), b: () => known() && toggleCauses(), t: () => setTheme(isDark() ? 'light' : 'dark', true),
  l: () => hasLinks() && toggleLinks(), r: () => TIMELINES[0].fold && toggleFold(), '/': () => $('find').focus(), '?': () => $('help').showModal(),
  escape: () => {
    $('find').value = '';
    clearSelection();
    if (view.pinned.length) togglePins(view.pinned);
    pick(null);
  },
};

function key(event) {
  const typing = event.target.closest?.('input, select, textarea, dialog');
  if (typing && event.key === 'Escape') event.target.blur();
  if (!typing && editable() && editKey(event)) return;
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const name = event.key.toLowerCase();
  const action = hasManyDevices() && rowAction(name, event.shiftKey) || KEYS[name];
  if (!action) return;
  event.preventDefault();
  action();
}

let chosenTheme = false;

function setTheme(theme, chosen = false) {
  chosenTheme ||= chosen;
  root.dataset.theme = theme;
  showLegend();
  if (shown) draw();
}

function followTheme() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const follow = () => { if (!chosenTheme) setTheme(dark.matches ? 'dark' : 'light'); };
  dark.addEventListener('change', follow);
  follow();
}

const PAPER = [1047, 710]; // size of A4 inside its margins, in pixels
const ALONE = 640; // height of a chart alone on a page, in pixels

/**
 * Return the height of rows in print: the tallest with which the chart fits on the first page, below numbers and legend;
 * or the tallest for a page with the chart alone, if that is twice as tall or the only legible one.
 */
function printedRow() {
  const usual = TIMELINES.length > 1 ? 18 : clamp(Math.floor(290 / TIMELINES[0].devices), 1, 34);
  const room = PAPER[1] - chartBox().top + document.body.getBoundingClientRect().top;
  const least = Math.min(usual, TIMELINES.some(t => t.bands.length) ? 24 : TIMELINES.length > 1 ? 14 : 9);
  const [here, alone] = [room, ALONE].map(high => {
    let row = usual;
    while (row >= 7 && geometryOf(view, PAPER[0] - 37, row).height >= high) row--;
    return row < 7 ? 0 : row;
  });
  return (here >= Math.min(least, alone / 2) ? here : alone) || usual;
}

/** Print in the light theme at the width of the paper, and restore the view afterwards. */
function printing() {
  let before = null;
  const lay = on => {
    view.printing = on;
    root.classList.toggle('paper', on);
    document.body.style.width = on ? `${PAPER[0]}px` : '';
  };
  addEventListener('beforeprint', () => {
    before = root.dataset.theme;
    root.dataset.theme = 'light';
    showLegend();
    lay(true);
    draw(PAPER[0] - 37, printedRow());
    if (shown.height > ALONE) $('chart').style.breakInside = 'auto'; // no page has room for it
    document.body.style.width = '';
  });
  addEventListener('afterprint', () => {
    lay(false);
    $('chart').style.breakInside = '';
    setTheme(before);
  });
}

/** Return the legend as one line of a saved picture, at a distance from its top. */
function savedLegend(top) {
  let x = shown.left;
  const entries = [...$('legend').children].filter(item => !item.hidden).map(item => {
    const fill = item.querySelector('.swatch').style.background;
    const colour = /rgb\([^)]*\)|#[0-9a-fA-F]{6}/.exec(fill)?.[0] ?? 'none';
    const name = item.textContent;
    const at = x;
    x += 34 + 6.6 * name.length;
    return `<rect x="${at}" y="${top}" width="13" height="13" fill="${colour}" stroke="#0003"/>`
      + text(at + 18, top + 11, 12, themeNow().ink, escapeText(name));
  });
  return `<g font-family='${FONT}'>${entries.join('')}</g>`;
}

/** Return the view as one SVG, and its size. */
function savedPicture() {
  const [width, height] = [shown.width, shown.height + 24];
  const images = [...$('pixels').children].map(canvas => {
    const [left, top, wide, high] = ['left', 'top', 'width', 'height'].map(name => parseFloat(canvas.style[name]));
    return `<image href="${canvas.toDataURL()}" x="${left}" y="${top}" width="${wide}" height="${high}"`
      + ' preserveAspectRatio="none"/>';
  });
  const drawn = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"`
    + ` viewBox="0 0 ${width} ${height}"><title>${escapeText(document.title)}</title>`
    + `<desc>${escapeText(JSON.stringify(REPORT.inputs))}</desc>`
    + `<rect width="${width}" height="${height}" fill="${themeNow().page}"/>`
    + `${images.join('')}${$('marks').innerHTML}${savedLegend(shown.height)}</svg>`;
  return { width, height, text: drawn };
}

/** Save the view as one SVG file. */
function save() {
  const href = URL.createObjectURL(new Blob([savedPicture().text], { type: 'image/svg+xml' }));
  const name = TIMELINES.map(t => t.schedule).join('-');
  const link = element('a', { href, download: editor.at > 0 ? nameOfFile('svg') : `${name}.svg` });
  link.click();
  URL.revokeObjectURL(href);
}

function listen() {
  $('chart').addEventListener('pointermove', hover);
  // A lifted finger counts as leaving; the tip of its tap stays until the next tap.
  $('chart').addEventListener('pointerleave', event => { if (event.pointerType !== 'touch') hideTip(); });
  $('chart').addEventListener('dblclick', fit);
  $('chart').addEventListener('wheel', wheel, { passive: false });
  pointers();
  if (typeof rowControls === 'function') rowControls(); // of pages with many rows, and of live ones
  addEventListener('keydown', key);
  addEventListener('hashchange', () => { pickFromAddress(); if (editable()) editsFromAddress(); });
  addEventListener('resize', drawSoon);
  printing();
  for (const [id, own] of Object.entries({ critical: 'c', causes: 'b', fold: 'r', links: 'l', fit: 'f', theme: 't', keys: '?' })) $(id).onclick = KEYS[own];
  $('export').onclick = save;
  $('edit').onclick = () => editable() ? toggleEditor() : say(fixedReason());
  $('find').onchange = () => find($('find').value);
}

/** Show the numbers of the timelines, and the help of the chart. */
function showNumbers() {
  showHeader();
  $('numbers').replaceChildren(TIMELINES.length === 1 ? cards(TIMELINES[0]) : comparison());
  $('tables').replaceChildren(...TIMELINES.map(perDevice));
  $('causes').hidden = !known();
  showCurveChoice();
  $('chart').setAttribute('aria-label', describe());
  showLegend();
  if (editable()) sayEdited();
}

/** Unpack the data and show all of it, or the range of time `kept`. */
async function showReport(kept = null) {
  await Promise.all(TIMELINES.map(unpack));
  $('edit').hidden = !TIMELINES.some(({ edit }) => edit);
  $('edit').setAttribute('aria-disabled', !editable());
  $('edit').title = editable() ? 'Change the order of ops (E)' : fixedReason();
  if (editable()) await startEditor();
  else $('editor').hidden = true;
  showNumbers();
  $('fold').hidden = !TIMELINES[0].fold;
  $('links').hidden = !hasLinks();
  if (REPORT.story) await showStory();
  const [from, to] = REPORT.view.window ?? kept ?? [0, SPAN * 1.005];
  view.range = [from, Math.min(to, SPAN * 1.005)];
  if (folded || REPORT.view.fold) toggleFold(true);
  else draw();
}

async function start() {
  view.causes = REPORT.view.causes;
  press('causes', view.causes);
  followTheme();
  await showReport();
  listen();
  if (REPORT.view.highlight || REPORT.view.critical) pick(REPORT.view.highlight, REPORT.view.critical);
  pickFromAddress();
  if (editable()) editsFromAddress();
  root.dataset.state = 'drawn';
}
