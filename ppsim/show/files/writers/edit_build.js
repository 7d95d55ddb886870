// A schedule built from a blank sheet: the ops left to place, the ops that may run now, filling the rest by a policy, and
// stamping the times of one microbatch on all.

const MOST_FILLED = 4000; // ops that are filled at once
const SAME_TIME = 1e-9; // share of the busiest device's work; times that differ by less are equal
const MOST_PERIODS = 64; // intervals tried between two ops of a building block

/**
 * Policies of filling: the order of kinds; `capped`, devices hold no more activations than in the original schedule;
 * `deep`, later stages go first; `paired`, a forward and a backward run as a pair.
 */
const POLICIES = [
  { name: 'backwards first', kinds: [[BACKWARD_KIND, INPUT_KIND], [FORWARD_KIND], [WEIGHTS_KIND]] },
  { name: 'backwards first, in the memory of the original schedule', kinds: [[BACKWARD_KIND, INPUT_KIND], [FORWARD_KIND], [WEIGHTS_KIND]], capped: true },
  { name: 'backwards first, in that memory, later chunks first', kinds: [[BACKWARD_KIND, INPUT_KIND], [FORWARD_KIND], [WEIGHTS_KIND]], capped: true, deep: true },
  { name: 'forwards first', kinds: [[FORWARD_KIND], [BACKWARD_KIND, INPUT_KIND], [WEIGHTS_KIND]] },
  { name: 'backwards first, with a forward as a pair', kinds: [[BACKWARD_KIND, INPUT_KIND], [FORWARD_KIND], [WEIGHTS_KIND]], paired: true },
];

function needBlank(sheet) {
  const { no_blank: reason } = sheet;
  if (reason) throw Error(`this schedule cannot begin blank: ${reason}`);
}

/** Return the ops of the complete schedule, by device. */
function wantedOps(sheet, state) {
  const bySource = new Map(); // by original microbatch, its ops as [device, kind, stage]
  sheet.base.queues.forEach((queue, device) => queue.forEach(code => {
    const { kind, stage, microbatch } = unpackOp(sheet, code);
    if (!bySource.has(microbatch)) bySource.set(microbatch, []);
    bySource.get(microbatch).push([device, kind, stage]);
  }));
  const wanted = Array.from({ length: sheet.devices }, () => []);
  const crossed = crossedOf(sheet, state, bySource);
  state.sources.forEach((source, microbatch) => {
    for (const [device, kind, stage] of bySource.get(source)) {
      const home = crossed.has(microbatch) ? mirrored(sheet, device, stage) : device;
      wanted[home].push(packOp(sheet, kind, stage, microbatch));
    }
  });
  return wanted;
}

/** Return the microbatches that edits have moved to the other replica of the model. */
function crossedOf(sheet, state, bySource) {
  const crossed = new Set();
  if (sheet.placement.length < 2) return crossed;
  const first = (device, stage) => sheet.placement[0][stage] === device;
  state.queues.forEach((queue, device) => queue.forEach(code => {
    const { stage, microbatch } = unpackOp(sheet, code);
    const [[home, , began]] = bySource.get(state.sources[microbatch]);
    if (first(device, stage) !== first(home, began)) crossed.add(microbatch);
  }));
  return crossed;
}

/** Return the ops left to place, by device; a backward also counts as placed if it is split or joined. */
function missingOps(sheet, state) {
  return wantedOps(sheet, state).map((wanted, device) => {
    const placed = new Set(state.queues[device].map(code => code - code % 2));
    const has = (code, kind) => { const { stage, microbatch } = unpackOp(sheet, code); return placed.has(packOp(sheet, kind, stage, microbatch)); };
    return wanted.filter(code => !placed.has(code) && !({
      [BACKWARD_KIND]: () => has(code, INPUT_KIND), [INPUT_KIND]: () => has(code, BACKWARD_KIND), [WEIGHTS_KIND]: () => has(code, BACKWARD_KIND),
    }[unpackOp(sheet, code).kind]?.()));
  });
}

/** Return placed and missing ops as one set of columns, with durations, inputs, and the slice that each must follow. */
function wholeSet(sheet, state, missing) {
  const queues = state.queues.map((queue, device) => [...queue, ...missing[device]]);
  const ops = columnsOfQueues(sheet, queues);
  const behind = new Int32Array(ops.size).fill(NO_OP);
  for (const [op, need] of sliceOrder(sheet, ops)) behind[op] = need;
  const { together } = durationRules(sheet, ops, state.sources);
  const duration = durationsOfQueues(sheet, ops, state.sources);
  return { ops, behind, together, duration, inputs: inputsOfQueues(sheet, ops, state.sources.length) };
}

/**
 * Return the missing ops whose inputs are placed, with their start and end if they ran at the end of their device's
 * queue. On device `at` they may run after its first `until` ops.
 */
function readyOps(sheet, state, missing = missingOps(sheet, state), at = -1, until = Infinity) {
  const timed = timeQueues(sheet, state);
  const whole = wholeSet(sheet, state, missing);
  const { ops, duration } = whole;
  const [end, done] = [new Float64Array(ops.size), new Uint8Array(ops.size)];
  const free = new Float64Array(sheet.devices);
  for (let device = 0, placed = 0; device < sheet.devices; device++)
    for (let i = 0; i < state.queues[device].length; i++, placed++) {
      const op = ops.offsets[device] + i;
      [end[op], done[op]] = [timed.end[placed], timed.done[placed]];
      if (device !== at || i < until) free[device] = Math.max(free[device], timed.end[placed]);
    }
  const ready = [];
  for (let device = 0; device < sheet.devices; device++)
    for (let op = ops.offsets[device] + state.queues[device].length; op < ops.offsets[device + 1]; op++) {
      const start = arrivalOf(op, whole, end, done, free[device]);
      if (start !== null) ready.push({ device, op, start, end: start + duration[op] });
    }
  return { ...whole, ready, end, done, free };
}

/** Return the start of an op on a device that is free from a time on; null if one of its inputs is not placed. */
function arrivalOf(op, { inputs, behind }, end, done, free) {
  if (behind[op] >= 0 && !done[behind[op]]) return null;
  let start = free;
  for (let i = inputs.at[op]; i < inputs.at[op + 1]; i++) {
    const source = inputs.source[i];
    if (source < 0 || !done[source]) return null;
    start = Math.max(start, end[source] + inputs.lag[i]);
  }
  return start;
}

/**
 * Return the ops that may run next on a device, or at place `at` of its queue, in order of their start: label, place
 * among the wanted ops, times.
 */
function choicesOf(sheet, state, device, at = Infinity) {
  const cells = cellsOf(state.queues[placeIn(device, sheet.devices, 'device')]);
  const until = at < cells.length ? cells.slice(0, at).flat().length : Infinity;
  const { ready, ops, free, together } = readyOps(sheet, state, undefined, device, until);
  const wanted = wantedOps(sheet, state)[device];
  const placeOf = op => wanted.indexOf(packOp(sheet, ops.kind[op], ops.stage[op], ops.microbatch[op]));
  const own = ready.filter(each => each.device === device).map(each => ({ ...each, place: [placeOf(each.op)] }));
  const both = pairsAmong(sheet, ops, own).map(([one, other]) => {
    const start = Math.max(one.start, other.start);
    const end = start + together(one.op, other.op);
    return { op: one.op, other: other.op, start, end, place: [...one.place, ...other.place] };
  });
  const sliceOf = op => sheet.slices === 1 ? ''
    : ` (microbatch ${Math.floor(ops.microbatch[op] / sheet.slices)}, slice ${ops.microbatch[op] % sheet.slices})`;
  const found = [...own, ...both].map(({ op, other, start, end, place }) => ({
    label: opLabel(sheet, ops, op) + (other === undefined ? sliceOf(op) : ` with ${opLabel(sheet, ops, other)}`),
    start, end, place, waits: start - free[device],
  })).sort((a, b) => a.start - b.start || a.place.length - b.place.length || a.place[0] - b.place[0]);
  if (until === Infinity) return found;
  const runs = ({ place }) => {
    const { ops: tried, done } = timeQueues(sheet, EDITS.p(sheet, state, device, at, ...place));
    return done[tried.offsets[device] + until] && !earlySlices(sheet, tried).length;
  };
  return found.slice(0, MOST_CHOICES).filter(runs); // without ops that wait for a later op of the queue
}

/** Return whether the original schedule has pairs; only then pairs can be placed. */
const hasPairs = sheet => sheet.base.queues.some(queue => queue.some(code => code % 2));

/** Return the pairs of a forward and a backward among ready ops of a device: of each stage the first of both. */
function pairsAmong(sheet, ops, ready) {
  if (!hasPairs(sheet)) return [];
  const firstOf = kind => {
    const found = new Map();
    for (const each of ready)
      if (ops.kind[each.op] === kind && !found.has(ops.stage[each.op])) found.set(ops.stage[each.op], each);
    return [...found.values()];
  };
  return firstOf(FORWARD_KIND).flatMap(one => firstOf(BACKWARD_KIND).map(other => [one, other]));
}

/** Return a state filled by a policy: devices run the op that can start first, and among ties the policy's choice. */
function filled(sheet, state, policy) {
  const missing = missingOps(sheet, state);
  const count = missing.reduce((sum, queue) => sum + queue.length, 0);
  if (count > MOST_FILLED) throw Error(`${count} ops are missing; at most ${MOST_FILLED} are filled at once`);
  const whole = readyOps(sheet, state, missing);
  const { ops, duration, together, end, done, free } = whole;
  if (!state.queues.every((queue, device) => queue.every((_, i) => done[ops.offsets[device] + i])))
    throw Error('the placed ops cannot run; undo that first');
  const change = activationChanges(sheet, ops);
  const most = policy.capped ? peakActivations(sheet, timeQueues(sheet, sheet.base), 1) : null;
  const held = state.queues.map((queue, device) => queue.reduce((sum, _, i) => sum + change[ops.offsets[device] + i], 0));
  const rank = op => policy.kinds.findIndex(kinds => kinds.includes(ops.kind[op]));
  const compare = (a, b) => rank(a) - rank(b) || (policy.deep ? ops.stage[b] - ops.stage[a] : 0) || ops.microbatch[a] - ops.microbatch[b]
    || (ops.kind[a] === WEIGHTS_KIND ? ops.stage[a] - ops.stage[b] : 0); // two W take their order from their stages
  const left = missing.map((queue, device) => queue.map((_, i) => ops.offsets[device] + state.queues[device].length + i));
  const queues = state.queues.map(queue => [...queue]);
  const near = SAME_TIME * Math.max(1e-300, ...queues.map((_, device) => left[device].reduce((sum, op) => sum + duration[op], free[device])));
  let note = '';
  for (let placed = 0; placed < count; placed++) {
    let best = null;
    const startOn = (op, device) => most && change[op] > 0 && held[device] >= most[device] ? null
      : arrivalOf(op, whole, end, done, free[device]);
    for (let device = 0; device < sheet.devices; device++) {
      for (const op of left[device]) {
        const start = startOn(op, device);
        if (start === null) continue;
        if (!best || start < best.start - near) best = { device, start, among: [op] };
        else if (device === best.device && start <= best.start + near) best.among.push(op);
      }
    }
    if (!best) {
      note = most ? 'no further op can run in this memory' : 'no further op can run';
      break;
    }
    best.among.sort(compare);
    const [first, second] = best.among;
    if (second !== undefined && !compare(first, second)) {
      const names = best.among.filter(op => !compare(first, op)).map(op => opLabel(sheet, ops, op));
      note = `a tie on device ${best.device}: ${names.join(' or ')}; place one and fill again`;
      break;
    }
    const { device, start } = best;
    const turn = { [FORWARD_KIND]: BACKWARD_KIND, [BACKWARD_KIND]: FORWARD_KIND }[ops.kind[first]];
    const joins = op => ops.kind[op] === turn && (startOn(op, device) ?? Infinity) <= start + near;
    const [other] = policy.paired ? left[device].filter(joins).sort(compare) : [];
    const cell = other === undefined ? [first] : [first, other].sort((a, b) => ops.kind[a] - ops.kind[b]);
    free[device] = start + (other === undefined ? duration[first] : together(...cell));
    for (const op of cell) {
      [end[op], done[op]] = [free[device], 1];
      held[device] += change[op];
      left[device].splice(left[device].indexOf(op), 1);
      queues[device].push(packOp(sheet, ops.kind[op], ops.stage[op], ops.microbatch[op], Number(op !== cell.at(-1))));
    }
    placed += cell.length - 1;
  }
  return { ...state, queues, note };
}

/** Return the ops of one microbatch as [device, code, start, duration]; throw an error unless all are placed. */
function blockOf(sheet, state, microbatch) {
  placeIn(microbatch, state.sources.length, 'microbatch');
  const own = code => unpackOp(sheet, code).microbatch === microbatch;
  if (missingOps(sheet, state).some(queue => queue.some(own))) throw Error(`some ops of microbatch ${microbatch} are not placed`);
  if (sheet.slices > 1) throw Error('slices cannot be stamped: each follows other slices of its sequence');
  if (state.queues.some(queue => cellsOf(queue).some(cell => cell.length > 1 && cell.some(own))))
    throw Error(`microbatch ${microbatch} has pairs, which cannot be stamped`);
  const alone = { ...state, queues: state.queues.map(queue => queue.filter(own)) };
  const [timed, whole] = [timeQueues(sheet, alone), timeQueues(sheet, state)];
  const starts = new Map();
  state.queues.forEach((queue, device) => queue.forEach((code, i) => starts.set(code, whole.start[whole.ops.offsets[device] + i])));
  if (!whole.valid) throw Error('the placed ops cannot run; undo that first');
  return alone.queues.flatMap((queue, device) => queue.map((code, i) => [device, code, starts.get(code), timed.duration[timed.ops.offsets[device] + i]]));
}

/** Return the shortest interval between microbatches at which no device runs two ops of the block at once. */
function intervalOf(sheet, block) {
  const busy = Array(sheet.devices).fill(0);
  for (const [device, , , duration] of block) busy[device] += duration;
  const least = Math.max(...busy);
  const near = SAME_TIME * least;
  const tried = new Set([least]);
  for (const [device, , start, duration] of block)
    for (const [other, , begin] of block)
      if (other === device && start + duration > begin)
        for (let count = 1; count <= MOST_PERIODS && (start + duration - begin) / count >= least - near; count++) tried.add((start + duration - begin) / count);
  const clashes = interval => block.some(([device, code, start, duration]) => block.some(([other, second, begin, length]) => {
    if (other !== device || code === second || !(duration > near && length > near)) return false;
    const shift = begin - start - Math.floor((begin - start) / interval + SAME_TIME) * interval; // from the first op to the second, modulo the interval
    return shift < duration - near || interval - shift < length - near;
  }));
  return [...tried].sort((a, b) => a - b).find(interval => interval >= least - near && !clashes(interval)) ?? null;
}

/** Return a state in which all microbatches have the times of one, an interval apart; queues follow these times. */
function stamped(sheet, state, microbatch) {
  const block = blockOf(sheet, state, microbatch);
  const first = wantedOps(sheet, state).map(queue => queue.filter(code => unpackOp(sheet, code).microbatch === microbatch).length);
  if (!wantedOps(sheet, state).every((queue, device) => queue.length === first[device] * state.sources.length))
    throw Error('microbatches have different ops per device and cannot be stamped');
  const interval = intervalOf(sheet, block);
  if (interval === null) throw Error('no interval fits the ops of this microbatch');
  const queues = Array.from({ length: sheet.devices }, () => []);
  for (const [device, code, start] of block) {
    const { kind, stage } = unpackOp(sheet, code);
    state.sources.forEach((_, each) => queues[device].push([start + each * interval, packOp(sheet, kind, stage, each)]));
  }
  const note = `stamped every ${number(interval)} ${REPORT.unit}`;
  return { ...state, note, queues: queues.map(queue => queue.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, code]) => code)) };
}

/** Return the block of a microbatch as a file of schema ppsim.block/1 for `ppsim run`; throw an error if it has none. */
function blockText(sheet, state, microbatch) {
  const block = blockOf(sheet, state, microbatch);
  const [chunks, devices] = [sheet.stages / sheet.devices, sheet.devices];
  const split = block.some(([, code]) => unpackOp(sheet, code).kind === INPUT_KIND);
  const slot = Math.min(...block.filter(([, code]) => unpackOp(sheet, code).kind === FORWARD_KIND).map(([, , , duration]) => duration));
  const at = new Map(block.map(([, code, start]) => [code, start / slot]));
  const starts = []; // of each pass by device: forwards of each chunk, then backwards of each chunk
  for (const back of [false, true])
    for (let chunk = 0; chunk < chunks; chunk++) {
      const stages = Array.from({ length: devices }, (_, i) => back ? sheet.stages - 1 - chunk * devices - i : chunk * devices + i);
      starts.push(stages.map(stage => at.get(packOp(sheet, !back ? FORWARD_KIND : split ? INPUT_KIND : BACKWARD_KIND, stage, microbatch))));
    }
  const whole = value => {
    if (!(Math.abs(value - Math.round(value)) < 1e-6)) throw Error('a block needs steps of whole forwards; these ops have others');
    return Math.round(value);
  };
  const steps = starts.map(pass => {
    const found = pass.slice(1).map((start, i) => whole(start - pass[i]));
    if (found.some(step => step !== found[0])) throw Error('a block needs equal steps from device to device; these ops have unequal ones');
    return found[0] ?? 1;
  });
  const gaps = starts.slice(1).map((pass, i) => whole(pass[0] - starts[i].at(-1)));
  const interval = intervalOf(sheet, block);
  if (interval === null) throw Error('no interval fits the ops of this microbatch');
  const lines = ['schema = "ppsim.block/1"', `placement = "${sheet.placed}"`, `interval = ${whole(interval / slot)}`, `steps = [${steps.join(', ')}]`, `gaps = [${gaps.join(', ')}]`];
  return `${[...lines, ...split ? [] : ['split = false']].join('\n')}\n`;
}

Object.assign(EDITS, {
  /** Remove all ops. */
  b(sheet, state) {
    needBlank(sheet);
    return { ...state, partial: true, note: '', queues: state.queues.map(() => []) };
  },
  /** Place one of a device's wanted ops in its queue, or a forward and a backward as a pair. */
  p(sheet, state, device, at, which, ...other) {
    needBlank(sheet);
    const wanted = wantedOps(sheet, state)[placeIn(device, sheet.devices, 'device')];
    const codes = [which, ...other].map(each => wanted[each]);
    const missing = missingOps(sheet, state)[device];
    if (!codes.every(code => missing.includes(code))) throw Error(`device ${device} has no such op to place`);
    const kinds = codes.map(code => unpackOp(sheet, code).kind);
    if (codes.length > 1 && `${kinds}` !== `${[FORWARD_KIND, BACKWARD_KIND]}`)
      throw Error('not a pair; expected a forward with a backward');
    const cells = cellsOf(state.queues[device]);
    placeIn(at, cells.length + 1, 'place in the queue');
    cells.splice(at, 0, codes.map((code, i) => code + Number(i + 1 < codes.length)));
    return { ...withCells(state, device, cells), note: '' };
  },
  /** Remove one op from its queue. */
  x(sheet, state, device, at) {
    needBlank(sheet);
    const cells = cellAt(sheet, state, device, at);
    cells.splice(at, 1);
    return { ...withCells(state, device, cells), partial: true, note: '' };
  },
  /** Fill the rest by a policy. */
  f(sheet, state, policy) {
    needBlank(sheet);
    return filled(sheet, state, POLICIES[placeIn(policy, POLICIES.length, 'policy')]);
  },
  /** Stamp the times of one microbatch on all. */
  k(sheet, state, microbatch) {
    needBlank(sheet);
    return stamped(sheet, state, microbatch);
  },
});

Object.assign(window.ppsim, {
  blank: () => changed(() => edit(editor.panel, 'b')),
  place: (device, which, at = cellsOf(stateNow().queues[device] ?? []).length) =>
    changed(() => edit(editor.panel, 'p', device, at, ...[which].flat())),
  remove: (device, at) => changed(() => edit(editor.panel, 'x', device, at)),
  fill: (policy = 0) => changed(() => edit(editor.panel, 'f', policy)),
  stamp: (microbatch = 0) => changed(() => edit(editor.panel, 'k', microbatch)),
  choices: (device, at) => choicesOf(editor.sheets[editor.panel], stateNow(), device, at),
  block: (microbatch = 0) => blockText(editor.sheets[editor.panel], stateNow(), microbatch),
  policies: POLICIES.map(({ name }) => name),
});
