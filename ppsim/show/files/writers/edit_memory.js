// Memory of edited schedules: the number of activations, and bytes by the amounts in the page (engine/memory/usage.py).

const FREES_ALL = 1; // place in FREES of show/files/editing.py: nothing, all, a part, the rest
const ROUNDING = 1e-12; // of the makespan

/** Return whether the schedule has backwards (placed or not), and a function to whether an op is recomputed. */
function passesOf(sheet, ops) {
  const again = new Set();
  const cell = op => ops.stage[op] * ops.size + ops.microbatch[op];
  for (let op = 0; op < ops.size; op++) {
    if (ops.kind[op] === RECOMPUTE_KIND) again.add(cell(op));
  }
  return { backwards: sheet.trains, recomputed: op => again.size > 0 && sheet.kinds[ops.kind[op]].computes
    && again.has(cell(op)) };
}

/** Return the number of activations that each op adds; negative if it frees some. */
function activationChanges(sheet, ops) {
  const { backwards, recomputed } = passesOf(sheet, ops);
  const change = new Int8Array(ops.size);
  for (let op = 0; op < ops.size && backwards; op++) {
    const code = ops.kind[op];
    const kind = sheet.kinds[code];
    const again = recomputed(op);
    const partly = again && sheet.partly.includes(ops.stage[op]);
    if (code === FORWARD_KIND && again) change[op] = partly ? 1 : 0;
    else if (code !== RECOMPUTE_KIND || !partly)
      change[op] = (kind.takes ? 1 : 0) - (kind.frees === FREES_ALL || code === WEIGHTS_KIND ? 1 : 0);
  }
  return change;
}

/**
 * Return the peak of activations of each device: over the order of its queue, or over time if devices have several
 * streams. Ops that cannot run are not counted.
 */
function peakActivations(sheet, { ops, start, end, done }, makespan) {
  const change = activationChanges(sheet, ops);
  const peaks = [];
  for (let device = 0; device < sheet.devices; device++) {
    const order = []; // of ops whose changes are counted
    for (let op = ops.offsets[device]; op < ops.offsets[device + 1]; op++) {
      if (!done[op]) continue;
      // In a pair the forward allocates before the backward frees.
      const turned = !sheet.laned && ops.pair[op] >= 0 && ops.kind[Math.max(op, ops.pair[op])] === FORWARD_KIND;
      order.push(turned ? ops.pair[op] : op);
    }
    if (sheet.laned) {
      const share = op => (change[op] > 0 ? start[op] : end[op]) / (makespan || 1e-300);
      const time = new Map(order.map(op => [op, Math.round(share(op) * 1e12)]));
      order.sort((a, b) => time.get(a) - time.get(b) || change[a] - change[b]);
    }
    let [held, most] = [0, order.length ? -Infinity : 0];
    for (const op of order) {
      held += change[op];
      most = Math.max(most, held);
    }
    peaks.push(most);
  }
  return peaks;
}

/**
 * Return the change of memory at each op's start and at its end, and the message buffers of each device. `amounts` are
 * per stage, or per microbatch of a stage.
 */
function memoryChanges(sheet, { ops, inputs, sources, done }, amounts) {
  const { activations, kept: left, stash: stashed, message, stored } = amounts;
  const works = { [BACKWARD_KIND]: amounts.work_b, [INPUT_KIND]: amounts.work_i };
  const [begin, after] = [new Float64Array(ops.size), new Float64Array(ops.size)];
  const buffers = Array.from({ length: sheet.devices }, () => []); // by device: the op that sends, and the message's size
  const { backwards, recomputed } = passesOf(sheet, ops);
  const trained = ops.kind.some(kind => sheet.kinds[kind].name === 'EB');
  for (let op = 0; op < ops.size; op++) {
    const [code, stage] = [ops.kind[op], Math.max(0, ops.stage[op])];
    const kind = sheet.kinds[code];
    const microbatch = sources[ops.microbatch[op]];
    const held = (rows, of) => {
      const one = rows?.at(of) ?? 0;
      return typeof one === 'number' ? one : one[microbatch] ?? one;
    };
    const [whole, kept, stash] = [held(activations, stage), held(left, stage), held(stashed, stage)];
    let taken = backwards && kind.takes ? whole : 0;
    if (backwards && recomputed(op)) {
      const again = held(stored, stage);
      taken = code === FORWARD_KIND ? again : code === RECOMPUTE_KIND ? taken - again : taken;
    }
    const freed = [0, whole, whole - kept, kept][kind.frees ?? 0];
    const work = held(works[code], stage);
    begin[op] = taken + work;
    after[op] = -freed - work + (code === INPUT_KIND ? stash : 0) - (code === WEIGHTS_KIND ? stash : 0);
    if (kind.name === 'EF') begin[op] += amounts.encoder ?? 0;
    if (kind.name === (trained ? 'EB' : 'EF')) after[op] -= amounts.encoder ?? 0;
    const source = inputs.neighbour[op];
    if (source < 0 || !done[op] || ops.device[source] === ops.device[op] && !fedBack(sheet, ops, op)) continue;
    const size = held(message, stage - (code === FORWARD_KIND ? 1 : 0));
    if (code === FORWARD_KIND) begin[op] -= size;
    else after[op] -= size;
    if (size) buffers[ops.device[op]].push([source, size]);
  }
  return { begin, after, buffers };
}

/** Return the memory of devices over time as a curve of the page; changes at one time are one step. */
function heldCurve(sheet, timed, amounts, makespan, name, unit, divisor = 1) {
  const { ops, start, end, done } = timed;
  const { begin, after, buffers } = memoryChanges(sheet, timed, amounts);
  const [offsets, time, value, peak, least] = [[0], [], [], [], []];
  for (let device = 0; device < sheet.devices; device++) {
    const changes = [[0, amounts.always?.[device] ?? 0]];
    for (let op = ops.offsets[device]; op < ops.offsets[device + 1]; op++)
      if (done[op]) changes.push([start[op], begin[op]], [end[op], after[op]]);
    for (const [source, size] of buffers[device]) changes.push([end[source], size]);
    changes.sort((a, b) => a[0] - b[0]);
    let held = 0;
    const first = time.length;
    changes.forEach(([at, by], i) => {
      held += by;
      if (i + 1 < changes.length && changes[i + 1][0] - at <= ROUNDING * makespan) return;
      if (time.length > first && value.at(-1) === held / divisor) return;
      time.push(at);
      value.push(held / divisor);
    });
    offsets.push(time.length);
    peak.push(value.slice(first).reduce((a, b) => Math.max(a, b), -Infinity));
    least.push(value.slice(first).reduce((a, b) => Math.min(a, b), Infinity));
  }
  return { name, unit, offsets, time: Float64Array.from(time), value: Float64Array.from(value), peak, least };
}
