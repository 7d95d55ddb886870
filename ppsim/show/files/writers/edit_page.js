// An edited schedule as a timeline of the page, its numbers, and the functions of window.ppsim for scripts and tests.

const BYTES_IN = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4, PiB: 1024 ** 5 };
const BAND_OF_STREAM = [0, 3, 4, 2];

/** Return times, numbers and peaks of edited queues, and whether and why they cannot run. */
function answerOf(sheet, state) {
  const timed = timeQueues(sheet, state);
  const { ops, start, end, done, valid } = timed;
  const missing = state.partial ? missingOps(sheet, state).reduce((sum, queue) => sum + queue.length, 0) : 0;
  const found = { timed, missing, valid: valid && !missing, stuck: valid ? null : whyStuck(sheet, timed) };
  found.makespan = end.reduce((most, time) => Math.max(most, time), 0);
  found.busy = Array(sheet.devices).fill(0);
  const [first, last] = [Array(sheet.devices).fill(Infinity), Array(sheet.devices).fill(0)];
  let messages = 0;
  for (let op = 0; op < ops.size; op++) {
    const { device } = ops;
    const input = timed.inputs.neighbour[op];
    if (input >= 0 && (ops.device[input] !== device[op] || fedBack(sheet, ops, op))) messages++;
    if (!done[op] || sheet.kinds[ops.kind[op]].stream) continue;
    if (!(ops.pair[op] >= 0 && ops.pair[op] < op)) found.busy[device[op]] += end[op] - start[op];
    first[device[op]] = Math.min(first[device[op]], start[op]);
    last[device[op]] = Math.max(last[device[op]], end[op]);
  }
  const ratio = (part, whole) => whole > 0 ? Math.max(part, 0) / whole : part > 0 ? Infinity : 0;
  found.span = Math.max(0, ...last.map((time, device) => time - first[device]).filter(Number.isFinite));
  found.ideal = Math.max(0, ...found.busy);
  const work = found.busy.reduce((sum, time) => sum + time, 0);
  found.bubble_rate = ratio(found.makespan * sheet.devices - work, found.makespan * sheet.devices);
  found.bubble_over_ideal = ratio(found.makespan - found.ideal, found.ideal);
  found.bubble_rate_span = ratio(found.span - found.ideal, found.span);
  found.idle = found.busy.map(time => found.makespan - time);
  found.messages = messages;
  found.peak = peakActivations(sheet, timed, found.makespan);
  return found;
}

/** Return the times to draw: ops that cannot run follow after all others, in the order of their queue. */
function drawnTimes({ ops, start, end, done, duration }, makespan) {
  const times = { start: start.slice(), end: end.slice(), end_of_all: makespan };
  for (let device = 0; device + 1 < ops.offsets.length; device++) {
    let free = makespan;
    for (let op = ops.offsets[device]; op < ops.offsets[device + 1]; op++) {
      if (done[op]) continue;
      const second = ops.pair[op] >= 0 && ops.pair[op] < op;
      times.start[op] = second ? times.start[op - 1] : free;
      times.end[op] = times.start[op] + duration[op];
      free = Math.max(free, times.end[op]);
    }
    times.end_of_all = Math.max(times.end_of_all, free);
  }
  return times;
}

/** Return a function to the chunk of a stage on a device, over both replicas. */
function chunkTable(sheet) {
  const held = Array(sheet.devices).fill(0);
  const table = new Int32Array(sheet.stages * sheet.devices);
  for (const row of sheet.placement) row.forEach((device, stage) => { table[stage * sheet.devices + device] = held[device]++; });
  return (stage, device) => stage < 0 ? 0 : table[stage * sheet.devices + device];
}

/** Return the values of some ops, as an array of the same type. */
function valuesAt(values, places) {
  const found = new values.constructor(places.length);
  for (let i = 0; i < places.length; i++) found[i] = values[places[i]];
  return found;
}

/** Return the ops in the rows of devices, as the columns of a timeline. */
function rowsOf(sheet, timed, times) {
  const { ops, inputs, bound } = timed;
  const place = new Int32Array(ops.size + 1).fill(NO_OP);
  const kept = new Int32Array(ops.size);
  const offsets = [0];
  let count = 0;
  for (let device = 0; device < sheet.devices; device++) {
    for (let op = ops.offsets[device]; op < ops.offsets[device + 1]; op++)
      if (sheet.kinds[ops.kind[op]].row) {
        place[op] = count;
        kept[count++] = op;
      }
    offsets.push(count);
  }
  const shown = kept.subarray(0, count);
  const take = values => valuesAt(values, shown);
  const placed = values => take(values).map(op => op < 0 ? op : place[op]);
  const chunk = chunkTable(sheet);
  const chunks = new Int32Array(count);
  for (let row = 0; row < count; row++) chunks[row] = chunk(ops.stage[shown[row]], ops.device[shown[row]]);
  return {
    offsets, kept: shown, place,
    ops: {
      kind: take(ops.kind), stage: take(ops.stage), microbatch: take(ops.microbatch), start: take(times.start), end: take(times.end),
      chunk: chunks, pair: placed(ops.pair), bound: placed(bound), dependency: placed(inputs.neighbour),
    },
  };
}

/** Return the ops of streams other than compute, as entries of the strips below rows. */
function lanesOfQueues(sheet, { ops, done }, times) {
  const found = [];
  for (let op = 0; op < ops.size; op++)
    if (sheet.kinds[ops.kind[op]].stream && done[op] && times.end[op] > times.start[op]) found.push(op);
  const take = values => valuesAt(values, found);
  const [left, right, device] = [times.start, times.end, ops.device].map(take);
  return {
    device, band: Uint8Array.from(found, op => BAND_OF_STREAM[sheet.kinds[ops.kind[op]].stream]), left, right, stage: take(ops.stage),
    microbatch: take(ops.microbatch), target: device, posted: left, awaited: left, size: new Float64Array(found.length), kind: take(ops.kind),
    op: Int32Array.from(found),
  };
}

/** Return the ops that run on all devices at once, one bar each. */
function barsOfQueues(sheet, { ops, done }, times) {
  const found = [];
  for (let op = 0; op < ops.size; op++)
    if (sheet.kinds[ops.kind[op]].everywhere && ops.lead[op] === op && done[op] && times.end[op] > times.start[op]) found.push(op);
  const of = values => Float64Array.from(found, op => values[op]);
  return { left: of(times.start), right: of(times.end), kind: Int32Array.from(found, op => sheet.kinds[ops.kind[op]].row ? ops.kind[op] : -1) };
}

/** Return the texts of an edited timeline's numbers, in the page's format; numbers that an edit leaves unknown are a dash. */
function numbersOf(sheet, state, answer, original) {
  const bound = answer.valid ? boundOf(sheet, state, answer, original) : null;
  const share = answer.peak.reduce((most, peak) => Math.max(most, peak), 0) * sheet.devices / (sheet.stages * sheet.slices);
  const most = Math.max(0, ...answer.peak);
  const times = { makespan: answer.makespan, ideal: answer.ideal };
  const known = {
    ...Object.fromEntries(Object.entries(times).map(([key, time]) => [key, timed(time)])),
    ...Object.fromEntries(['bubble_rate', 'bubble_over_ideal', 'bubble_rate_span'].map(key => [key, percent(answer[key])])),
    ...bound ? { bound: timed(bound.time) } : {}, peak_activations: number(most), peak_activations_share: number(share), messages: number(answer.messages),
  };
  const notes = {
    makespan: answer.valid ? `ideal ${number(answer.ideal)}, the work of the busiest device` : answer.stuck ? 'the end of the last op that can run' : `so far; ${answer.missing} ops to place`,
    bound: bound && aboveBound(bound, answer.makespan),
    peak_activations: `on device ${answer.peak.indexOf(most)}${sheet.devices <= 16 ? ` (${answer.peak.join(' ')})` : ''}`,
  };
  return Object.fromEntries(Object.entries(original.numbers).map(([key, { note }]) => [key, key in known
    ? { text: known[key], note: notes[key] ?? note } : { text: '-', note: 'unknown for an edited order' }]));
}

/** Return the curves of an edited timeline: memory if the page has it in bytes, and activations. */
function curvesOf(sheet, timed, times, answer, original) {
  const shown = { ...timed, start: times.start, end: times.end };
  const one = new Array(sheet.stages).fill(1);
  return original.curves.filter(curve => curve.name === 'live activations' || curve.name === 'memory' && sheet.memory).map(curve => {
    const bytes = curve.name === 'memory';
    const divisor = bytes ? BYTES_IN[curve.unit] ?? 1 : curve.unit ? original.chunks : 1;
    return heldCurve(sheet, shown, bytes ? sheet.memory : { activations: one, kept: one }, times.end_of_all, curve.name, curve.unit, divisor);
  });
}

/** Return an edited schedule as a timeline, which replaces the original one on the page. */
function editedTimeline(sheet, state, original) {
  const answer = answerOf(sheet, state);
  const { timed } = answer;
  const times = drawnTimes(timed, answer.makespan);
  const { offsets, ops, kept, place } = rowsOf(sheet, timed, times);
  const curves = curvesOf(sheet, timed, times, answer, original);
  const [held] = curves;
  const fullest = held.peak.indexOf(Math.max(...held.peak));
  const unit = original.held[0].split(' ').slice(1).join(' ');
  const whole = state.sources.length / sheet.slices / sheet.rounds;
  const edited = {
    ...original, offsets, ops, curves, edited: answer, drawn: times, kept, fold: undefined, path: undefined, merged: null, links: undefined,
    makespan: times.end_of_all, microbatches: state.sources.length, work: original.work.replace(/^\d+ microbatch(es)?/, `${whole} microbatch${whole === 1 ? '' : 'es'}`),
    waits: original.waits && answer.valid ? waitsOfRows(idleOfQueues(sheet, timed, answer.makespan), place) : undefined,
    busy: answer.busy, idle: answer.idle, peak_activations: answer.peak, messages: answer.messages,
    numbers: numbersOf(sheet, state, answer, original), held: held.peak.map(peak => `${number(peak)} ${unit}`),
    peak_memory: held.name === 'memory' ? { text: `${number(held.peak[fullest])} ${held.unit}`, note: `on device ${fullest}` } : undefined,
    lane: sheet.laned ? lanesOfQueues(sheet, timed, times) : original.lane, bars: sheet.laned && original.bars ? barsOfQueues(sheet, timed, times) : undefined,
  };
  edited.unpacked = Promise.resolve(finish(edited));
  return edited;
}

/** Prepare the editor once the page has its timelines. */
async function startEditor() {
  clearTimeout(editor.warming);
  if (editor.at) keepEdits(editsText(), editor.at);
  else if (editor.base) editor.kept.delete(editor.base);
  editor.originals = [...TIMELINES];
  editor.sheets = await Promise.all(TIMELINES.map(sheetOf));
  editor.past = [{ states: editor.sheets.map(sheet => sheet?.base ?? null), token: null }];
  editor.at = 0;
  editor.panel = Math.max(0, editor.sheets.findIndex(Boolean));
  editor.begun = [];
  editor.base = null;
  [editor.selected, editor.held, editor.ghost] = [null, null, null];
  if (REPORT.blank) editor.past[0].states = editor.sheets.map((sheet, panel) => sheet && !sheet.no_blank ? EDITS.b(sheet, sheet.base) : editor.past[0].states[panel]);
  if (REPORT.lesson?.edits) beginFrom(REPORT.lesson.edits);
  if (editor.filled !== baseNumber()) fillEditor();
  editor.filled = baseNumber();
  if (REPORT.blank || REPORT.lesson) toggleEditor(true);
  if (REPORT.blank) offer(0);
  $('editor').hidden = !editor.on;
  takeKept();
  if (editor.on || editor.at) showEdited();
}

/** Keep edits of a link until the page shows the schedule that they begin with. */
function keepEdits(text, count) {
  editor.left = { count };
  editor.kept.set(text.split('~')[0], text);
}

/** Repeat kept edits of this schedule, perhaps with other costs. */
function takeKept() {
  const text = editor.kept.get(baseNumber());
  if (!text) return;
  editor.left = null;
  const refused = readEdits(text);
  if (refused) say(`Not edited: ${refused}`);
  else if (!editor.on) toggleEditor(true);
}

/** Return times and numbers of a schedule before its edits, as the page computes them. */
const begunOf = panel => editor.begun[panel] ??= answerOf(editor.sheets[panel], editor.sheets[panel].base);

/** Return whether a link's edits are for a schedule that a live page does not show yet. */
const awaits = text => 'live' in root.dataset && text.split('~')[0] !== baseNumber();

/** Make the edits in the page's address, unless the page has them already. */
function editsFromAddress() {
  const [, text] = /[#&]e=([^&]*)/.exec(location.hash) ?? [];
  if (text === undefined || text === editsText()) return;
  if (awaits(text)) {
    say('The link is for another schedule');
    return keepEdits(text, text.split('~').length - 1);
  }
  const refused = text.length > LONGEST_ADDRESS
    ? `the link is ${text.length} letters long; expected ${LONGEST_ADDRESS} at most` : readEdits(text);
  if (refused) return say(`Not edited: ${refused}`);
  editor.panel = editor.past.at(-1).token?.panel ?? editor.panel;
  toggleEditor(true);
}

/** Replace every edited timeline on the page. */
function showEdited() {
  editor.sheets.forEach((sheet, panel) => {
    if (!sheet) return;
    const state = stateNow(panel);
    if (state === sheet.base && !editor.on) TIMELINES[panel] = editor.originals[panel];
    else if (TIMELINES[panel].state !== state) TIMELINES[panel] = { ...editedTimeline(sheet, state, editor.originals[panel]), state };
  });
  REPORT.timelines = TIMELINES;
  const [baseline] = TIMELINES;
  view.op = null;
  const { selected } = editor;
  const cells = selected && cellsOf(stateNow(selected.panel).queues[selected.device]);
  const same = cells?.findIndex(cell => cell.includes(selected.code)); // wherever it stands now
  const at = same >= 0 ? same : selected?.at;
  if (!cells?.[at]) editor.selected = null;
  else if (editor.on) choose(selected.panel, selected.device, at);
  for (const timeline of TIMELINES) timeline.versus_baseline = timeline.makespan / (TIMELINES[timeline.baseline] ?? baseline).makespan - 1;
  const whole = view.range[0] <= 0 && view.range[1] >= length(); // stays in sight, and its scale where it can
  SPAN = Math.max(...TIMELINES.map((t, panel) => Math.max(t.makespan, editor.on && editor.sheets[panel] ? begunOf(panel).makespan : 0))) || 1;
  if (whole) view.range = [0, length() * 1.005];
  root.toggleAttribute('data-edited', editor.at > 0 || Boolean(REPORT.blank));
  showNumbers();
  drawSoon();
}

/** Functions for scripts and tests: the state of the edited schedule, and edits. */
window.ppsim = {
  state() {
    const [sheet, state] = [editor.sheets[editor.panel], stateNow()];
    const { timed, valid, stuck, missing, makespan, bubble_rate, peak, busy, idle } = answerOf(sheet, state);
    const memory = sheet.memory ? heldCurve(sheet, timed, sheet.memory, makespan, 'memory', 'B').peak : null;
    const cells = state.queues.map(queue => cellsOf(queue));
    let op = 0;
    const starts = cells.map(queue => queue.map(cell => { const time = timed.start[op]; op += cell.length; return time; }));
    return {
      queues: cells.map(queue => queue.map(cell => cellText(sheet, cell))), start: starts, makespan, bubble_rate, peak, memory, busy, idle, valid,
      sources: [...state.sources], missing, note: state.note ?? '',
      cycle: stuck && stuck.cycle.map(([each, need]) => [opLabel(sheet, timed.ops, each), opLabel(sheet, timed.ops, need)]),
      by_cause: valid ? Object.fromEntries(sumsByCause(idleOfQueues(sheet, timed, makespan)).map((sum, cause) => [LOOKS.causes[cause].name, sum]).filter(([, sum]) => sum > 0)) : null,
      why: stuck ? stuckWords(sheet, timed, stuck) : '',
    };
  },
  move: (device, from, to) => changed(() => edit(editor.panel, 'm', device, from, to)),
  split: (device, at) => changed(() => edit(editor.panel, 's', device, at)),
  join: (device, at) => changed(() => edit(editor.panel, 'j', device, at)),
  splitAll: (device = editor.sheets[editor.panel].devices) => changed(() => edit(editor.panel, 'd', device)),
  joinAll: (device = editor.sheets[editor.panel].devices) => changed(() => edit(editor.panel, 'u', device)),
  cross: (device, at, to = placeAcross(device, at)) => changed(() => edit(editor.panel, 'c', device, at, to)),
  add: () => changed(() => edit(editor.panel, 'a')),
  take: microbatch => changed(() => edit(editor.panel, 't', microbatch)),
  undo: () => changed(() => stepBack()),
  redo: () => changed(() => stepBack(-1)),
  csv: () => csvOf(editor.sheets[editor.panel], stateNow()),
};

/** Return the place of a cell on the device of the other replica, by its start. */
function placeAcross(device, at) {
  const [sheet, state] = [editor.sheets[editor.panel], stateNow()];
  const target = otherDevice(sheet, state, device, at);
  const ranked = rankedCells(sheet, state);
  return placeAfter(ranked[target], ranked[device][at].key);
}

/** Change the schedule, show it, and write the edits into the address. */
function changed(act) {
  const result = act();
  showEdited();
  setAddress();
  return result;
}
