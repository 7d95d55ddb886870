// The timeline and the ranks of a plan. Its queues are timed in the page, by the rules of the simulator, and drawn with
// one row per device. A map shows its GPUs by node, with the op of each at the time under the pointer, and the groups of
// the selected GPU.

const rowOf = devices => devices <= 4 ? 26 : 16; // height of a device's row, in pixels
const MOST_NODES = 16;

/** Unpack queues: two bytes per number, each the difference from the op before. */
async function readQueues({ offsets, packed }) {
  const numbers = new Int16Array(await unzip(packed).arrayBuffer());
  const size = offsets.at(-1);
  const columns = [0, 1, 2, 3].map(row => numbers.slice(row * size, (row + 1) * size));
  for (const values of columns) for (let i = 1; i < size; i++) values[i] += values[i - 1];
  const [kind, stage, microbatch, paired] = columns; // paired: 1 for an op that runs as one with the next
  return { offsets, kind, stage, microbatch, paired };
}

/**
 * Return start and end of each op in ms, all messages, and the makespan. An op starts as soon as its device is free and
 * its input has arrived; the two ops of a pair run as one.
 */
function timeQueues({ offsets, kind, stage, microbatch, paired }, { time, pair, comm }) {
  const stages = time[0].length;
  const ended = new Map(); // by result, stage and microbatch: the time at which it is computed, and the device
  const given = (gradient, at, mb) => `${+gradient},${at},${mb}`;
  const needs = op => kind[op] === 0 ? stage[op] && given(false, stage[op] - 1, microbatch[op])
    : kind[op] === 3 ? 0 : stage[op] === stages - 1 ? given(false, stage[op], microbatch[op]) : given(true, stage[op] + 1, microbatch[op]);
  const start = new Float64Array(kind.length);
  const end = new Float64Array(kind.length);
  const messages = []; // each as [sender, receiver, time sent, time received]
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
        for (const [when, where] of inputs.map(key => ended.get(key))) {
          const there = when + comm[where][device];
          if (there > when) messages.push([where, device, when, there]);
          at = Math.max(at, there);
        }
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
  return { start, end, messages, makespan: end.reduce((most, time) => Math.max(most, time), 0) };
}

/** Return a plan's timeline as HTML, a canvas with a description; empty if the page has no queues of the plan. */
async function timelineOf(place) {
  const run = DATA.runs[place];
  if (!run) return plans[place].pp > 1 ? `<p class="muted">${escapeText(DATA.carried)}</p>` : '';
  const queue = run.read ??= await readQueues(DATA.queues[run.queue]);
  const { makespan } = run.times ??= timeQueues(queue, run);
  const devices = queue.offsets.length - 1;
  const kinds = [...new Set(queue.kind)].sort();
  const legend = kinds.map(kind => `<li>${swatch(DATA.kinds[kind].fill[0])}<span>${DATA.kinds[kind].name}</span></li>`).join('');
  const words = `Timeline of ${devices} devices, ${number(makespan / 1e3)} s from the first forward to the last backward, as simulated, without corrections by measured runs`;
  return `<h3>${words}</h3><div id="over"><canvas id="run" role="img" aria-label="${words}" height="${devices * rowOf(devices)}"></canvas><div id="cursor" hidden></div></div>`
    + `<p class="moment"><label>time <input id="moment" type="range" min="0" max="999" value="0"></label> <span id="at" class="muted" aria-live="polite">Point at the timeline or move the slider to see the ops of the GPUs below at that time.</span></p><ul>${legend}</ul>`;
}

/** Return the tint of an op: the first one for a device's first chunk, the last one for its last chunk. */
function tintOf(queue, op) {
  const chunkOf = stage => Math.floor(stage / (queue.offsets.length - 1));
  queue.last ??= Math.max(1, chunkOf(queue.stage.reduce((a, b) => Math.max(a, b), 0)));
  return Math.round(chunkOf(queue.stage[op]) * (DATA.kinds[0].fill.length - 1) / queue.last);
}

/** Draw the timeline of the chosen plan into its canvas. */
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
  const digits = String(queue.microbatch.reduce((a, b) => Math.max(a, b), 0)).length; // of the largest microbatch: cells of equal width all have a number, or none
  for (let op = 0, device = 0; op < start.length; op++) {
    while (op >= queue.offsets[device + 1]) device++;
    let [from, to] = [start[op], end[op]];
    const middle = (from + to) / 2;
    if (queue.paired[op]) to = middle;
    else if (op > queue.offsets[device] && queue.paired[op - 1]) from = middle;
    const look = DATA.kinds[queue.kind[op]];
    const tint = tintOf(queue, op);
    brush.fillStyle = look.fill[tint];
    const gap = x(to - from) > 4 ? 0.5 : 0;
    brush.fillRect(x(from), device * row + 1, Math.max(0.3, x(to - from) - gap), row - 2);
    if (x(to - from) < 7 * digits + 2) continue;
    brush.fillStyle = look.text[tint];
    brush.font = '10px system-ui, sans-serif';
    brush.textAlign = 'center';
    brush.fillText(queue.microbatch[op], x((from + to) / 2), (device + 0.5) * row + 4);
  }
  canvas.onpointermove = event => {
    const box = canvas.getBoundingClientRect();
    const device = Math.floor((event.clientY - box.top) / row);
    const time = makespan * (event.clientX - box.left) / box.width;
    let told = '';
    for (let op = queue.offsets[device]; op < queue.offsets[device + 1]; op++)
      if (start[op] <= time && time < end[op])
        told = `device ${device}: ${labelOf(queue, op)}, ${number(start[op])} to ${number(end[op])} ms; `;
    momentAt(time, told);
  };
  $('moment').oninput = () => momentAt($('moment').value / 1000 * makespan);
}

const labelOf = ({ stage, kind, microbatch }, op) => `${stage[op]}${DATA.kinds[kind[op]].letter}${microbatch[op]}`;

/** Colour the GPUs by the op of their pipeline device at a time, and list the messages on their way. */
function momentAt(time, told = '') {
  const { read: queue, times: { start, end, messages, makespan } } = DATA.runs[chosen];
  const devices = queue.offsets.length - 1;
  const running = Array(devices).fill(-1);
  for (let op = 0, device = 0; op < start.length; op++) {
    while (op >= queue.offsets[device + 1]) device++;
    if (start[op] <= time && time < end[op]) running[device] = op;
  }
  for (const gpu of document.querySelectorAll('#ranks [data-device]')) {
    const op = running[gpu.dataset.device];
    const look = DATA.kinds[queue.kind[op]];
    const tint = tintOf(queue, op);
    gpu.style.background = look?.fill[tint] ?? 'none';
    gpu.style.color = look?.text[tint] ?? '';
  }
  const sent = messages.filter(([,, when, there]) => when <= time && time < there).map(([from, to]) => `${from} → ${to}`);
  $('at').textContent = `${told}${number(time)} ms: ${running.filter(op => op >= 0).length} of ${devices} devices compute`
    + `, ${sent.length ? `messages on the way ${sent.join(', ')}` : 'no message on the way'}`;
  $('moment').value = 1000 * time / makespan;
  $('cursor').hidden = false;
  $('cursor').style.left = `${100 * time / makespan}%`;
}

/** Return the number of ranks of a plan, and a function to [pipeline device, replica, place within both] of a rank. */
function layoutOf({ tp, cp, pp, dp }) {
  const inner = tp * cp;
  const places = DATA.pipelineFirst ? rank => [Math.floor(rank / inner) % pp, Math.floor(rank / (inner * pp))]
    : rank => [Math.floor(rank / (inner * dp)), Math.floor(rank / inner) % dp];
  return { inner, gpus: inner * pp * dp, placeOf: rank => [...places(rank), rank % inner] };
}

/**
 * Return the map of ranks as HTML, one box per node: number and colour of a GPU are its pipeline device, and GPUs of one
 * tensor-parallel group touch.
 */
function ranksOf(plan) {
  const { gpus, placeOf } = layoutOf(plan);
  const nodes = Math.ceil(gpus / DATA.perNode);
  const node = at => Array.from({ length: Math.min(DATA.perNode, gpus - at * DATA.perNode) }, (_, i) => {
    const [device] = placeOf(at * DATA.perNode + i);
    const joined = (at * DATA.perNode + i) % plan.tp && i ? ' class="joined"' : '';
    return `<span data-rank="${at * DATA.perNode + i}" data-device="${device}"${joined} style="--hue:${Math.round(300 * device / plan.pp)}">${device}</span>`;
  }).join('');
  const boxes = Array.from({ length: Math.min(nodes, MOST_NODES) }, (_, at) => `<div><span class="muted">node ${at}</span><div>${node(at)}</div></div>`);
  const rest = nodes > MOST_NODES ? ` (the first ${MOST_NODES} of ${number(nodes)} nodes)` : '';
  return `<h3>On the cluster: pipeline device of each GPU${rest}</h3><div id="ranks" tabindex="0" role="group" aria-label="GPUs by node; arrow keys select one" aria-describedby="picked">${boxes.join('')}<svg id="lines" aria-hidden="true"></svg></div>`
    + '<p id="picked" class="muted" aria-live="polite">Point at a GPU, or select one with the arrow keys, to see its groups.</p>';
}

/** Return the mean bytes that a GPU sends in a step, by group, inside its node and between nodes, as HTML. */
function sentOf(place) {
  const sent = DATA.sent[place];
  if (!sent) return '';
  const entry = (side, { key, name, colour }) => sent[key]?.[side] > 0
    ? `<li><button type="button" data-line="${escapeText(key + side)}">${swatch(fill(colour))}${name} ${gib(sent[key][side])}</button></li>` : '';
  return '<h3>Mean bytes that a GPU sends in a step; thicker lines carry more (lines inside and between nodes have different scales)</h3>' + ['inside its node', 'between nodes'].map((where, side) =>
    `<p class="sent">${where} ${gib(Object.values(sent).reduce((sum, both) => sum + both[side], 0))}</p><ul>${DATA.groups.map(of => entry(side, of)).join('')}</ul>`).join('');
}

/**
 * Draw lines from each GPU to the next one of each of its groups: below their row inside a node, and from node to node.
 * Widths follow the bytes; lines inside and between nodes have different scales.
 */
function drawLines() {
  const plan = plans[chosen];
  const sent = DATA.sent[chosen];
  const map = $('ranks');
  if (!sent || !map) return;
  const { tp, cp, ep = 1, pp, dp } = plan;
  const { inner, placeOf } = layoutOf(plan);
  const replicas = [dp, DATA.pipelineFirst ? inner * pp : inner];
  const groups = { tp: [[tp, 1]], cp: [[cp, tp]], ep: [[ep, 1]], pp: [[pp, DATA.pipelineFirst ? inner : inner * dp]], dp: [[cp, tp], replicas] };
  const wide = (key, side) => 1 + 6 * sent[key][side] / Math.max(...Object.values(sent).map(both => both[side]));
  const kinds = side => DATA.groups.filter(({ key }) => groups[key] && sent[key]?.[side] > 0);
  map.style.setProperty('--under', `${kinds(0).reduce((high, { key }) => high + wide(key, 0) + 2, 2)}px`);
  const room = Math.floor($('run-of').clientWidth / (map.firstChild.offsetWidth + 22));
  map.style.setProperty('--columns', 2 ** Math.floor(Math.log2(Math.max(1, room)))); // also when printed
  const gpu = [...map.querySelectorAll('[data-rank]')];
  const middle = ({ offsetLeft, offsetWidth }) => offsetLeft + offsetWidth / 2;
  const foot = ({ offsetTop, offsetHeight }) => offsetTop + offsetHeight;
  const within = (a, b, low) => foot(a) === foot(b) ? `M${middle(a)} ${foot(a) + low}H${middle(b)}` : `M${middle(a)} ${foot(a) + low}L${middle(b)} ${b.offsetTop}`;
  const between = (a, b, right) => {
    const [x, to, low] = [middle(a) + right, middle(b) + right, foot(a)];
    if (a.nextSibling === b && b.offsetLeft > x) return `M${a.offsetLeft + a.offsetWidth} ${low - 26 + right / 3}H${b.offsetLeft}`;
    if (a.offsetTop === b.offsetTop) return `M${x} ${low}C${x} ${low + 26} ${to} ${low + 26} ${to} ${low}`;
    const shift = 16 + right / 3;
    // A line that crosses a row of nodes runs between its columns.
    if (b.offsetTop > low + a.offsetHeight) return `M${x} ${low}V${low + shift}H${a.offsetLeft + a.offsetWidth + shift}V${b.offsetTop - shift}H${to}V${b.offsetTop}`;
    return `M${x} ${low}C${x} ${low + 30} ${to} ${b.offsetTop - 30} ${to} ${b.offsetTop}`;
  };
  const parts = [0, 1].flatMap(side => {
    let along = side ? -30 : 3;
    return kinds(side).map(({ key, colour }) => {
      const width = wide(key, side);
      const ways = new Set();
      const join = (rank, next) => {
        const [a, b] = [rank, next].map(at => Math.floor(at / DATA.perNode));
        if (next > rank && next < gpu.length && a === b && !side) ways.add(within(gpu[rank], gpu[next], along + width / 2));
        if (next > rank && next < gpu.length && a !== b && side) ways.add(between(map.children[a], map.children[b], along));
      };
      for (const [size, stride] of groups[key])
        for (let rank = 0; rank < gpu.length; rank++) if (Math.floor(rank / stride) % size < size - 1) join(rank, rank + stride);
      // In a bidirectional pipeline a stage is on a device and on its mirror.
      if (!ways.size) for (let rank = 0; rank < gpu.length; rank++) join(rank, rank + (pp - 1 - 2 * placeOf(rank)[0]) * groups.pp[0][1]);
      along += side ? 14 : width + 2;
      const said = `${key}: a GPU sends ${gib(sent[key][side])} a step ${side ? 'between nodes' : 'inside its node'}`;
      return `<path data-line="${key}${side}" d="${[...ways].join('')}" stroke="${fill(colour)}" stroke-width="${width.toFixed(1)}"><title>${said}</title></path>`;
    });
  });
  $('lines').innerHTML = parts.join('');
  const near = name => () => { for (const line of $('lines').children) line.style.opacity = !name || line.dataset.line === name ? 1 : 0.12; };
  for (const item of document.querySelectorAll('[data-line]'))
    Object.assign(item, { onpointerenter: near(item.dataset.line), onfocus: near(item.dataset.line), onpointerleave: near(), onblur: near() });
}

const LINES = { tp: 'solid', cp: 'double', dp: 'dashed', pp: 'dotted' }; // as plan.css outlines them

/** Mark and list the groups of a rank: tensor, context, data and pipeline parallel. */
function pickRank(plan, picked) {
  const { gpus, placeOf } = layoutOf(plan);
  const [device, replica, inside] = placeOf(picked);
  const tensor = Math.floor(inside / plan.tp);
  const groupOf = ([d, r, i]) => d === device && r === replica && Math.floor(i / plan.tp) === tensor ? 'tp'
    : d === device && r === replica && (i - inside) % plan.tp === 0 ? 'cp'
      : d === device && i === inside ? 'dp' : r === replica && i === inside ? 'pp' : '';
  const groups = { tp: [picked], cp: [picked], dp: [picked], pp: [picked] };
  for (let rank = 0; rank < gpus; rank++) if (rank !== picked) groups[groupOf(placeOf(rank))]?.push(rank);
  for (const gpu of document.querySelectorAll('#ranks [data-rank]'))
    gpu.dataset.group = +gpu.dataset.rank === picked ? 'own' : groupOf(placeOf(+gpu.dataset.rank));
  const where = ranks => new Set(ranks.map(rank => Math.floor(rank / DATA.perNode))).size > 1 ? 'between nodes' : 'inside a node';
  const told = Object.entries(groups).filter(([, ranks]) => ranks.length > 1).map(([name, ranks]) => {
    ranks.sort((a, b) => a - b);
    const sent = DATA.sent[plan.place]?.[name]?.reduce((sum, amount) => sum + amount);
    return `${name} (${LINES[name]}${sent ? `, each sends ${gib(sent)} a step` : ''}): ranks ${ranks.length > 8 ? `${ranks.slice(0, 7).join(', ')} and ${ranks.length - 7} more` : ranks.join(', ')}, ${where(ranks)}`;
  });
  $('picked').textContent = [`rank ${picked}: pipeline device ${device}, replica ${replica}, tensor ${inside % plan.tp}`, ...told].join(' · ');
}

/** Select the GPU under the pointer; arrow keys select its neighbours. */
function followRanks(plan) {
  const all = $('ranks').querySelectorAll('[data-rank]').length;
  let picked = -1;
  const pick = rank => { picked = Math.min(Math.max(rank, 0), all - 1); pickRank(plan, picked); };
  $('ranks').onpointerover = ({ target }) => { if (target.dataset.rank) pick(+target.dataset.rank); };
  $('ranks').onkeydown = event => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: DATA.perNode, ArrowUp: -DATA.perNode }[event.key];
    if (!by) return;
    event.preventDefault();
    pick(picked + by);
  };
}
