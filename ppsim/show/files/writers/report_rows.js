// Rows in sight: pinned devices on top, then a range of the other devices, which zooms and moves like time. Above the
// chart is an overview of all devices and the whole time.

const MANY = 32; // devices from which the overview is always shown
const OVERVIEW = 48; // height of the overview for all timelines, in pixels
let overviewOf = []; // inputs of the last drawing of the overview

/** Return the devices in sight if not all are: the pinned ones, then the range without them. */
function rowsInSight(devices) {
  const every = everyDevice(devices, 1);
  const pinned = view.pinned.filter(device => device < devices);
  const [first, count] = view.rows ?? [0, devices];
  const range = every.slice(first, first + count).filter(device => !pinned.includes(device));
  return pinned.length || range.length ? [...pinned, ...range] : every.slice(-1);
}

/** Show `count` devices from a first one on, below the pinned ones. */
function showRows(first, count) {
  const most = mostDevices();
  const wide = clamp(Math.round(count), view.pinned.length ? 0 : 1, most);
  view.rows = wide === most ? null : [clamp(Math.round(first), 0, most - wide), wide];
  hideTip();
  sayRows();
  drawSoon();
}

/** Zoom the rows by a factor around a share of the range. */
function zoomRows(factor, share = 0.5) {
  if (allRows() && factor > 1) return;
  const [first, count] = view.rows ?? [0, mostDevices()];
  const wide = factor < 1 ? Math.floor(count * factor) : Math.ceil(Math.max(count, 2) * factor);
  showRows(first + (count - wide) * share, wide);
}

/** Zoom the rows by two fingers, one above the other; fractions of a row add up. */
function pinchRows(fingers, event, apart) {
  fingers.apart ??= apart([...fingers.values()]);
  fingers.set(event.pointerId, [event.clientX, event.clientY]);
  const [a, b] = fingers.values();
  const [factor, count] = [fingers.apart / apart([a, b]), view.rows?.[1] ?? mostDevices()];
  if (Math.round(count * factor) === count) return;
  fingers.apart = apart([a, b]);
  const [{ top, height }] = shown.panels;
  zoomRows(factor, clamp(((a[1] + b[1]) / 2 - chartBox().top - top) / height, 0, 1));
}

/** Zoom the rows by the wheel, around the pointer. */
function wheelRows(event, turn) {
  const y = event.clientY - chartBox().top;
  const { top, height } = shown.panels.find(panel => y < panel.top + panel.height) ?? shown.panels[0];
  zoomRows(Math.exp(turn), clamp((y - top) / height, 0, 1));
}

/** Return the action of a key on rows; undefined if it has none. */
function rowAction(key, shift) {
  if (shift && key === 'w') return () => zoomRows(0.5);
  if (shift && key === 's') return () => zoomRows(2);
  if (view.rows && key === 'arrowup') return () => panRows(-0.25); // else the page scrolls
  if (view.rows && key === 'arrowdown') return () => panRows(0.25);
  return key === 'p' ? pinPicked : undefined;
}

function panRows(by) {
  if (view.rows) showRows(view.rows[0] + Math.sign(by) * Math.max(1, Math.round(Math.abs(by) * view.rows[1])), view.rows[1]);
}

/** Make sure that a device has a row. */
function reveal(device) {
  const [first, count] = view.rows ?? [0, Infinity];
  if (allRows() || view.pinned.includes(device) || device >= first && device < first + count) return;
  showRows(device - count / 2, Math.max(1, count));
}

/** Pin devices; unpin them if all of them are pinned. */
function togglePins(devices) {
  const all = devices.every(device => view.pinned.includes(device));
  const others = view.pinned.filter(device => !devices.includes(device));
  view.pinned = all ? others : [...others, ...devices].sort((a, b) => a - b);
  if (!view.pinned.length && view.rows?.[1] === 0) view.rows = null;
  press('rows-pin', view.pinned.length > 0);
  hideTip();
  sayRows();
  drawSoon();
}

/** Pin the devices of the highlighted, selected or visited ops; unpin all if there are none. */
function pinPicked() {
  const rows = view.selected?.rows.find(Boolean);
  if (rows) {
    clearSelection();
    return pinDevices(rows);
  }
  const device = view.highlight?.by === 'device' ? view.highlight.value
    : view.op ? TIMELINES[view.op.panel].ops.device[view.op.op] : -1;
  if (device >= 0 && device < mostDevices()) return togglePins([device]);
  if (view.pinned.length) return togglePins(view.pinned);
  return say("Pin what? Click a device's name, select rows with Shift + drag, or find 'devices 0, 4-7'");
}

/** Show only some devices. */
function pinDevices(devices) {
  Object.assign(view, { pinned: [], rows: [0, 0], highlight: null, op: null });
  togglePins(devices);
}

/** Show only the devices that the reader types, such as `0, 4-7`. */
function pinOnly(words) {
  const most = mostDevices();
  const found = new Set();
  for (const part of words.split(',').map(each => each.trim()).filter(Boolean)) {
    const [, first, last = first] = /^(\d+)(?:\s*-\s*(\d+))?$/.exec(part) ?? [];
    if (first === undefined || +last < +first) return say(`Cannot read '${part}'; try devices 0, 4-7`);
    if (+last >= most) return say(`No device ${last}: the last is ${most - 1}`);
    for (let device = +first; device <= +last; device++) found.add(device);
  }
  return found.size ? pinDevices([...found].sort((a, b) => a - b)) : say('Name devices, such as 0, 4-7');
}

/** Return devices as ranges: 0, 4 to 7. */
function rangesOf(devices) {
  const parts = [];
  for (const device of devices)
    if (parts.length && parts.at(-1)[1] === device - 1) parts.at(-1)[1] = device;
    else parts.push([device, device]);
  return parts.map(([first, last]) => first === last ? `${first}` : `${first} to ${last}`).join(', ');
}

function sayRows() {
  const most = mostDevices();
  const [first, count] = view.rows ?? [0, most];
  const range = count ? `devices ${rangesOf([first, first + count - 1].slice(0, count)).replace(', ', ' to ')} of ${most}` : '';
  const pinned = view.pinned.length ? `pinned: ${rangesOf(view.pinned)}` : '';
  say(allRows() ? '' : [pinned, range].filter(Boolean).join(' · '));
}

/** The line below the pinned rows of a panel. */
function pinLine({ timeline, top, row, devices }, { left, plotWidth }, theme) {
  const count = view.pinned.filter(device => device < timeline.devices).length;
  if (allRows() || !count || count === devices.length) return '';
  return `<path class="pins" d="M0 ${px(top + count * row)}H${px(left + plotWidth)}" stroke="${theme.ink}" stroke-width="1.5"/>`;
}

/** Draw the overview of all devices and the whole time, if the view is smaller; only if its inputs changed. */
function showOverview() {
  const there = hasManyDevices() && !view.printing && (mostDevices() > MANY || view.rows !== null);
  for (const id of ['rows-fewer', 'rows-more', 'rows-pin']) $(id).hidden = !hasManyDevices();
  $('overview').hidden = !there;
  $('chart').classList.toggle('zoomed', view.rows !== null);
  if (!there) return;
  const geometry = { ...shown, from: 0, to: length() * 1.005, first: 0, last: SPAN };
  geometry.scale = geometry.plotWidth / geometry.to;
  const { highlight, critical, causes } = view;
  const drawnOf = [...TIMELINES, folded, highlight, critical, causes, isDark(), shown.plotWidth];
  if (drawnOf.length !== overviewOf.length || drawnOf.some((each, i) => each !== overviewOf[i])) {
    overviewOf = drawnOf;
    const canvases = TIMELINES.map(timeline => {
      const devices = everyDevice(timeline.devices, 1);
      const panel = { timeline, devices, row: 1, lane: 0 };
      const { spans } = inSight(timeline, geometry, devices);
      return cellPixels(panel, geometry, spans, chooser(timeline, view), palette(isDark(), causes));
    });
    for (const canvas of canvases) canvas.style.height = `${OVERVIEW / TIMELINES.length}px`;
    $('overview').replaceChildren(...canvases, element('div', { className: 'view' }));
  }
  Object.assign($('overview').style, { marginLeft: `${shown.left}px`, width: `${shown.plotWidth}px` });
  const [first, count] = view.rows?.[1] ? view.rows : [0, mostDevices()];
  const at = place => 100 * clamp(place / geometry.to, 0, 1);
  const [left, right, whole] = [at(view.range[0]), at(view.range[1]), 100 / mostDevices()];
  const each = TIMELINES.length === 1; // with several timelines the frame is over the time alone
  Object.assign($('overview').lastElementChild.style, {
    left: `${left}%`, width: `${right - left}%`, top: each ? `${first * whole}%` : 0, height: each ? `${count * whole}%` : '100%',
  });
}

/** Centre the view on the place under the pointer on the overview. */
function lookAt(event) {
  if (!(event.buttons & 1)) return;
  event.preventDefault();
  const box = $('overview').getBoundingClientRect();
  const [from, to] = view.range;
  const middle = (event.clientX - box.left) / box.width * length() * 1.005;
  const share = clamp((event.clientY - box.top) / box.height * TIMELINES.length % 1, 0, 1);
  if (to - from < length()) show(middle - (to - from) / 2, middle + (to - from) / 2);
  if (view.rows?.[1]) showRows(share * mostDevices() - view.rows[1] / 2, view.rows[1]);
}

/** Return the device whose name, left of the rows, is under the pointer; -1 for none. */
function nameAt(event) {
  const box = chartBox();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const panel = x < shown.left ? shown.panels.find(each => y >= each.top && y < each.top + each.height) : null;
  return panel ? panel.devices[Math.floor((y - panel.top) / panel.row)] : -1;
}

/** Add the buttons of rows, and their keys in the help. */
function rowControls() {
  const button = (id, textContent, title, onclick) => element('button', { id, textContent, title, onclick });
  $('fit').before(
    button('rows-fewer', 'rows +', 'Fewer, taller rows (Shift + W)', () => zoomRows(0.5)),
    button('rows-more', 'rows −', 'More, lower rows (Shift + S)', () => zoomRows(2)),
    button('rows-pin', 'pin', 'Keep the devices of highlighted or selected ops on top (P)', pinPicked),
  );
  press('rows-pin', false);
  const help = (keys, does) => [element('dt', {}, element('kbd', { textContent: keys })), element('dd', { textContent: does })];
  $('help').querySelector('dl').prepend(
    ...help('Shift + W, S', 'fewer, taller rows, or more; or Shift + Ctrl + wheel; ↑ and ↓ move them'),
    ...help('P', "pin the devices of highlighted or selected ops on top; or click a device's name"),
    ...help('/', 'find devices 0, 4-7: show only these'),
  );
  const overview = element('div', { id: 'overview', 'aria-hidden': 'true' });
  $('chart').before(overview);
  overview.addEventListener('pointerdown', event => {
    overview.setPointerCapture(event.pointerId);
    lookAt(event);
  });
  overview.addEventListener('pointermove', lookAt);
  if (shown) showOverview();
}
