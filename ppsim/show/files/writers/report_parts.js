// What fills a device: the names and amounts beside its areas, and what it holds at a time.

/** The parts of a device's memory with their amounts at its peak, the last above. */
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

/** What each part of a device's memory holds at a time. */
const partsAt = (curve, time) => curve.parts.map((name, part) =>
  [name, +(heldAt(curve, part, time) - (part ? heldAt(curve, part - 1, time) : 0)).toPrecision(4)]);

/** What fills a device at a time, and which microbatches are under way there. */
function tellParts({ curve, timeline }, time, x, y) {
  const { ops, offsets } = timeline;
  const [begun, left] = [new Set(), new Set()]; // a microbatch on a chunk, as one number
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
  const which = under.length ? `microbatches under way: ${under.length > 12 ? `${under.length}, ${under[0]} to ${under.at(-1)}` : under.join(', ')}` : 'no microbatch under way';
  tip(x, y, bold(whole), ` on device ${curve.device} at ${timed(time)}\n${[...lines, which].join('\n')}`);
}
