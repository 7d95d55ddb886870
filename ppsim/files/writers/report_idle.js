// Idle time by cause: segments in sight as cells, merged with the ops for rows of pixels, and what a bubble says.

const FILLS = 2 * LOOKS.kinds.length; // colours of ops, which those of causes follow

/** The colour of a cause on a light or a dark page. */
const causeFill = (cause, dark) => LOOKS.causes[cause].fill[+dark];

/** One path per cause, above the grey track. */
function idleCells(panel, geometry, above, below, dark) {
  const { waits: idle } = panel.timeline;
  const paths = LOOKS.causes.map(() => []);
  for (let i = 0; i < idle.left.length; i++) {
    if (idle.right[i] < geometry.from || idle.left[i] > geometry.to) continue;
    const device = idle.device[i];
    paths[idle.cause[i]].push(
      rectangle(panel, geometry, idle.left[i], idle.right[i], device + above, device + below));
  }
  return paths.map((path, cause) => path.length
    ? `<path d="${path.join('')}" fill="${causeFill(cause, dark)}"/>` : '').join('');
}

/** Ops and idle segments of every device in order of time, as a timeline for rows of pixels; `source` is the op. */
function withIdle(timeline) {
  if (timeline.merged) return timeline.merged;
  const { ops, waits, offsets } = timeline;
  const [device, left, right] = ['device', 'left', 'right'].map(name => [...ops[name], ...waits[name]]);
  const colour = [...ops.colour, ...Array.from(waits.cause, cause => FILLS + cause)];
  const order = left.map((_, i) => i).sort((a, b) => device[a] - device[b] || left[a] - left[b]);
  const take = values => order.map(i => values[i]);
  return timeline.merged = {
    ...timeline, ops: { left: take(left), right: take(right), colour: take(colour) },
    offsets: Array.from(offsets, (first, d) => first + waits.device.filter(other => other < d).length),
    source: order.map(i => i < ops.left.length ? i : -1),
  };
}

/** Why a device is idle at a time, since when and until when, and which op is to blame. */
function causeAt(timeline, device, time) {
  const { device: devices, left, right, cause, blamed } = timeline.waits;
  const i = devices.findIndex((d, segment) => d === device && left[segment] <= time && time < right[segment]);
  if (i < 0) return '';
  const { name, meaning } = LOOKS.causes[cause[i]];
  const op = blamed[i];
  const where = op < 0 ? '' : `: ${nameOf(timeline, cellOf(timeline, op))} on device ${timeline.ops.device[op]}`;
  return `\n${name}, ${interval(left[i], right[i])}: ${meaning}${where}`;
}

/** Colour bubbles by their cause, or all grey. */
function toggleCauses() {
  view.causes = !view.causes;
  $('causes').setAttribute('aria-pressed', view.causes);
  showLegend();
  draw();
}
