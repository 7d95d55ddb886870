// The simple model of time in the page: starts of the ops of edited queues, and the ops that wait for each other in a
// deadlock. The page has the rules of kinds of ops from core/lanes.py (REPORT.edit_kinds).

const ACTIVATION = 0; // numbers of results
const GRADIENT = 1;
const NO_OP = -1;
const MISSING = -2; // an input that no op of the queues makes
const [FORWARD_KIND, BACKWARD_KIND, INPUT_KIND, WEIGHTS_KIND, RECOMPUTE_KIND] = [0, 1, 2, 3, 4]; // codes of kinds
const COLLECTIVES = 3; // the stream of collectives
const KIND_CODES = 64; // exceeds the number of kinds; an op is packed as ((microbatch, stage + 1, kind), pair)

const packOp = (sheet, kind, stage, microbatch, paired = 0) =>
  ((microbatch * (sheet.stages + 1) + stage + 1) * KIND_CODES + kind) * 2 + paired;

/** Return kind, stage and microbatch of a packed op, and whether it is the first of a pair. */
function unpackOp(sheet, code) {
  const paired = code % 2;
  const rest = (code - paired) / 2;
  const kind = rest % KIND_CODES;
  const cell = (rest - kind) / KIND_CODES;
  const stage = cell % (sheet.stages + 1);
  return { kind, stage: stage - 1, microbatch: (cell - stage) / (sheet.stages + 1), paired };
}

/** Return the ops of queues as columns, device-major; `lead` is the first of the ops that start together. */
function columnsOfQueues(sheet, queues) {
  const offsets = [0];
  for (const queue of queues) offsets.push(offsets.at(-1) + queue.length);
  const size = offsets.at(-1);
  const [kind, stage, microbatch, device, pair, lead] = Array.from({ length: 6 }, () => new Int32Array(size));
  const meetings = new Map(); // by code of an op on all devices: the first of these ops
  pair.fill(NO_OP);
  let op = 0;
  queues.forEach((queue, owner) => {
    for (const code of queue) {
      const found = unpackOp(sheet, code);
      [kind[op], stage[op], microbatch[op], device[op]] = [found.kind, found.stage, found.microbatch, owner];
      if (found.paired) [pair[op], pair[op + 1]] = [op + 1, op];
      lead[op] = pair[op] >= 0 && pair[op] < op ? pair[op] : op;
      if (sheet.kinds[found.kind].everywhere) {
        if (!meetings.has(code)) meetings.set(code, op);
        lead[op] = meetings.get(code);
      }
      op++;
    }
  });
  return { offsets, size, kind, stage, microbatch, device, pair, lead };
}

/** Return the op that makes a result, for each row (a stage, or a device) and microbatch. */
function makersOf(sheet, ops, microbatches, result) {
  const rows = Math.max(sheet.stages, sheet.devices);
  const made = new Int32Array(rows * microbatches).fill(NO_OP);
  for (let op = 0; op < ops.size; op++) {
    const { gives, staged } = sheet.kinds[ops.kind[op]];
    if (gives === result) made[(staged ? ops.stage[op] : ops.device[op]) * microbatches + ops.microbatch[op]] = op;
  }
  return made;
}

/**
 * Return the inputs of every op as columns: places `at[op]` to `at[op + 1]` of `source` (the op that makes the input,
 * `MISSING` if there is none) and of `lag` (time of the message). `neighbour` is the input from the neighbouring stage.
 * The op before it on its lane is not an input.
 */
function inputsOfQueues(sheet, ops, microbatches) {
  const makers = [];
  const made = (result, row, microbatch) => {
    makers[result] ??= makersOf(sheet, ops, microbatches, result);
    return makers[result][row * microbatches + microbatch];
  };
  const leaves = departures(sheet, ops, made);
  const [at, source, lag] = [new Int32Array(ops.size + 1), [], []];
  const stage = new Int32Array(ops.size).fill(NO_OP); // the input from the neighbouring stage
  const add = (op, input, message, fed = false) => {
    const crosses = message && input >= 0 && (fed || ops.device[input] !== ops.device[op]);
    source.push(crosses && leaves ? leaves[input] : input);
    lag.push(!crosses ? 0 : fed && sheet.feedback !== null ? sheet.feedback : latency(sheet, ops.device[input], ops.device[op]));
  };
  for (let device = 0; device < sheet.devices; device++) {
    let before = NO_OP; // of the compute stream
    for (let op = ops.offsets[device]; op < ops.offsets[device + 1]; op++) {
      const kind = sheet.kinds[ops.kind[op]];
      at[op] = source.length;
      const fed = fedBack(sheet, ops, op);
      const input = kind.computes && !fed ? neighbour(sheet, ops, op, kind, made) : NO_OP;
      stage[op] = input;
      if (input !== NO_OP) add(op, input, true);
      if (kind.gated && before !== NO_OP) add(op, before, false);
      if (fed) {
        const found = made(ACTIVATION, sheet.stages - 1, ops.microbatch[op] - microbatches / sheet.rounds);
        stage[op] = found === NO_OP ? MISSING : found;
        add(op, stage[op], true, true);
      }
      for (const need of kind.needs ?? []) {
        const found = needed(sheet, ops, op, need, made, microbatches);
        if (found !== NO_OP) add(op, found, Boolean(need.sent));
      }
      if (!kind.stream) before = op;
    }
  }
  at[ops.size] = source.length;
  return { at, source: Int32Array.from(source), lag: Float64Array.from(lag), neighbour: stage };
}

const fedBack = (sheet, ops, op) => sheet.feedsBack && sheet.rounds > 1 && ops.kind[op] === FORWARD_KIND && ops.stage[op] === 0
  && ops.microbatch[op] >= sheet.roundMicrobatches;

/** Return the latency of a message from one device to another. */
const latency = ({ comm, devices }, from, to) => from === to ? 0 : typeof comm === 'number' ? comm : comm[from * devices + to];

/** Return the op that makes an op's input: on the neighbouring stage, or the forward of the same stage. */
function neighbour(sheet, ops, op, kind, made) {
  const [stage, microbatch] = [ops.stage[op], ops.microbatch[op]];
  const of = (result, row) => {
    const found = made(result, row, microbatch);
    return found === NO_OP ? MISSING : found;
  };
  if (!kind.direction) return kind.works_on ? of(kind.works_on > 0 ? ACTIVATION : GRADIENT, stage) : NO_OP;
  if (kind.direction > 0) return stage > 0 ? of(ACTIVATION, stage - 1) : NO_OP;
  return stage < sheet.stages - 1 ? of(GRADIENT, stage + 1) : of(ACTIVATION, stage);
}

/** Return the round of a microbatch. */
const roundOf = (sheet, microbatch) => sheet.rounds > 1 ? Math.floor(microbatch / sheet.roundMicrobatches) : 0;

/** Return the op that makes another need of an op's kind; NO_OP if the need does not apply. */
function needed(sheet, ops, op, need, made, microbatches) {
  const [stage, device, last] = [ops.stage[op], ops.device[op], sheet.stages - 1];
  if (need.unless !== undefined && made(need.unless, device, ops.microbatch[op]) !== NO_OP) return NO_OP;
  if (need.only ? stage !== (need.only === 'first' ? 0 : last) : stage === { previous: 0, next: last }[need.at]) return NO_OP;
  const microbatch = ops.microbatch[op] + (need.ahead ?? 0);
  if (microbatch < 0 || microbatch >= microbatches || roundOf(sheet, microbatch) !== roundOf(sheet, ops.microbatch[op])) return NO_OP;
  let found = NO_OP;
  if (need.at === 'any') {
    for (let row = 0; row < Math.max(sheet.stages, sheet.devices); row++) found = Math.max(found, made(need.result, row, microbatch));
  } else {
    const row = { own: stage, previous: stage - 1, next: stage + 1, device, first: 0, last }[need.at];
    found = made(need.result, row, microbatch);
  }
  return found === NO_OP && need.must ? MISSING : found;
}

/** Return the op after which each op's message leaves; null if every message leaves as its op ends. */
function departures(sheet, ops, made) {
  if (!sheet.kinds.some(kind => kind.posts)) return null;
  const leaves = Int32Array.from({ length: ops.size }, (_, op) => op);
  for (let op = 0; op < ops.size; op++) {
    const { posts, needs } = sheet.kinds[ops.kind[op]];
    const result = posts ? made(needs[0].result, ops.stage[op], ops.microbatch[op]) : NO_OP;
    if (result !== NO_OP && ops.device[result] === ops.device[op]) leaves[result] = op;
  }
  return leaves;
}

/** Return the op before each op on its lane, which is one stream of one device. */
function beforeOnLane(sheet, ops) {
  const before = new Int32Array(ops.size).fill(NO_OP);
  for (let device = 0; device < sheet.devices; device++) {
    const last = [NO_OP, NO_OP, NO_OP, NO_OP];
    for (let op = ops.offsets[device]; op < ops.offsets[device + 1]; op++) {
      const stream = sheet.kinds[ops.kind[op]].stream ?? 0;
      before[op] = last[stream];
      last[stream] = op;
    }
  }
  return before;
}

/** Return functions to the duration of an op alone, and of two ops as a pair. */
function durationRules(sheet, ops, sources) {
  const factor = op => (sheet.scale ? sheet.scale[ops.kind[op]][sources[ops.microbatch[op]]] : 1)
    / (sheet.speed ? sheet.speed[ops.device[op]] : 1);
  const single = op => {
    const [kind, stage] = [ops.kind[op], ops.stage[op]];
    if (sheet.each) return ownDuration(sheet, kind, stage, sources[ops.microbatch[op]], ops.device[op]);
    if (sheet.kinds[kind].computes) return sheet.time[kind][stage] * factor(op);
    const row = sheet.others?.[kind]?.[sheet.kinds[kind].staged ? stage : ops.device[op]] ?? 0;
    const time = typeof row === 'number' ? row : row[sources[ops.microbatch[op]]];
    return sheet.speed && !sheet.kinds[kind].stream ? time / sheet.speed[ops.device[op]] : time;
  };
  const together = (op, other) => {
    const full = sheet.pairTime && (ops.kind[op] === BACKWARD_KIND || ops.kind[other] === BACKWARD_KIND);
    return !full ? single(op) + single(other)
      : (sheet.pairTime[ops.stage[op]] + sheet.pairTime[ops.stage[other]]) / 2 * ((factor(op) + factor(other)) / 2);
  };
  return { single, together: sheet.each ? single : together };
}

/** Return the duration of each op; ops that start together have the longest duration, ops of a pair the pair's. */
function durationsOfQueues(sheet, ops, sources) {
  const duration = new Float64Array(ops.size);
  const { single, together } = durationRules(sheet, ops, sources);
  for (let op = 0; op < ops.size; op++) {
    const other = ops.pair[op];
    if (other < 0) duration[op] = single(op);
    else if (other > op) duration[op] = duration[other] = together(op, other);
  }
  const longest = duration.slice();
  for (let op = 0; op < ops.size; op++) longest[ops.lead[op]] = Math.max(longest[ops.lead[op]], duration[op]);
  return longest.map((_, op) => longest[ops.lead[op]]);
}

/** Return the measured time of an op; I and W of a backward that ran whole share its time in proportion to their costs. */
function ownDuration(sheet, kind, stage, microbatch, device) {
  const of = code => sheet.each.get(packOp(sheet, code, stage, microbatch) * sheet.devices + device);
  const known = of(kind);
  if (known !== undefined) return known;
  const [whole, input, weights] = [BACKWARD_KIND, INPUT_KIND, WEIGHTS_KIND].map(of);
  if (kind === BACKWARD_KIND && input !== undefined && weights !== undefined) return input + weights;
  const [ti, tw] = [sheet.time[INPUT_KIND][stage], sheet.time[WEIGHTS_KIND][stage]];
  const share = ti + tw > 0 ? ti / (ti + tw) : 0.5;
  return whole === undefined ? sheet.time[kind]?.[stage] ?? 0 : whole * (kind === INPUT_KIND ? share : 1 - share);
}

/**
 * Time edited queues by the longest path to every op. `done` is 1 for ops that run, `bound` is the op whose end or message
 * determined the start, as in engine/simple/longest_path.py, and `rank` is a place in an order in which ops can run.
 */
function timeQueues(sheet, { queues, sources }) {
  const ops = columnsOfQueues(sheet, queues);
  const inputs = inputsOfQueues(sheet, ops, sources.length);
  const before = beforeOnLane(sheet, ops);
  const duration = durationsOfQueues(sheet, ops, sources);
  const { size, lead } = ops;
  const [start, end, rank] = [new Float64Array(size), new Float64Array(size), new Int32Array(size)];
  const [bound, done, awaited] = [new Int32Array(size).fill(NO_OP), new Uint8Array(size), new Int32Array(size)];
  const followers = linksOf(size, link => {
    for (let op = 0; op < size; op++) {
      const own = lead[op];
      if (before[op] >= 0 && lead[before[op]] !== own) link(lead[before[op]], own);
      for (let i = inputs.at[op]; i < inputs.at[op + 1]; i++) {
        if (inputs.source[i] < 0) awaited[own]++;
        else if (lead[inputs.source[i]] !== own) link(lead[inputs.source[i]], own);
        else awaited[own]++; // ops that start together and wait for each other never run
      }
    }
  }, awaited);
  const members = linksOf(size, link => { for (let op = 0; op < size; op++) link(lead[op], op); });
  const ready = [];
  for (let op = 0; op < size; op++) if (lead[op] === op && !awaited[op]) ready.push(op);
  let ran = 0;
  while (ready.length) {
    const first = ready.pop();
    let [begin, cause] = [-1, NO_OP];
    for (let m = members.at[first]; m < members.at[first + 1]; m++) {
      const own = startOf(members.to[m], before, lead, inputs, end);
      // A pair waits for the inputs of both ops; on ties the first op's input is the cause.
      if (own.time > begin) [begin, cause] = [own.time, own.cause];
    }
    for (let m = members.at[first]; m < members.at[first + 1]; m++) {
      const op = members.to[m];
      [start[op], end[op], bound[op], done[op]] = [begin, begin + duration[op], cause, 1];
      rank[op] = ran++;
    }
    for (let f = followers.at[first]; f < followers.at[first + 1]; f++)
      if (--awaited[followers.to[f]] === 0) ready.push(followers.to[f]);
  }
  return { ops, inputs, sources, before, duration, start, end, rank, bound, done, valid: ran === size && !earlyOps(sheet, ops).length };
}

/** Return links as columns: places `at[op]` to `at[op + 1]` of `to`; `arriving` counts the links that end at each op. */
function linksOf(size, list, arriving = null) {
  const at = new Int32Array(size + 1);
  list(from => { at[from + 1]++; });
  if (arriving) arriving.fill(0);
  for (let op = 0; op < size; op++) at[op + 1] += at[op];
  const [to, next] = [new Int32Array(at[size]), at.slice()];
  list((from, target) => { to[next[from]++] = target; if (arriving) arriving[target]++; });
  return { at, to };
}

/** Return the earliest start of an op, and its cause: the op before it on its lane, or the first input that arrives last. */
function startOf(op, before, lead, inputs, end) {
  const follows = before[op] >= 0 && lead[before[op]] !== lead[op];
  let [time, cause] = follows ? [end[before[op]], before[op]] : [0, NO_OP];
  for (let i = inputs.at[op]; i < inputs.at[op + 1]; i++) {
    const arrival = end[inputs.source[i]] + inputs.lag[i];
    if (arrival > time) [time, cause] = [arrival, inputs.source[i]];
  }
  return { time, cause };
}

/** Return ops that are queued before an op they need on the same device, as [op, needed op, its description]. */
const earlyOps = (sheet, ops) => [...earlySlices(sheet, ops), ...earlyBackwards(ops)];

/** Return backwards queued before their recompute. */
function earlyBackwards(ops) {
  if (!ops.kind.includes(RECOMPUTE_KIND)) return [];
  const backward = new Map();
  const cell = op => ops.stage[op] * ops.size + ops.microbatch[op];
  for (let op = 0; op < ops.size; op++)
    if (ops.kind[op] === BACKWARD_KIND || ops.kind[op] === INPUT_KIND) backward.set(cell(op), op);
  return [...ops.kind.keys()].filter(op => ops.kind[op] === RECOMPUTE_KIND && ops.lead[backward.get(cell(op))] <= op)
    .map(op => [backward.get(cell(op)), op, 'its recompute']);
}

/** Return ops with the slice of their sequence that must precede them (core/slices.py). */
function sliceOrder(sheet, ops) {
  if (sheet.slices === 1) return [];
  const found = [];
  for (const [letters, step] of [[[FORWARD_KIND], 1], [[BACKWARD_KIND, INPUT_KIND], -1]]) {
    const at = new Map();
    for (let op = 0; op < ops.size; op++)
      if (letters.includes(ops.kind[op])) at.set(`${ops.stage[op]} ${ops.microbatch[op]}`, op);
    for (const [key, op] of at) {
      const [stage, microbatch] = key.split(' ').map(Number);
      const next = microbatch % sheet.slices === sheet.slices - 1 ? undefined : at.get(`${stage} ${microbatch + 1}`);
      if (next !== undefined) found.push(step > 0 ? [next, op] : [op, next]);
    }
  }
  return found;
}

/** Return slices that are queued before a slice they need. */
const earlySlices = (sheet, ops) => sliceOrder(sheet, ops).filter(([op, need]) => op < need)
  .map(each => [...each, 'the slice of its sequence that it needs']);

const stagedLabel = (sheet, kind, stage, microbatch) => `${stage < 0 ? '' : stage}${sheet.kinds[kind].name}${microbatch}`;
const opLabel = (sheet, ops, op) => stagedLabel(sheet, ops.kind[op], ops.stage[op], ops.microbatch[op]);

/**
 * Return why queues cannot finish: a cycle of [op, the op it waits for, the op that blocks the lane of that one], an op
 * whose input no op makes, or an op that is queued too early.
 */
function whyStuck(sheet, timed) {
  const { ops, inputs, done } = timed;
  const stand = new Map(); // by lane: the first op that cannot run
  const laneOf = op => ops.device[op] * 4 + (sheet.kinds[ops.kind[op]].stream ?? 0);
  for (let op = 0; op < ops.size; op++) if (!done[op] && !stand.has(laneOf(op))) stand.set(laneOf(op), op);
  if (!stand.size) {
    const [[op, need, what]] = earlyOps(sheet, ops);
    return { cycle: [], op, need, what };
  }
  const waits = new Map();
  for (const [lane, head] of stand)
    for (const op of head === ops.pair[head + 1] ? [head, head + 1] : [head])
      for (let i = inputs.at[op]; i < inputs.at[op + 1] && !waits.has(lane); i++)
        if (inputs.source[i] < 0 || !done[inputs.source[i]]) waits.set(lane, [op, inputs.source[i]]);
  const come = new Set([...stand].filter(([lane]) => !waits.has(lane)).map(([, head]) => head));
  for (const [lane, head] of stand) {
    if (waits.has(lane)) continue; // other ops of the lane wait for the same op on another device
    for (let op = 0; op < ops.size; op++)
      if (ops.lead[op] === ops.lead[head] && !come.has(op) && !waits.has(lane)) waits.set(lane, [head, op]);
  }
  const lanes = [...waits.keys()].sort((a, b) => a - b);
  const lone = lanes.find(lane => waits.get(lane)[1] < 0);
  if (lone !== undefined) return { cycle: [], op: waits.get(lone)[0], need: MISSING };
  const seen = [];
  let lane = lanes[0];
  for (; !seen.includes(lane); lane = laneOf(waits.get(lane)[1])) seen.push(lane);
  return { cycle: seen.slice(seen.indexOf(lane)).map(each => {
    const [op, need] = waits.get(each);
    return [op, need, stand.get(laneOf(need))];
  }) };
}

/** Return why queues cannot finish as text, in the words of `ppsim check`. */
function stuckWords(sheet, timed, stuck) {
  const { ops } = timed;
  const where = op => `${opLabel(sheet, ops, op)} (device ${ops.device[op]})`;
  if (stuck.need === MISSING) return `${where(stuck.op)} waits for its input, which no device produces`;
  if (!stuck.cycle.length) return `${where(stuck.op)} runs before ${stuck.what}, ${opLabel(sheet, ops, stuck.need)}`;
  return stuck.cycle.map(([op, need, head]) =>
    `${where(op)} waits for ${where(need)}${ops.lead[head] === ops.lead[need] ? '' : `, which is after ${opLabel(sheet, ops, head)}`}`).join('; ');
}
