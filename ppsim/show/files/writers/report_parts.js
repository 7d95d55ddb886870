// The parts of a device's memory: names and amounts next to their areas, and the amounts at a time.

/** Return the names of a device's parts of memory and their amounts at its peak, as SVG; the last part is on top. */
function partNotes({ curve, curveTop, curveHeight }, { left, plotWidth, narrow }, theme) {
  const last = curve.parts.length - 1;
  const tops = Array.from(curve.value.subarray(curve.offsets[last], curve.offsets[last + 1]));
  const amounts = partsAt(curve, curve.time[curve.offsets[last] + tops.indexOf(curve.peak[last])]);
  const step = Math.min(15, curveHeight / (last + 2));
  const x = left + plotWidth + 10;
  const head = narrow ? '' : text(x, curveTop + 0.5 * step + 4, 10.5, theme.muted, `device ${curve.device} at its peak`);
  return head + amounts.reverse().map(([name, amount], i) => {
    const y = curveTop + (i + 1.5) * step;
    const box = `<rect x="${x}" y="${(y - 4).toFixed(1)}" width="9" height="9" fill="${curve.fills[last - i][+theme.dark]}"/>`;
    return box + text(x + 13, y + 4, 10.5, theme.muted, `${number(+amount.toPrecision(narrow ? 3 : 4))} ${escapeText(narrow ? name.split(' ').pop() : name)}`);
  }).join('');
}

/** Return the amounts of a device's parts of memory at a time. */
const partsAt = (curve, time) => curve.parts.map((name, part) =>
  [name, +(heldAt(curve, part, time) - (part ? heldAt(curve, part - 1, time) : 0)).toPrecision(4)]);

/** Show the tip of a device's memory at a time: its parts, and the microbatches whose activations it holds. */
function tellParts({ curve, timeline }, time, x, y) {
  const { ops, offsets } = timeline;
  const [begun, left] = [new Set(), new Set()]; // of (chunk, microbatch) packed as one number
  for (let op = offsets[curve.device]; op < offsets[curve.device + 1]; op++) {
    const key = ops.chunk[op] * timeline.microbatches + ops.microbatch[op];
    if (ops.start[op] <= time) begun.add(key);
    if (ops.end[op] > time) left.add(key);
  }
  const live = [...begun].filter(key => left.has(key)).map(key => key % timeline.microbatches);
  const sorted = [...new Set(live)].sort((a, b) => a - b);
  const steps = microbatchesPerStep(timeline) < timeline.microbatches;
  const under = sorted.map(m => steps ? `${numberIn(timeline, m)} of step ${Math.floor(m / microbatchesPerStep(timeline))}` : m);
  const lines = partsAt(curve, time).filter(([, amount]) => amount).reverse().map(([name, amount]) => `${name}: ${measured(amount, curve.unit)}`);
  const whole = measured(heldAt(curve, curve.parts.length - 1, time), curve.unit);
  const which = under.length ? `microbatches in flight: ${under.length > 12 ? `${under.length}, ${under[0]} to ${under.at(-1)}` : under.join(', ')}` : 'no microbatch in flight';
  tip(x, y, bold(whole), ` on device ${curve.device} at ${timed(time)}\n${[...lines, which].join('\n')}`);
}
