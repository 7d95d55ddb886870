// The edited schedule: its queues, the edits, undo and redo, and the edits as a part of the page's address.
// Queues are never changed in place, so undo restores the ones before.

const LONGEST_ADDRESS = 4000; // characters of edits in a link
const MOST_EDITS = 5000; // edits of a link
const MOST_MS = 5000; // time to repeat the edits of a link
const editor = {
  sheets: [], originals: [], past: [], at: 0, panel: 0, on: false,
  kept: new Map(), // by base number: edits that wait until the page shows their schedule again
  left: null, // the count of edits that were put aside last
};

/** Return the data for editing a timeline, unpacked; null if it cannot be edited. */
async function sheetOf(timeline) {
  const { edit, ops } = timeline;
  if (!edit || edit.off) return null;
  const whole = edit.queues ? await columns({ ...edit.queues }, 'kind', 'stage', 'microbatch', 'pair') : ops;
  const { offsets } = edit.queues ?? timeline;
  const [time, scale] = await Promise.all([edit.time, edit.scale ?? []].map(rows => Promise.all(rows.map(column))));
  const sheet = {
    ...edit, kinds: REPORT.edit_kinds, devices: timeline.devices, stages: timeline.stages, time, laned: Boolean(edit.queues),
    scale: scale.length ? scale : null, comm: typeof edit.comm === 'number' ? edit.comm : await column(edit.comm),
    pairTime: edit.pair_time ? await column(edit.pair_time) : null, speed: edit.speed ? await column(edit.speed) : null,
    slices: edit.slices ?? 1, partly: edit.partly ?? [], rounds: edit.rounds ?? 1, flushes: edit.flushes ?? true, feedsBack: Boolean(edit.feeds_back),
    feedback: edit.feedback ?? null, roundMicrobatches: timeline.microbatches / (edit.rounds ?? 1), each: null,
  };
  const queues = Array.from({ length: timeline.devices }, (_, device) => {
    const queue = [];
    for (let op = offsets[device]; op < offsets[device + 1]; op++)
      queue.push(packOp(sheet, whole.kind[op], whole.stage[op], whole.microbatch[op], Number(whole.pair[op] > op)));
    return queue;
  });
  if (edit.each) {
    const each = await column(edit.each);
    const time = (queue, device, where) => queue.map((code, i) =>
      [(code - code % 2) * sheet.devices + where(unpackOp(sheet, code).stage), each[offsets[device] + i]]);
    const own = queues.flatMap((queue, device) => time(queue, device, () => device));
    const moved = sheet.placement.length < 2 ? []
      : queues.flatMap((queue, device) => time(queue, device, stage => mirrored(sheet, device, stage)));
    sheet.each = new Map([...moved, ...own]);
  }
  const isCollective = ({ kind }) => sheet.kinds[kind].everywhere || sheet.kinds[kind].stream === COLLECTIVES;
  sheet.collects = queues.some(queue => queue.some(code => isCollective(unpackOp(sheet, code))));
  sheet.trains = queues.flat().some(code => [BACKWARD_KIND, INPUT_KIND].includes(unpackOp(sheet, code).kind));
  sheet.base = { queues, sources: Array.from({ length: timeline.microbatches }, (_, microbatch) => microbatch) };
  const { known } = edit;
  if (known) [sheet.leftOut, sheet.known] = [known.left_out, await knownOf(sheet, known)];
  return sheet;
}

/** Return a queue as cells: one op each, or the two ops of a pair. */
function cellsOf(queue) {
  const cells = [];
  for (let i = 0; i < queue.length; i++) cells.push(queue[i] % 2 ? [queue[i], queue[++i]] : [queue[i]]);
  return cells;
}

const cellText = (sheet, cell) => {
  const labels = cell.map(code => { const { kind, stage, microbatch } = unpackOp(sheet, code); return stagedLabel(sheet, kind, stage, microbatch); });
  return labels.length > 1 ? `(${labels.join(';')})OVERLAP_F_B` : labels[0];
};

/** Return the queues as torch's CSV, which `ppsim run` reads. */
const csvOf = (sheet, { queues }) => `${queues.map(queue => cellsOf(queue).map(cell => cellText(sheet, cell)).join(',')).join('\n')}\n`;

/** Return a whole number from 0 to below `count`; throw an error for other values. */
function placeIn(value, count, what) {
  if (!Number.isInteger(value) || value < 0 || value >= count) throw Error(`not a ${what}: ${String(value).slice(0, 20)}; expected 0 to ${count - 1}`);
  return value;
}

/** Return the cells of a device, after a check that `at` is the place of one of them. */
function cellAt(sheet, state, device, at) {
  const cells = cellsOf(state.queues[placeIn(device, sheet.devices, 'device')]);
  placeIn(at, cells.length, 'place in the queue');
  return cells;
}

const withCells = (state, device, cells) => ({ ...state, queues: state.queues.with(device, cells.flat()) });

const isKind = (sheet, code, kind) => unpackOp(sheet, code).kind === kind;

/** Return the place of a full backward in a cell; -1 if there is none. */
const fullBackward = (sheet, cell) => cell.findIndex(code => isKind(sheet, code, BACKWARD_KIND));

/** Return a cell with a full backward as two cells: I takes its place, and W follows. */
function splitCell(sheet, cell) {
  if (sheet.each && cell.length > 1)
    throw Error(`${cellText(sheet, cell)} was timed as one op; it cannot be split`);
  const whole = fullBackward(sheet, cell);
  const { stage, microbatch, paired } = unpackOp(sheet, cell[whole]);
  const first = cell.with(whole, packOp(sheet, INPUT_KIND, stage, microbatch, paired));
  return [first, [packOp(sheet, WEIGHTS_KIND, stage, microbatch)]];
}

/** Return a device's cells with I and W joined to B at the place of I, where `wanted`; null if there is nothing to join. */
function joinedCells(sheet, cells, wanted = () => true) {
  const alone = new Set(cells.filter(cell => cell.length === 1).map(([code]) => code));
  const gone = new Set();
  const joined = code => {
    const { kind, stage, microbatch, paired } = unpackOp(sheet, code);
    const weights = packOp(sheet, WEIGHTS_KIND, stage, microbatch);
    if (kind !== INPUT_KIND || !alone.has(weights) || !wanted(stage, microbatch)) return code;
    gone.add(weights);
    return packOp(sheet, BACKWARD_KIND, stage, microbatch, paired);
  };
  const found = cells.map(cell => cell.map(joined));
  return gone.size ? found.filter(([code]) => !gone.has(code)) : null;
}

/**
 * Return a state with the cells of one device changed, or of all if `which` is the number of devices; throw an error if
 * no cell changes.
 */
function withDevices(sheet, state, which, change, none) {
  placeIn(which, sheet.devices + 1, 'device');
  let changes = 0;
  const queues = state.queues.map((queue, device) => {
    const cells = which === device || which === sheet.devices ? change(cellsOf(queue)) : null;
    if (cells) changes++;
    return cells ? cells.flat() : queue;
  });
  if (!changes) throw Error(`${none} on ${which === sheet.devices ? 'any device' : `device ${which}`}`);
  return { ...state, queues };
}

/** Return the device of a stage in the other replica of the model. */
const mirrored = ({ placement: [own, other] }, device, stage) => own[stage] === device ? other[stage] : own[stage];

/** Return the device that has a cell's stage in the other replica of the model; throw an error if there is none. */
function otherDevice(sheet, state, device, at) {
  const cell = cellAt(sheet, state, device, at)[at];
  const name = cellText(sheet, cell);
  const { stage } = unpackOp(sheet, cell[0]);
  const stays = `${name} stays on device ${device}`;
  if (stage < 0) throw Error(`${stays}: it belongs to that device, not to a stage`);
  if (sheet.placement.length < 2) throw Error(`${stays}, which alone has the weights of stage ${stage}`);
  if (sheet.collects) throw Error(`${stays}: collectives of the device follow the order of its queue`);
  return mirrored(sheet, device, stage);
}

/** Return the place of the first cell with a later key (start, then rank); the number of cells if there is none. */
function placeAfter(cells, [time, rank]) {
  const at = cells.findIndex(({ key }) => key[0] > time || key[0] === time && key[1] > rank);
  return at < 0 ? cells.length : at;
}

/** Return the cells of every device, each with its key: start and rank. */
function rankedCells(sheet, state) {
  const { ops, start, done, rank } = timeQueues(sheet, state);
  return state.queues.map((queue, device) => {
    let op = ops.offsets[device];
    return cellsOf(queue).map(cell => {
      const key = done[op] ? [start[op], rank[op]] : [Infinity, op];
      op += cell.length;
      return { cell, key };
    });
  });
}

/** The edits, by their letter in the address; each returns the next state, or throws an error. */
const EDITS = {
  /** Move a cell of a device to another place in its queue. */
  m(sheet, state, device, from, to) {
    const cells = cellAt(sheet, state, device, from);
    placeIn(to, cells.length, 'place in the queue');
    const [cell] = cells.splice(from, 1);
    cells.splice(to, 0, cell);
    return withCells(state, device, cells);
  },
  /**
   * Move the microbatch of a cell (both of a pair) to the other replica of the model, with its copies. The cell goes to a
   * given place, its other ops to places by their start.
   */
  c(sheet, state, device, from, to) {
    const target = otherDevice(sheet, state, device, from);
    placeIn(to, cellsOf(state.queues[target]).length + 1, 'place in the queue');
    const ranked = rankedCells(sheet, state);
    const [moved, before] = [ranked[device][from], ranked[target].slice(to)];
    const held = moved.cell;
    const gone = held.map(code => unpackOp(sheet, code).microbatch);
    const leaves = code => {
      const { stage, microbatch } = unpackOp(sheet, code);
      return stage >= 0 && gone.includes(microbatch);
    };
    const stay = ranked.map(cells => cells.filter(({ cell }) => !cell.every(leaves)));
    ranked.forEach((cells, owner) => cells.forEach(each => {
      const { cell, key } = each;
      const going = cell.filter(leaves);
      each.cell = going.length ? cell.filter(code => !leaves(code)).map(code => code - code % 2) : cell;
      if (each === moved || !going.length) return;
      const other = mirrored(sheet, owner, unpackOp(sheet, going[0]).stage);
      const arrived = going.length > 1 ? going : [going[0] - going[0] % 2];
      stay[other].splice(placeAfter(stay[other], key), 0, { cell: arrived, key });
    }));
    const next = before.find(each => stay[target].includes(each));
    const place = next ? stay[target].indexOf(next) : stay[target].length;
    stay[target].splice(place, 0, { cell: held });
    return { ...state, queues: stay.map(cells => cells.flatMap(({ cell }) => cell)) };
  },
  /** Split a backward into I, which takes its place, and W right after it. */
  s(sheet, state, device, at) {
    const cells = cellAt(sheet, state, device, at);
    if (fullBackward(sheet, cells[at]) < 0)
      throw Error(`not a full backward: ${cellText(sheet, cells[at])}; select a B`);
    cells.splice(at, 1, ...splitCell(sheet, cells[at]));
    return withCells(state, device, cells);
  },
  /** Split all backwards of a device, or of all devices. */
  d(sheet, state, which) {
    const split = cells => cells.some(cell => fullBackward(sheet, cell) >= 0)
      && cells.flatMap(cell => fullBackward(sheet, cell) < 0 ? [cell] : splitCell(sheet, cell));
    return withDevices(sheet, state, which, split, 'no full backward');
  },
  /** Join all halves of backwards of a device, or of all devices. */
  u: (sheet, state, which) =>
    withDevices(sheet, state, which, cells => joinedCells(sheet, cells), 'no two halves of a backward'),
  /** Join the two halves of a backward at the place of its I. */
  j(sheet, state, device, at) {
    const cells = cellAt(sheet, state, device, at);
    const half = cells[at].map(code => unpackOp(sheet, code)).find(({ kind }) => kind === INPUT_KIND || kind === WEIGHTS_KIND);
    if (!half) throw Error(`not half of a backward: ${cellText(sheet, cells[at])}; select an I or a W`);
    const wanted = (stage, microbatch) => stage === half.stage && microbatch === half.microbatch;
    const joined = joinedCells(sheet, cells, wanted);
    if (!joined)
      throw Error(`${cellText(sheet, cells[at])} has no other half on device ${device} to join`);
    return withCells(state, device, joined);
  },
  /** Remove a microbatch with all its slices; later ones are renumbered. */
  t(sheet, state, microbatch) {
    const { slices } = sheet;
    if (sheet.rounds > 1) throw Error('a schedule of several rounds keeps its microbatches');
    if (state.sources.length === slices) throw Error('the last microbatch stays');
    placeIn(microbatch, state.sources.length / slices, 'microbatch');
    const [first, stop] = [microbatch * slices, (microbatch + 1) * slices];
    const kept = code => { const at = unpackOp(sheet, code).microbatch; return at < first || at >= stop; };
    const renumbered = (code, paired) => {
      const found = unpackOp(sheet, code);
      return packOp(sheet, found.kind, found.stage, found.microbatch - (found.microbatch >= stop ? slices : 0), paired);
    };
    const queues = state.queues.map(queue => cellsOf(queue).flatMap(cell => {
      const left = cell.filter(kept);
      return left.map((code, i) => renumbered(code, Number(left.length > 1 && i === 0)));
    }));
    return { ...state, queues, sources: state.sources.toSpliced(first, slices) };
  },
  /** Add a microbatch: each of its ops follows the same op of the last microbatch, which never causes a deadlock. */
  a(sheet, state) {
    if (sheet.rounds > 1) throw Error('a schedule of several rounds keeps its microbatches');
    if (sheet.kinds.some(kind => kind.needs?.some(need => need.ahead)))
      throw Error('no microbatch can be added: ops wait for ops of the next one');
    const last = state.sources.length - sheet.slices;
    const queues = state.queues.map(queue => cellsOf(queue).flatMap(cell => [...cell, ...copiesOf(sheet, cell, last)]));
    return { ...state, queues, sources: [...state.sources, ...state.sources.slice(last)] };
  },
};

/** Return copies, for one more microbatch, of a cell's ops of the last microbatch. */
const copiesOf = (sheet, cell, last) => cell.map(code => unpackOp(sheet, code)).filter(({ microbatch }) => microbatch >= last)
  .map(({ kind, stage, microbatch }) => packOp(sheet, kind, stage, microbatch + sheet.slices));

const stateNow = (panel = editor.panel) => editor.past[editor.at].states[panel];

/** Make an edit in a panel and remember it; throw an error if it is refused. */
function edit(panel, letter, ...numbers) {
  const [sheet, state] = [editor.sheets[panel], stateNow(panel)];
  if (!sheet) throw Error(`this schedule cannot be edited: ${TIMELINES[panel]?.edit?.off ?? 'the page has no costs for it'}`);
  const next = EDITS[letter](sheet, state, ...numbers);
  editor.past.length = editor.at + 1;
  editor.past.push({ states: editor.past[editor.at].states.with(panel, next), token: { panel, letter, numbers } });
  editor.at++;
}

/** Undo one edit, or with -1 redo one; return whether there was one. */
function stepBack(by = 1) {
  const to = editor.at - by;
  if (to < 0 || to >= editor.past.length) return false;
  editor.at = to;
  return true;
}

/** Return a hash of the original schedules, so that a link's edits are not made on another schedule. */
const baseNumber = () => editor.base ??= hashOfBase();

function hashOfBase() {
  let sum = 0x811c9dc5;
  for (const sheet of editor.sheets)
    for (const sign of sheet ? csvOf(sheet, sheet.base) : '-') sum = Math.imul(sum ^ sign.charCodeAt(0), 0x01000193);
  return (sum >>> 0).toString(36);
}

/** Return the edits as text for a link, empty without edits; consecutive moves of one cell are merged. */
function editsText() {
  const tokens = [];
  for (const { token } of editor.past.slice(1, editor.at + 1)) {
    const { panel, letter, numbers } = token;
    const before = tokens.at(-1);
    const follows = letter === 'm' && before?.letter === 'm' && before.panel === panel && before.numbers[0] === numbers[0] && before.numbers[2] === numbers[1];
    if (follows) tokens[tokens.length - 1] = { panel, letter, numbers: [numbers[0], before.numbers[1], numbers[2]] };
    else tokens.push(token);
  }
  if (!tokens.length) return '';
  return [baseNumber(), ...tokens.map(({ panel, letter, numbers }) => `${panel || ''}${letter}${numbers.join('.')}`)].join('~');
}

/** Make all edits of an untrusted link; or none, and return the reason. */
function readEdits(text) {
  const [base, ...tokens] = text.split('~');
  editor.past.length = 1;
  editor.at = 0;
  if (base !== baseNumber()) return 'the link is for another schedule';
  const begun = performance.now();
  if (tokens.length > MOST_EDITS) return `the link has ${tokens.length} edits; expected ${MOST_EDITS} at most`;
  try {
    for (const token of tokens) {
      if (performance.now() - begun > MOST_MS) throw Error('they take too long');
      const found = /^(\d{0,3})([a-z])((?:\d{1,6}(?:\.\d{1,6}){0,3})?)$/.exec(token);
      if (!found || !Object.hasOwn(EDITS, found[2])) throw Error(`not an edit: ${token.slice(0, 20)}`);
      const numbers = found[3] ? found[3].split('.').map(Number) : [];
      const count = EDITS[found[2]].length - 2;
      const pair = found[2] === 'p' && numbers.length === count + 1;
      if (numbers.length !== count && !pair) throw Error(`not an edit: ${token.slice(0, 20)}`);
      edit(placeIn(Number(found[1]), editor.sheets.length, 'schedule'), found[2], ...numbers);
    }
  } catch (error) {
    editor.past.length = 1;
    editor.at = 0;
    return `the link's edits do not fit this schedule: ${error.message}`;
  }
  return '';
}

/** Return the part of the address with the edits; empty if it would be too long. */
function editsPart() {
  const text = editsText();
  return text && text.length <= LONGEST_ADDRESS ? `e=${text}` : '';
}
