// Idle time by cause: its segments as cells, or merged with the ops for rows of pixels, and the tip's text of a bubble.

const DRAIN = LOOKS.causes.findIndex(({ name }) => name === 'drain');

/** Return the colour of a cause on a light or a dark page. */
const causeFill = (cause, dark) => LOOKS.causes[cause].fill[+dark];

/** Return the idle segments of all devices in order of time; the last one of a device is drain. */
function segments(timeline, { op, cause, blamed, length }) {
  const { ops, offsets, devices, makespan } = timeline;
  const size = op.length + devices;
  const idle = {
    offsets: [0], left: new Float64Array(size), right: new Float64Array(size), cause: new Uint8Array(size),
    blamed: new Int32Array(size),
  };
  let [count, segment] = [0, 0];
  const add = (left, right, why, whose) => {
    idle.left[count] = left;
    idle.right[count] = right;
    idle.cause[count] = why;
    idle.blamed[count++] = whose;
  };
  for (let device = 0; device < devices; device++) {
    let free = 0;
    for (let next = offsets[device]; next < offsets[device + 1]; next++) {
      for (; op[segment] === next; segment++) {
        const until = op[segment + 1] === next ? free + length[segment] : ops.start[next];
        add(free, until, cause[segment], blamed[segment]);
        free = until;
      }
      free = Math.max(free, ops.end[next]);
    }
    if (free < makespan) add(free, makespan, DRAIN, -1);
    idle.offsets.push(count);
  }
  return idle;
}

/** Call `act` for every idle segment of a device between two times. */
function eachSegment(idle, device, from, to, act) {
  const stop = idle.offsets[device + 1];
  for (let i = firstAbove(idle.right, from, idle.offsets[device], stop); i < stop && idle.left[i] < to; i++) act(i);
}

/** Return the idle segments in sight as SVG, one path per cause. */
function idleCells(panel, geometry, above, below, dark) {
  const { waits: idle } = panel.timeline;
  const paths = LOOKS.causes.map(() => []);
  for (const [row, device] of panel.devices.entries())
    eachSegment(idle, device, geometry.first, geometry.last, i => paths[idle.cause[i]].push(
      rectangle(panel, geometry, idle.left[i], idle.right[i], row + above, row + below)));
  return paths.map((path, cause) => path.length
    ? `<path d="${path.join('')}" fill="${causeFill(cause, dark)}"/>` : '').join('');
}

/** Return ops and idle segments in order of time as one timeline, for rows of pixels; `source` has the ops. */
function mergedTimeline(timeline) {
  if (timeline.merged) return timeline.merged;
  const { ops, waits, offsets, devices } = timeline;
  const size = ops.left.length + waits.offsets[devices];
  const [left, right] = [new Float64Array(size), new Float64Array(size)];
  const [colour, source] = [new Uint16Array(size), new Int32Array(size).fill(-1)];
  let count = 0;
  for (let device = 0; device < devices; device++) {
    let [op, i] = [offsets[device], waits.offsets[device]];
    const [lastOp, last] = [offsets[device + 1], waits.offsets[device + 1]];
    for (; op < lastOp || i < last; count++) {
      const runs = i === last || op < lastOp && ops.left[op] < waits.left[i];
      left[count] = runs ? ops.left[op] : waits.left[i];
      right[count] = runs ? ops.right[op] : waits.right[i];
      colour[count] = runs ? ops.colour[op] : FILLS.length + waits.cause[i];
      if (runs) source[count] = op++;
      else i++;
    }
  }
  return timeline.merged = {
    ...timeline, ops: { left, right, colour }, source,
    offsets: offsets.map((first, device) => first + waits.offsets[device]),
  };
}

/** Return the tip's text of idle time: its cause, start and end, and the op to blame. */
function causeAt(timeline, device, time) {
  const { offsets, left, right, cause, blamed } = timeline.waits;
  const i = firstAbove(right, time, offsets[device], offsets[device + 1]);
  if (i === offsets[device + 1] || left[i] > time) return '';
  const { name, meaning } = LOOKS.causes[cause[i]];
  const op = blamed[i];
  const where = op < 0 ? '' : `: ${nameOf(timeline, cellOf(timeline, op))} on device ${timeline.ops.device[op]}`;
  return `\n${name}, ${interval(left[i], right[i])}: ${meaning}${where}`;
}

/** Return whether causes of idle time are known. */
const known = () => TIMELINES.some(timeline => timeline.waits);

/** Switch the colours of bubbles between causes and grey. */
function toggleCauses() {
  view.causes = !view.causes;
  press('causes', view.causes);
  showLegend();
  draw();
}
