// The page's data: unpacked columns, and queries on them. A "cell" is a unit that a device runs: an op,
// or the two ops of a pair; it is named by its first op.

let REPORT, TIMELINES, SPAN, SHARED;

/** Make a report the data of the page; a live page calls this with each answer. */
function take(report) {
  REPORT = report;
  TIMELINES = report.timelines;
  SHARED = report.shared && column(report.shared); // numbers that columns name by their places
  SPAN = Math.max(...TIMELINES.map(timeline => timeline.makespan)) || 1;
}

take(JSON.parse(document.getElementById('ppsim-data').textContent));
const { looks: LOOKS } = REPORT;
const timed = time => measured(time, REPORT.unit);
const [FILLS, TEXTS] = ['fill', 'text'].map(of => LOOKS.kinds.flatMap(kind => kind[of])); // by colour index
const TINTS = LOOKS.kinds[0].fill.length; // of a kind
const EPSILON = 1e-9;
const LETTERS = LOOKS.kinds.map(kind => kind.letter).join('');
const OP = new RegExp(`^(\\d+)([${LETTERS}])(\\d+)$`, 'i'); // 2F5
const OP_AT_STAGE = new RegExp(`^([${LETTERS}])(\\d+)@(\\d+)$`, 'i'); // F5@2

function decode(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflate(base64) {
  const stream = new Blob([decode(base64)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

/**
 * Unpack a column: a list, raw numbers, floats packed as differences of their bits, or integers packed as differences
 * in planes of bytes.
 */
async function column(packed) {
  if (Array.isArray(packed)) return Float64Array.from(packed);
  const { type, raw, gzip } = packed;
  if (raw) return new (type === 'float64' ? Float64Array : Int32Array)(decode(raw).buffer);
  const bytes = await inflate(gzip);
  if (type === 'float64') {
    const whole = new BigInt64Array(bytes);
    for (let i = 1; i < whole.length; i++) whole[i] += whole[i - 1];
    return new Float64Array(bytes);
  }
  const [plane, size, all] = [new Uint8Array(bytes), bytes.byteLength / 4, type === 'place' && await SHARED];
  const values = new (all ? Float64Array : Int32Array)(size);
  let value = 0;
  for (let i = 0; i < size; i++) { // the lowest bytes of all numbers come first
    const code = plane[i] | plane[size + i] << 8 | plane[2 * size + i] << 16 | plane[3 * size + i] << 24;
    value += code >>> 1 ^ -(code & 1);
    values[i] = all ? all[value] : value;
  }
  return values;
}

/** Unpack the named columns of a table in place; all of them without names. */
async function columns(table, ...names) {
  if (!names.length) names = Object.keys(table ?? {});
  await Promise.all(names.map(async name => { table[name] = await column(table[name]); }));
  return table;
}

/** Unpack a timeline; concurrent calls share one promise. */
const unpack = timeline => timeline.unpacked ??= unpackAll(timeline);

/** Unpack in place and add columns for drawing: device, colour index and drawn edges of every op. */
async function unpackAll(timeline) {
  const { ops, curves, lane, bars, inside, links } = timeline;
  for (const table of [ops, lane, bars]) await columns(table);
  for (const curve of [...curves, ...links ? [links] : []]) await columns(curve, 'time', 'value');
  if (links) links.value = Float64Array.from(links.value, share => share / 1000);
  if (inside) await columns(inside, 'of');
  if (timeline.waits) timeline.waits = segments(timeline, await columns(timeline.waits));
  return finish(timeline);
}

/** Add columns for drawing to an unpacked timeline. */
function finish(timeline) {
  const { ops, lane } = timeline;
  timeline.bands = [...new Set(timeline.lane?.band)].sort();
  const size = ops.kind.length;
  ops.device = new Int32Array(size);
  ops.colour = new Uint16Array(size);
  ops.left = Float64Array.from(ops.start);
  ops.right = Float64Array.from(ops.end);
  for (let device = 0; device < timeline.devices; device++)
    ops.device.fill(device, timeline.offsets[device], timeline.offsets[device + 1]);
  const last = ops.chunk.reduce((a, b) => Math.max(a, b), 1);
  for (let op = 0; op < size; op++) {
    ops.colour[op] = TINTS * ops.kind[op] + Math.round(ops.chunk[op] * (TINTS - 1) / last);
    if (ops.pair[op] < 0) continue;
    const middle = (ops.start[op] + ops.end[op]) / 2; // a pair is one cell in two colours
    if (ops.pair[op] > op) ops.right[op] = middle;
    else ops.left[op] = middle;
  }
  return timeline;
}

/** Return the first index from `low` to `high` whose value is larger than `value`; values ascend. */
function firstAbove(values, value, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Return the first op of a device, from `low` on, that ends after `time`; the end of the device's ops if none does. */
const firstAfter = (timeline, device, time, low = timeline.offsets[device]) =>
  firstAbove(timeline.ops.right, time, low, timeline.offsets[device + 1]);

/** Return the op that a device runs at a time; -1 if it is idle. */
function opAt(timeline, device, time) {
  const op = firstAfter(timeline, device, time);
  return op < timeline.offsets[device + 1] && timeline.ops.left[op] <= time ? op : -1;
}

const cellOf = (timeline, op) => timeline.ops.pair[op] >= 0 ? Math.min(op, timeline.ops.pair[op]) : op;
const membersOf = (timeline, cell) => timeline.ops.pair[cell] >= 0 ? [cell, cell + 1] : [cell];
const labelOf = ({ ops }, op) =>
  `${ops.stage[op] < 0 ? '' : ops.stage[op]}${LOOKS.kinds[ops.kind[op]].letter}${ops.microbatch[op]}`;

/** Return the number of microbatches in a step. */
const microbatchesPerStep = timeline => timeline.round ?? timeline.microbatches;

/** Return the number of a microbatch in its step; empty for ops that run once per step. */
const numberIn = (timeline, microbatch, kind) => LOOKS.kinds[kind]?.once ? '' : microbatch % microbatchesPerStep(timeline);

/** Return the name of a microbatch, with its step if there are several steps. */
function microbatchName(timeline, microbatch, kind) {
  const step = microbatchesPerStep(timeline) < timeline.microbatches ? [`step ${Math.floor(microbatch / microbatchesPerStep(timeline))}`] : [];
  const shown = numberIn(timeline, microbatch, kind);
  return [...step, ...(shown === '' ? [] : [`microbatch ${shown}`])].join(', ');
}
const nameOf = (timeline, cell) => membersOf(timeline, cell).map(op => labelOf(timeline, op)).join('+');

/** Return the op before a cell on its device; -1 for the first cell. */
function cellBefore(timeline, cell) {
  return cell > timeline.offsets[timeline.ops.device[cell]] ? cell - 1 : -1;
}

/** Return the idle time of a device before a cell. */
function idleBefore(timeline, cell) {
  const previous = cellBefore(timeline, cell);
  return timeline.ops.start[cell] - (previous < 0 ? 0 : timeline.ops.end[previous]);
}

/** Return a sentence that explains the start of an op's cell. */
function reason(timeline, op) {
  const { ops } = timeline;
  const cell = cellOf(timeline, op);
  const bound = ops.bound[cell];
  const where = other => `${nameOf(timeline, cellOf(timeline, other))} on device ${ops.device[other]}`;
  if (bound < 0 && (cellBefore(timeline, cell) >= 0 || ops.dependency[cell] >= 0)) return 'the cause of its wait is unknown';
  if (bound < 0) return 'nothing to wait for';
  if (ops.device[bound] !== ops.device[cell]) {
    const travel = ops.start[cell] - ops.end[bound];
    const message = travel > EPSILON ? `, whose message took ${number(travel)}` : '';
    return `device idle ${number(idleBefore(timeline, cell))} before it, waiting for ${where(bound)}${message}`;
  }
  const busy = `device busy until then with ${nameOf(timeline, cellOf(timeline, bound))}`;
  const inputs = membersOf(timeline, cell).map(member => ops.dependency[member]).filter(input => input >= 0);
  const last = inputs.reduce((a, b) => ops.end[b] > ops.end[a] ? b : a, inputs[0] ?? -1);
  if (last < 0) return `${busy}; no input to wait for`;
  if (cellOf(timeline, last) === cellOf(timeline, bound)) return `its input comes from the op right before it`;
  const early = ops.start[cell] - ops.end[last];
  return `${busy}; its input, ${where(last)}, ended ${early > EPSILON ? `${number(early)} earlier` : 'just then'}`;
}

/** Return the cells of the critical path, from the first to the one that ends last. */
function criticalPath(timeline) {
  if (timeline.path) return timeline.path;
  const { end, bound } = timeline.ops;
  let op = 0;
  for (let i = 1; i < end.length; i++) if (end[i] > end[op]) op = i;
  const cells = [];
  for (; op >= 0; op = bound[op]) cells.push(cellOf(timeline, op));
  return timeline.path = cells.reverse();
}

/** Return a function that tells whether an op is highlighted; null if no op is. */
function chooser(timeline, view) {
  if (view.critical) {
    const on = new Uint8Array(timeline.ops.kind.length);
    for (const cell of criticalPath(timeline)) for (const op of membersOf(timeline, cell)) on[op] = 1;
    return op => on[op] === 1;
  }
  if (!view.highlight) return null;
  const values = timeline.ops[view.highlight.by];
  return op => values[op] === view.highlight.value;
}

/** Return all ops for which `test` is true. */
function opsWhere(timeline, test) {
  const found = [];
  for (let op = 0; op < timeline.ops.kind.length; op++) if (test(op)) found.push(op);
  return found;
}

/** Return the first step of a device's curve after a time; the end of the device's steps if there is none. */
const stepAfter = (curve, device, time) => firstAbove(curve.time, time, curve.offsets[device], curve.offsets[device + 1]);

/** Return the value of a device's curve before one of its steps. */
const heldUntil = ({ offsets, value }, device, step) => step > offsets[device] ? value[step - 1] : 0;

/** Return the value of a device's curve at a time. */
function heldAt(curve, device, time) {
  return heldUntil(curve, device, stepAfter(curve, device, time));
}
