// Marks above the cells, as SVG: numbers in cells, outlines, links, and titles and notes around the rows.

/** Return the marks directly above the cells of a panel: outlines of the explanation, and numbers. */
const numbersOnCells = (view, geometry, panel, sight, choose, theme, index) =>
  (view.story ? storyMarks(panel, geometry, theme, index) : '') + (sight.vector ? labels(panel, geometry, sight, choose) : '');

/** Return the topmost marks of a panel: the highlighted ops, and the end of the timeline. */
function marks(view, geometry, panel, sight, choose, theme, index) {
  const inside = [];
  if (sight.vector && choose) inside.push(outlines(panel, geometry, view, choose, LOOKS.highlight[+theme.dark]));
  if (panel.timeline.edited) inside.push(editMarks(panel, geometry, theme, index));
  if (view.op?.panel === index && panel.rows[panel.timeline.ops.device[view.op.op]] >= 0) inside.push(stroked([box(panel, geometry, view.op.op)], theme.ink, 2.5));
  return inside.join('') + endLine(panel, geometry, theme, index);
}

/** Return microbatch numbers for all cells of a colour, or for none if some do not fit, as gaps would mislead. */
function labels(panel, geometry, { spans }, choose) {
  const { timeline, row, lane } = panel;
  const { ops } = timeline;
  const digits = String(microbatchesPerStep(timeline) - 1).length;
  const groups = new Map();
  spans.forEach(([first, last, at]) => {
    for (let op = first; op < last; op++) {
      if (LOOKS.kinds[ops.kind[op]].once) continue;
      const group = groups.get(ops.colour[op]) ?? { width: Infinity, ops: [] };
      groups.set(ops.colour[op], group);
      if (ops.right[op] > ops.left[op]) group.width = Math.min(group.width, ops.right[op] - ops.left[op]);
      if (!choose || choose(op)) group.ops.push([op, at]);
    }
  });
  return [...groups].map(([colour, group]) => {
    const middle = panel.open ? INSIDE_TOP / 2 : (1 - lane) / 2;
    const size = Math.min(13, row * middle, (group.width * geometry.scale - 4) / (0.62 * digits));
    if (size < 7.5) return '';
    const fill = TEXTS[colour];
    const texts = group.ops.map(([op, at]) => {
      if (cutByFold(ops.left[op], ops.right[op])) return '';
      // A cell that the view cuts has its number in its visible part, if there is room.
      const [left, right] = [ops.left[op], ops.right[op]].map(time => inPlot(geometry, time));
      if (right - left < 0.62 * size * digits) return '';
      const x = (left + right) / 2;
      const y = (at + middle) * row + 0.36 * size;
      return `<text x="${px(x)}" y="${px(y)}">${numberIn(timeline, ops.microbatch[op])}</text>`;
    });
    return `<g font-size="${px(size)}" fill="${fill}" text-anchor="middle"${view.story ? halo({ page: FILLS[colour] }) : ''}>${texts.join('')}</g>`;
  }).join('');
}

/** Return the outline of an op's cell as a path, at least three pixels wide to be visible. */
function box(panel, geometry, op) {
  const { ops } = panel.timeline;
  const x = xOf(geometry, ops.start[op]);
  const width = Math.max(3, xOf(geometry, ops.end[op]) - x);
  const y = (panel.rows[ops.device[op]] + inset(panel.row)) * panel.row;
  const height = panel.row * (1 - 2 * inset(panel.row) - panel.lane);
  return `M${px(x)} ${px(y)}h${px(width)}v${px(height)}h${px(-width)}z`;
}

/** Return parts of a path as stroked SVG lines. */
const stroked = (parts, colour, width) => `<path d="${parts.join('')}" fill="none" stroke="${colour}" stroke-width="${width}"/>`;

/** Return outlines of the highlighted ops, and a line to each from its cause or its input. */
function outlines(panel, geometry, view, choose, colour) {
  const { timeline, row, rows } = panel;
  const { ops } = timeline;
  const edges = [inset(row), 1 - inset(row) - panel.lane]; // above and below a cell, in rows
  if (view.highlight && view.highlight.by !== 'microbatch') return '';
  const chosen = opsWhere(timeline, op => rows[ops.device[op]] >= 0 && choose(op) && !hidden(ops.start[op], ops.end[op]));
  const source = view.critical ? ops.bound : ops.dependency;
  const parts = chosen.map(op => {
    const from = source[op];
    if (from < 0 || ops.device[from] === ops.device[op] || rows[ops.device[from]] < 0) return box(panel, geometry, op);
    const [above, own] = [from, op].map(each => rows[ops.device[each]]);
    const down = +(own > above);
    const [x0, x1] = [xOf(geometry, ops.end[from]), xOf(geometry, ops.start[op])];
    const [y0, y1] = [(above + edges[down]) * row, (own + edges[1 - down]) * row];
    return `${box(panel, geometry, op)}M${px(x0)} ${px(y0)}L${px(x1)} ${px(y1)}`;
  });
  return stroked(parts, colour, chosen.length > 300 ? 0.75 : 2);
}

/** Return a mark at the end of a timeline, with its difference from the baseline. */
function endLine(panel, geometry, theme, index) {
  const x = xOf(geometry, panel.timeline.makespan);
  const line = `<path d="M${px(x)} 0v${panel.height}" stroke="${theme.muted}" stroke-dasharray="2 3"/>`;
  if (index === panel.timeline.baseline || x > geometry.plotWidth - 64) return line;
  return line + text(x + 8, panel.height / 2 + 5, 13, theme.ink, change(panel.timeline.versus_baseline), halo(theme));
}

function title({ timeline, top }, geometry, theme) {
  const parts = [timeline.numbers.makespan.text];
  if (timeline !== TIMELINES[timeline.baseline]) parts.push(`${change(timeline.versus_baseline)} vs baseline`);
  if (!geometry.narrow) parts.push(`bubble ${timeline.numbers.bubble_rate.text}`);
  // In the unit of the rows; of a device's 1/P share only if numbers of chunks differ.
  const counted = timeline.held[0].endsWith('act') ? 'peak_activations' : 'peak_activations_share';
  parts.push(`peak ${timeline.peak_memory?.text ?? timeline.numbers[counted].text}`);
  const room = (geometry.width - geometry.left) / 7 - timeline.title.length; // characters
  while (parts.length > 1 && parts.join(' · ').length + 3 > room) parts.pop();
  const name = `<tspan font-weight="600" fill="${theme.ink}">${escapeText(timeline.title)}</tspan>`;
  return text(geometry.left, top - 7, 12.5, theme.muted, [name, ...parts.map(escapeText)].join(' · '));
}

/** Return the notes right of every row: idle share and peak activations. */
function notes({ timeline, devices, top, row, lane }, geometry, theme) {
  const x = geometry.left + geometry.plotWidth + 10;
  const size = clamp(row, 9, 11);
  return everyDevice(devices.length, textStep(row)).map(at => {
    const device = devices[at];
    const idle = percent(idleShare(timeline, device), 0);
    const note = geometry.narrow ? idle : `${idle} idle · ${timeline.held[device]}`;
    return text(x, top + (at + (1 - lane) / 2) * row + 0.36 * size, size, theme.muted, note);
  }).join('');
}

/** Return the notes of a curve: its name, and each line's device and peak, or the scale of strips. */
function curveNotes(view, panel, geometry, theme) {
  const { timeline, curve, curveTop, curveHeight } = panel;
  const x = geometry.left + geometry.plotWidth + 10;
  const name = curve.unit ? `${curve.name}, ${curve.unit}` : curve.name;
  const cap = capOf(view) && !isLined(panel) ? ` · red: above the ${REPORT.cap.values ? "device's own cap" : REPORT.cap.text}` : '';
  const heading = text(geometry.left, curveTop - 7, 11.5, theme.muted, escapeText(name + (curve.host?.note ?? '') + cap));
  if (curve.parts) return heading + partNotes(panel, geometry, theme);
  if (timeline.devices > LINES) return heading + scaleNotes(view.curve, curveTop, x, theme);
  const step = Math.min(15, curveHeight / timeline.devices);
  return heading + [...curve.peak.entries()].sort(([, a], [, b]) => b - a).map(([device, peak], place) => {
    const y = curveTop + (place + 0.5) * step;
    const line = `<path d="M${x} ${px(y)}h9" stroke="${lineColour(timeline, theme.dark, device)}" stroke-width="${place ? 2 : 4}"/>`;
    const furthest = Number((-curve.least[device] > peak ? curve.least[device] : peak).toPrecision(3));
    const word = lowest(view.curve) < 0 ? '' : 'peak ';
    const note = geometry.narrow ? number(furthest) : `device ${device}: ${word}${number(furthest)}`;
    return line + text(x + 13, y + 4, 10.5, theme.muted, note);
  }).join('');
}

function scaleNotes(curve, top, x, theme) {
  const [low, high] = [lowest(curve), highest(curve)];
  const steps = Array.from({ length: 12 }, (_, i) => {
    const share = (high - i / 11 * (high - low)) / Math.max(high, -low);
    return `<rect x="${x}" y="${top + 12 + 5 * i}" width="11" height="5.4" fill="${shade(theme.dark, theme.page, share)}"/>`;
  });
  return steps.join('') + text(x + 16, top + 20, 11, theme.muted, number(high))
    + text(x + 16, top + 74, 11, theme.muted, number(low));
}
