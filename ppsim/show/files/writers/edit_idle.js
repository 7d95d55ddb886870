// Causes of idle time in an edited schedule, as in analysis/idle.py: each gap is followed backwards along the inputs that
// arrive last.

const WHY = Object.fromEntries(LOOKS.causes.map(({ name }, cause) => [name, cause]));
const WHY_LATE = [WHY.order, WHY.copy, WHY.copy, WHY.collective]; // by stream: the op has its inputs and does not run yet
const WHY_RUNS = [WHY.compute, WHY.copy, WHY.copy, WHY.collective]; // by stream: the op runs

/** Return the last input of every op, its arrival, and for ops on all devices the op that delays the others. */
function lastInputs(sheet, { ops, inputs, before, end }) {
  const { size, lead } = ops;
  const [need, came, blame] = [new Int32Array(size).fill(NO_OP), new Float64Array(size), Int32Array.from({ length: size }, (_, op) => op)];
  for (let op = 0; op < size; op++) {
    const kind = sheet.kinds[ops.kind[op]];
    const take = (source, time) => { if (lead[source] !== lead[op] && (need[op] < 0 || time > came[op])) [need[op], came[op]] = [source, time]; };
    if (before[op] >= 0 && (kind.stream || kind.everywhere)) take(before[op], end[before[op]]);
    for (let i = inputs.at[op]; i < inputs.at[op + 1]; i++) take(inputs.source[i], end[inputs.source[i]] + inputs.lag[i]);
  }
  const latest = new Map(); // by lead of an op on all devices: the member that could start last
  for (let op = 0; op < size; op++)
    if (sheet.kinds[ops.kind[op]].everywhere && !(latest.has(lead[op]) && came[latest.get(lead[op])] >= came[op])) latest.set(lead[op], op);
  for (let op = 0; op < size; op++)
    if (latest.has(lead[op])) blame[op] = need[latest.get(lead[op])] < 0 ? latest.get(lead[op]) : need[latest.get(lead[op])];
  return { need, came, blame };
}

/** Return the segments of idle time before ops, unordered: { op, cause, blamed, from, to }. */
function idleBeforeOps(sheet, timed) {
  const { ops, start, end } = timed;
  const { need, came, blame } = lastInputs(sheet, timed);
  const chosen = op => {
    const first = ops.pair[op] >= 0 ? Math.min(op, ops.pair[op]) : op;
    const second = ops.pair[first];
    return second >= 0 && need[second] >= 0 && (need[first] < 0 || came[second] > came[first]) ? second : first;
  };
  const kindOf = op => sheet.kinds[ops.kind[op]];
  const found = [];
  for (let device = 0; device < sheet.devices; device++) {
    let free = 0;
    for (let i = ops.offsets[device]; i < ops.offsets[device + 1]; i++) {
      if (kindOf(i).stream) continue;
      if (start[i] <= free) { free = Math.max(free, end[i]); continue; }
      let [time, op, waits] = [start[i], chosen(i), true];
      while (op >= 0 && time > free) {
        const source = need[op];
        const together = kindOf(op).everywhere;
        const since = [[source < 0 ? 0 : came[op], together ? WHY.barrier : waits ? WHY.host : WHY_LATE[kindOf(op).stream ?? 0], blame[op]]];
        if (source >= 0) since.push([end[source], WHY.message, op], [start[source], WHY_RUNS[kindOf(source).stream ?? 0], source]);
        for (const [at, cause, blamed] of since) {
          const from = Math.min(Math.max(at, free), time);
          if (from < time) found.push({ op: i, cause, blamed, from, to: time });
          time = from;
        }
        waits = false;
        op = source >= 0 ? chosen(source) : source;
      }
      free = end[i];
    }
  }
  return found;
}

/** Split segments that wait for an op slower than the mean of its kind, in place: the excess is imbalance. */
function splitImbalance({ ops, start, end }, found, makespan) {
  const sums = new Map();
  const group = op => ops.kind[op] + (ops.pair[op] >= 0 ? KIND_CODES : 0);
  for (let op = 0; op < ops.size; op++) {
    const [sum, count] = sums.get(group(op)) ?? [0, 0];
    sums.set(group(op), [sum + end[op] - start[op], count + 1]);
  }
  for (const segment of [...found]) {
    if (segment.cause !== WHY.compute) continue;
    const [sum, count] = sums.get(group(segment.blamed));
    const length = end[segment.blamed] - start[segment.blamed];
    const excess = (segment.to - segment.from) * clamp(1 - sum / count / length || 0, 0, 1);
    if (excess <= EPSILON * makespan) continue;
    found.push({ ...segment, cause: WHY.imbalance, from: segment.to - excess });
    segment.to -= excess;
  }
}

/** Return the segments of idle time of edited queues, by device in order of time. */
function idleOfQueues(sheet, timed, makespan) {
  const { ops, end } = timed;
  const found = idleBeforeOps(sheet, timed);
  splitImbalance(timed, found, makespan);
  const trains = ops.kind.some(kind => kind === BACKWARD_KIND || kind === INPUT_KIND);
  const stepOf = op => ops.device[op] * sheet.rounds + (trains && sheet.flushes ? roundOf(sheet, ops.microbatch[op]) : 0);
  const first = of => {
    const firsts = new Array(sheet.devices * sheet.rounds).fill(NO_OP);
    for (let op = ops.size - 1; op >= 0; op--) if (of.includes(ops.kind[op])) firsts[stepOf(op)] = op;
    return firsts;
  };
  const [forward, backward] = [first([FORWARD_KIND]), first([BACKWARD_KIND, INPUT_KIND]).map(op => op < 0 ? op : ops.pair[op] >= 0 && ops.pair[op] < op ? op - 1 : op)];
  for (const segment of found) {
    const step = stepOf(segment.op);
    const names = [segment.op, segment.blamed].map(op => sheet.kinds[ops.kind[op]].name);
    if (segment.cause !== WHY.collective && (names[0] === 'NORM' || names[0] === 'SYNC' || names[1] === 'OPT')) segment.cause = WHY.optimizer;
    if (segment.cause === WHY.message && fedBack(sheet, ops, segment.blamed)) segment.cause = WHY.feedback;
    if (segment.cause !== WHY.compute && segment.cause !== WHY.order) continue;
    if (segment.op <= forward[step]) segment.cause = WHY.fill;
    else if (segment.op === backward[step]) segment.cause = WHY.turnaround;
  }
  const rows = Array.from({ length: sheet.devices }, () => []);
  for (const segment of found) rows[ops.device[segment.op]].push(segment);
  rows.forEach((row, device) => {
    let last = 0;
    for (let op = ops.offsets[device]; op < ops.offsets[device + 1]; op++) if (!sheet.kinds[ops.kind[op]].stream) last = Math.max(last, end[op]);
    row.sort((a, b) => a.from - b.from);
    if (last < makespan) row.push({ op: NO_OP, cause: DRAIN, blamed: NO_OP, from: last, to: makespan });
  });
  return rows;
}

/** Return segments as the columns of report_idle.js; `place` has the row of each op, -1 for none. */
function waitsOfRows(rows, place) {
  const all = rows.flat();
  let count = 0;
  return {
    offsets: [0, ...rows.map(row => count += row.length)], left: Float64Array.from(all, ({ from }) => from), right: Float64Array.from(all, ({ to }) => to),
    cause: Uint8Array.from(all, ({ cause }) => cause), blamed: Int32Array.from(all, ({ blamed }) => blamed < 0 ? blamed : place[blamed]),
  };
}

/** Return the idle time of all devices by cause. */
function sumsByCause(rows) {
  const sums = LOOKS.causes.map(() => 0);
  for (const row of rows) for (const { cause, from, to } of row) sums[cause] += to - from;
  return sums;
}
