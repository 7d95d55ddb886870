// A plan's pipeline and ranks: its queues timed here, as the simulator does, drawn a row a device; its GPUs by node.

const rowOf = devices => devices <= 4 ? 26 : 16; // pixels of a device
const MOST_NODES = 16;

/** The queues of a shape, two bytes a number, each the difference to the op before. */
async function readQueues({ offsets, packed }) {
  const numbers = new Int16Array(await unzip(packed).arrayBuffer());
  const size = offsets.at(-1);
  const columns = [0, 1, 2, 3].map(row => numbers.slice(row * size, (row + 1) * size));
  for (const values of columns) for (let i = 1; i < size; i++) values[i] += values[i - 1];
  const [kind, stage, microbatch, paired] = columns; // paired: 1 for an op that runs as one with the next
  return { offsets, kind, stage, microbatch, paired };
}

/** When each op starts and ends: as soon as its device is free and its input is there; both ops of a pair as one. */
function timeQueues({ offsets, kind, stage, microbatch, paired }, { time, pair, comm }) {
  const stages = time[0].length;
  const ended = new Map(); // by what an op gives and to which microbatch: when, and on which device
  const given = (gradient, at, mb) => `${+gradient},${at},${mb}`;
  const needs = op => kind[op] === 0 ? stage[op] && given(false, stage[op] - 1, microbatch[op])
    : kind[op] === 3 ? 0 : stage[op] === stages - 1 ? given(false, stage[op], microbatch[op]) : given(true, stage[op] + 1, microbatch[op]);
  const start = new Float64Array(kind.length);
  const end = new Float64Array(kind.length);
  const next = offsets.slice(0, -1);
  const lasts = op => time[kind[op]][stage[op]];
  for (let moved = true; moved;) {
    moved = false;
    for (let device = 0; device < next.length; device++)
      while (next[device] < offsets[device + 1]) {
        const op = next[device];
        const ops = paired[op] ? [op, op + 1] : [op];
        const inputs = ops.map(needs).filter(Boolean);
        if (!inputs.every(key => ended.has(key))) break;
        let at = op > offsets[device] ? end[op - 1] : 0;
        for (const [when, where] of inputs.map(key => ended.get(key))) at = Math.max(at, when + comm[where][device]);
        let long = ops.reduce((sum, each) => sum + lasts(each), 0);
        if (ops.length > 1 && pair && ops.some(each => kind[each] === 1)) long = (pair[stage[op]] + pair[stage[op + 1]]) / 2;
        for (const each of ops) {
          [start[each], end[each]] = [at, at + long];
          if (kind[each] !== 3) ended.set(given(kind[each] > 0, stage[each], microbatch[each]), [at + long, device]);
        }
        next[device] += ops.length;
        moved = true;
      }
  }
  return { start, end, makespan: end.reduce((most, time) => Math.max(most, time), 0) };
}

/** A plan's timeline as a canvas with what it shows in words; nothing where the page carries none. */
async function timelineOf(place) {
  const run = DATA.runs[place];
  if (!run) return plans[place].pp > 1 ? `<p class="muted">${escapeText(DATA.carried)}</p>` : '';
  const queue = run.read ??= await readQueues(DATA.queues[run.queue]);
  const { makespan } = run.times ??= timeQueues(queue, run);
  const devices = queue.offsets.length - 1;
  const kinds = [...new Set(queue.kind)].sort();
  const legend = kinds.map(kind => `<li>${swatch(DATA.kinds[kind].fill[0])}<span>${DATA.kinds[kind].name}</span></li>`).join('');
  const words = `Timeline of ${devices} devices, ${number(makespan / 1e3)} s from the first forward to the last backward, as simulated before measured runs correct it`;
  return `<h3>${words}</h3><canvas id="run" role="img" aria-label="${words}" height="${devices * rowOf(devices)}"></canvas><p id="at" class="muted">Point at an op for its name.</p><ul>${legend}</ul>`;
}

/** Draw the timeline that is shown, as wide as there is room. */
function drawRun() {
  const canvas = $('run');
  if (!canvas) return;
  const { read: queue, times: { start, end, makespan } } = DATA.runs[chosen];
  const devices = queue.offsets.length - 1;
  const [wide, row] = [canvas.clientWidth, rowOf(devices)];
  const sharp = devicePixelRatio || 1;
  Object.assign(canvas, { width: wide * sharp, height: devices * row * sharp });
  const brush = canvas.getContext('2d');
  brush.scale(sharp, sharp);
  const x = time => wide * time / makespan;
  for (let op = 0, device = 0; op < start.length; op++) {
    while (op >= queue.offsets[device + 1]) device++;
    let [from, to] = [start[op], end[op]];
    const middle = (from + to) / 2;
    if (queue.paired[op]) to = middle;
    else if (op > queue.offsets[device] && queue.paired[op - 1]) from = middle;
    const look = DATA.kinds[queue.kind[op]];
    const chunk = Math.floor(queue.stage[op] / devices) % 2;
    brush.fillStyle = look.fill[chunk];
    const gap = x(to - from) > 4 ? 0.5 : 0;
    brush.fillRect(x(from), device * row + 1, Math.max(0.3, x(to - from) - gap), row - 2);
    if (x(to - from) < 7 * String(queue.microbatch[op]).length + 2) continue;
    brush.fillStyle = look.text[chunk];
    brush.font = '10px system-ui, sans-serif';
    brush.textAlign = 'center';
    brush.fillText(queue.microbatch[op], x((from + to) / 2), (device + 0.5) * row + 4);
  }
  canvas.onpointermove = event => {
    const box = canvas.getBoundingClientRect();
    const device = Math.floor((event.clientY - box.top) / row);
    const time = makespan * (event.clientX - box.left) / box.width;
    for (let op = queue.offsets[device]; op < queue.offsets[device + 1]; op++)
      if (start[op] <= time && time < end[op])
        $('at').textContent = `device ${device}: ${queue.stage[op]}${DATA.kinds[queue.kind[op]].letter}${queue.microbatch[op]}, ${number(start[op])} to ${number(end[op])} ms`;
  };
}

/** Which GPUs hold which part, a box a node: the number and the colour are the pipeline device. */
function ranksOf({ tp, cp, pp, dp }) {
  const gpus = tp * cp * pp * dp;
  const inner = tp * cp;
  const deviceOf = rank => DATA.pipelineFirst ? Math.floor(rank / inner) % pp : Math.floor(rank / (inner * dp));
  const replicaOf = rank => DATA.pipelineFirst ? Math.floor(rank / (inner * pp)) : Math.floor(rank / inner) % dp;
  const nodes = Math.ceil(gpus / DATA.perNode);
  const node = at => Array.from({ length: Math.min(DATA.perNode, gpus - at * DATA.perNode) }, (_, i) => {
    const rank = at * DATA.perNode + i;
    const device = deviceOf(rank);
    const told = `rank ${rank}: pipeline device ${device}, replica ${replicaOf(rank)}, tensor ${rank % tp}`;
    return `<span title="${told}" style="background:hsl(${Math.round(300 * device / pp)} 45% ${dark ? 26 : 84}%)">${device}</span>`;
  }).join('');
  const boxes = Array.from({ length: Math.min(nodes, MOST_NODES) }, (_, at) => `<li><span class="muted">node ${at}</span><div>${node(at)}</div></li>`);
  const rest = nodes > MOST_NODES ? ` (the first ${MOST_NODES} of ${nodes.toLocaleString('en-US')} nodes)` : '';
  return `<h3>where its ranks lie: pipeline device of each GPU${rest}</h3><ul id="ranks">${boxes.join('')}</ul>`;
}
