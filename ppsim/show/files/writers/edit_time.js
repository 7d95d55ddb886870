// The simple model in the page: when each op of edited queues starts, and who waits for whom where they cannot finish. The
// rules of the kinds of ops come with the page (REPORT.edit_kinds), so that they are those of core/lanes.py.

const ACTIVATION = 0; // numbers of results
const GRADIENT = 1;
const NO_OP = -1;
const MISSING = -2; // an input that no op of the queues makes
const [FORWARD_KIND, BACKWARD_KIND, INPUT_KIND, WEIGHTS_KIND, RECOMPUTE_KIND] = [0, 1, 2, 3, 4]; // codes of kinds
const COLLECTIVES = 3; // the stream of collectives
const KIND_CODES = 64; // more than there are kinds: an op as one number is ((microbatch, stage + 1, kind), pair)

const packOp = (sheet, kind, stage, microbatch, paired = 0) =>
  ((microbatch * (sheet.stages + 1) + stage + 1) * KIND_CODES + kind) * 2 + paired;

/** Kind, stage and microbatch of an op that is packed as a number, and whether it is the first of a pair. */
function unpackOp(sheet, code) {
  const paired = code % 2;
  const rest = (code - paired) / 2;
  const kind = rest % KIND_CODES;
  const cell = (rest - kind) / KIND_CODES;
  const stage = cell % (sheet.stages + 1);
  return { kind, stage: stage - 1, microbatch: (cell - stage) / (sheet.stages + 1), paired };
}

/** The ops of queues as columns, device after device, and the first op of those that start together. */
function columnsOfQueues(sheet, queues) {
  const offsets = [0];
  for (const queue of queues) offsets.push(offsets.at(-1) + queue.length);
  const size = offsets.at(-1);
  const [kind, stage, microbatch, device, pair, lead] = Array.from({ length: 6 }, () => new Int32Array(size));
  const meetings = new Map(); // ops on all devices: the first of them
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

/** The op that makes a result, for each row (a stage, or a device) and microbatch. */
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
 * What every op waits for, but for the op before it on its lane: `at[op]` to `at[op + 1]` are its places in `source`
 * (`MISSING` where no op makes it) and in `lag`, the time that the message takes. `neighbour` is the stage's own input.
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

/** The time of a message from one device to another. */
const latency = ({ comm, devices }, from, to) => from === to ? 0 : typeof comm === 'number' ? comm : comm[from * devices + to];

/** The op that makes a stage's input: the neighbour's result, or what its own stage left. */
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

/** The round that a microbatch belongs to. */
const roundOf = (sheet, microbatch) => sheet.rounds > 1 ? Math.floor(microbatch / sheet.roundMicrobatches) : 0;

/** The op that makes one of a kind's other needs. */
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

/** The op with which the message of each op leaves; null where each result leaves by itself. */
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

/** The op before each on its lane, which is one stream of one device. */
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

/** How long an op takes by itself, and two as a pair. */
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

/** How long each op takes; ops that start together take the longest of them, and both of a pair the pair's time. */
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

/** The time that an op of a run took; halves of a backward that ran whole share its time as the costs say. */
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
 * Time edited queues: the longest path to every op. Ops that start together are one. `done` tells which ops run, and
 * `bound` the op whose end or message set each start, as in engine/simple/longest_path.py; `rank` counts them in an order
 * in which they can run.
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
        else awaited[own]++; // a pair that waits for itself
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
      // A pair has the inputs of both, its first op's before; of ops on all devices the last one decides.
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

/** Links from ops as columns: `at[op]` to `at[op + 1]` are the places in `to`; counted at their ends in `arriving`. */
function linksOf(size, list, arriving = null) {
  const at = new Int32Array(size + 1);
  list(from => { at[from + 1]++; });
  if (arriving) arriving.fill(0);
  for (let op = 0; op < size; op++) at[op + 1] += at[op];
  const [to, next] = [new Int32Array(at[size]), at.slice()];
  list((from, target) => { to[next[from]++] = target; if (arriving) arriving[target]++; });
  return { at, to };
}

/** When an op can start, and the op that decides it: the one before on its lane, of later ones the first. */
function startOf(op, before, lead, inputs, end) {
  const follows = before[op] >= 0 && lead[before[op]] !== lead[op];
  let [time, cause] = follows ? [end[before[op]], before[op]] : [0, NO_OP];
  for (let i = inputs.at[op]; i < inputs.at[op + 1]; i++) {
    const arrival = end[inputs.source[i]] + inputs.lag[i];
    if (arrival > time) [time, cause] = [arrival, inputs.source[i]];
  }
  return { time, cause };
}

/** Ops that run before one that no message holds them behind, as [op, the one it needs, what that is]. */
const earlyOps = (sheet, ops) => [...earlySlices(sheet, ops), ...earlyBackwards(ops)];

/** Backwards ahead of their recompute, which only the order of the queue holds. */
function earlyBackwards(ops) {
  if (!ops.kind.includes(RECOMPUTE_KIND)) return [];
  const backward = new Map();
  const cell = op => ops.stage[op] * ops.size + ops.microbatch[op];
  for (let op = 0; op < ops.size; op++)
    if (ops.kind[op] === BACKWARD_KIND || ops.kind[op] === INPUT_KIND) backward.set(cell(op), op);
  return [...ops.kind.keys()].filter(op => ops.kind[op] === RECOMPUTE_KIND && ops.lead[backward.get(cell(op))] <= op)
    .map(op => [backward.get(cell(op)), op, 'its recompute']);
}

/** Ops, each with the slice of its sequence that must stand before it (core/slices.py). */
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

/** Slices that run before one that they need. */
const earlySlices = (sheet, ops) => sliceOrder(sheet, ops).filter(([op, need]) => op < need)
  .map(each => [...each, 'the slice of its sequence that it needs']);

const stagedLabel = (sheet, kind, stage, microbatch) => `${stage < 0 ? '' : stage}${sheet.kinds[kind].name}${microbatch}`;
const opLabel = (sheet, ops, op) => stagedLabel(sheet, ops.kind[op], ops.stage[op], ops.microbatch[op]);

/**
 * Why queues cannot finish: a circle of [op, the op that it waits for, the op at which that one's lane stands], or one
 * op whose input no op makes, or a slice that runs too early.
 */
function whyStuck(sheet, timed) {
  const { ops, inputs, done } = timed;
  const stand = new Map(); // by lane, the first op that cannot run
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
    if (waits.has(lane)) continue; // its op waits for the same one on another device
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

/** The same in words, as `ppsim check` says it. */
function stuckWords(sheet, timed, stuck) {
  const { ops } = timed;
  const where = op => `${opLabel(sheet, ops, op)} (device ${ops.device[op]})`;
  if (stuck.need === MISSING) return `${where(stuck.op)} waits for its input, which no device produces`;
  if (!stuck.cycle.length) return `${where(stuck.op)} runs before ${stuck.what}, ${opLabel(sheet, ops, stuck.need)}`;
  return stuck.cycle.map(([op, need, head]) =>
    `${where(op)} waits for ${where(need)}${ops.lead[head] === ops.lead[need] ? '' : `, which is after ${opLabel(sheet, ops, head)}`}`).join('; ');
}
