// The range that the reader selects with Shift + drag: sums over its devices, and a ruler.

const SNAP = 7; // pixels from an op's edge

/** Return the devices whose rows in a panel lie between two heights of the chart; null if there are none. */
function rowsBetween(panel, above, below) {
  const first = Math.max(0, Math.floor((above - panel.top) / panel.row));
  const found = panel.devices.slice(first, Math.max(first, Math.ceil((below - panel.top) / panel.row)));
  return found.length && below > panel.top && above < panel.top + panel.height ? found : null;
}

/** Select the range of time and rows between the press of the pointer and its place now. */
function selectTo(pressed, event) {
  const box = chartBox();
  const under = x => clamp(timeAt(shown.from + (x - box.left - shown.left) / shown.scale), 0, SPAN);
  const [above, below] = [pressed.y - box.top, event.clientY - box.top].sort((a, b) => a - b);
  const rows = shown.panels.map(panel => rowsBetween(panel, above, Math.max(below, above + 1)));
  const [from, to] = [pressed.x, event.clientX].map(x => snapped(under(x), rows)).sort((a, b) => a - b);
  view.selected = to > from && rows.some(Boolean) ? { from, to, rows } : null;
  drawSoon();
  showSums();
}

/** Return the start or end of an op in these rows that is within SNAP pixels of a time; else the time. */
function snapped(time, rows) {
  let [best, near] = [time, SNAP / shown.scale];
  for (const [index, devices] of rows.entries()) for (const device of devices ?? []) {
    const { ops, offsets } = TIMELINES[index];
    for (let op = offsets[device]; op < offsets[device + 1]; op++)
      for (const edge of [ops.left[op], ops.right[op]])
        if (Math.abs(edge - time) < near) [best, near] = [edge, Math.abs(edge - time)];
  }
  return best;
}

function clearSelection() {
  view.selected = null;
  showSums();
}

/** Return the selected range as SVG: its rows marked, and its length above them. */
function selectionMarks(geometry, theme) {
  if (!view.selected) return '';
  const { from, to, rows } = view.selected;
  const left = geometry.left + inPlot(geometry, from);
  const wide = geometry.left + inPlot(geometry, to) - left;
  const colour = LOOKS.highlight[+theme.dark];
  let ruler = '';
  const parts = geometry.panels.map(({ top, row, rows: at }, i) => {
    const seen = (rows[i] ?? []).map(device => at[device]).filter(place => place >= 0);
    if (!seen.length) return '';
    const [first, stop] = [Math.min(...seen), Math.max(...seen) + 1];
    ruler ||= text(left + wide / 2, top - 4, 12, theme.ink, timed(to - from), CENTRED + halo(theme));
    return `<rect class="selected" x="${left}" y="${top + first * row}" width="${wide}" height="${(stop - first) * row}"`
      + ` fill="${colour}" fill-opacity="0.12" stroke="${colour}"/>`;
  });
  return parts.join('') + ruler;
}

/** Return times within a range by kind of op and by cause of idle time, as [name, time, count, device time]. */
function sumsOf(timeline, devices, from, to) {
  const { ops, offsets, waits } = timeline;
  const inside = (a, b) => Math.max(0, Math.min(b, to) - Math.max(a, from));
  const sums = new Map();
  const add = (name, time, count) => {
    const [before, counted] = sums.get(name) ?? [0, 0];
    if (time > 0) sums.set(name, [before + time, counted + count]);
  };
  let busy = 0;
  for (const device of devices)
    for (let op = firstAfter(timeline, device, from); op < offsets[device + 1] && ops.left[op] < to; op++) {
      const time = inside(ops.left[op], ops.right[op]);
      add(LOOKS.kinds[ops.kind[op]].name, time, 1);
      busy += time;
    }
  const whole = devices.length * inside(0, timeline.makespan);
  const rows = [['busy', [busy, 0]], ...sums];
  sums.clear();
  for (const device of waits ? devices : [])
    eachSegment(waits, device, from, to, i =>
      add(`idle: ${LOOKS.causes[waits.cause[i]].name}`, inside(waits.left[i], waits.right[i]), 1));
  return [...rows, ['idle', [Math.max(0, whole - busy), 0]], ...sums].map(([name, [time, count]]) => [name, time, count, whole]);
}

function showSums() {
  const { selected } = view;
  $('sums').hidden = !selected;
  if (!selected) return;
  const { from, to, rows } = selected;
  const heading = element('h2', { textContent: `Selected: ${interval(from, to)}` });
  const tables = TIMELINES.flatMap((timeline, i) => {
    if (!rows[i]) return [];
    const [first, last] = [rows[i][0], rows[i].at(-1)];
    const where = first === last ? `device ${first}` : `devices ${hasManyDevices() ? rangesOf(rows[i]) : `${first} to ${last}`}`;
    const sums = sumsOf(timeline, rows[i], from, to);
    const times = inColumn(sums.map(([, time]) => time));
    const lines = sums.map(([name, time, count, whole], at) => [name, times[at], percent(whole ? time / whole : 0), count || '']);
    const head = [`${TIMELINES.length > 1 ? `${timeline.title}, ` : ''}${where}`, `time (${REPORT.unit})`, 'share', 'ops or gaps'];
    return [table(head, lines, `Sums of the selected range: ${timeline.title}`)];
  });
  $('sums').replaceChildren(heading, ...tables);
}
