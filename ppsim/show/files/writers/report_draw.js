// The geometry of a view, and its cells and curves as SVG or, if many ops are in sight, as canvases with one column per
// pixel. A view is drawn again for every frame in which it changes.

const CELLS = 1500; // most ops drawn as cells
const LINES = 8; // most devices whose curve is a line
const FONT = 'system-ui, "DejaVu Sans", sans-serif';
const px = place => place.toFixed(1); // pixels, to a tenth
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** Return whether rows zoom; only then the page has the script for it. */
const hasManyDevices = () => mostDevices() > LINES;
const mostDevices = () => Math.max(...TIMELINES.map(timeline => timeline.devices));

/** Return whether all devices are in sight. */
const allRows = () => !hasManyDevices() || !view.rows && !view.pinned.length;

/** Return the devices in sight, from top to bottom. */
const devicesInSight = ({ devices }) => allRows() ? everyDevice(devices, 1) : rowsInSight(devices);

/** Return the row of each device; -1 for devices out of sight. */
function rowOfEach({ devices }, inSight) {
  const rows = new Int32Array(devices).fill(-1);
  inSight.forEach((device, row) => { rows[device] = row; });
  return rows;
}

/** Return the geometry of a view in pixels: one panel per timeline, with its rows and, if it is shown, the curve below. */
function geometryOf(view, width, tallest = TIMELINES.length > 1 ? 26 : 38) {
  if (!view.printing && TIMELINES.some(t => t.bands.length || t.inside)) tallest += 20;
  const narrow = width < 640;
  const several = TIMELINES.length > 1;
  const counts = TIMELINES.map(t => devicesInSight(t).length);
  const rows = counts.reduce((sum, count) => sum + count, 0);
  const most = Math.max(...counts);
  const row = clamp(Math.floor(560 / rows), most <= 8 ? 15 : most <= 64 ? 7 : most <= 256 ? 3 : 1, tallest);
  const linkCount = timeline => view.links && timeline.links?.names.length ? timeline.links.names.length : 0;
  const values = widest(valueTicks(view)) + 8; // room of the values left of a curve; a line's peak is about as wide
  const left = Math.max(values, TIMELINES.some(linkCount) ? narrow ? 48 : 96 : narrow ? 30 : view.pinned.length ? 84 : 76);
  const longest = TIMELINES.reduce((most, t) => t.held.reduce((own, note) => Math.max(own, note.length), most), 0);
  const part = Math.max(0, ...TIMELINES.flatMap(t => t.curves[view.curve]?.parts ?? []).map(name => name.length));
  const right = narrow ? part ? 130 : Math.max(54, values + 20) : clamp(Math.max(6.2 * longest + 86, 5.8 * part + 70), 132, 210); // of the notes at the rows' ends
  const plotWidth = Math.max(80, width - left - right);
  const panels = [];
  let top = folded ? 24 : 16;
  for (const timeline of TIMELINES) {
    if (several) top += panels.length ? 42 : 24;
    const devices = devicesInSight(timeline);
    const height = row * devices.length;
    const panel = { timeline, top, height, row, devices, rows: rowOfEach(timeline, devices), curve: timeline.curves[view.curve] };
    top += height;
    if (linkCount(timeline)) {
      panel.linkTop = top + LINK_HEAD;
      top = panel.linkTop + linkCount(timeline) * linkRow();
    }
    if (panel.curve) {
      panel.curveTop = top + 24;
      panel.curveHeight = isLined(panel) ? 118 : clamp(6 * devices.length, 90, view.printing ? 110 : 260);
      if (view.printing && (several || panel.linkTop)) panel.curveHeight = several ? 60 : 80;
      top = panel.curveTop + panel.curveHeight;
    }
    panels.push(panel);
  }
  const [from, to] = view.range;
  const scale = plotWidth / (to - from);
  const [first, last] = [timeAt(from), timeAt(to)]; // `from` and `to` are places in the picture
  return { narrow, several, left, right, width, plotWidth, panels, bottom: top, height: top + 44, from, to, first, last, scale };
}

const xOf = (geometry, time) => (drawnAt(time) - geometry.from) * geometry.scale;

const inPlot = (geometry, time) => clamp(xOf(geometry, time), 0, geometry.plotWidth);

/** Return the ops of a timeline in sight, as [first, after last, row] by row. */
function inSight(timeline, geometry, devices = devicesInSight(timeline)) {
  const spans = [];
  let count = 0;
  const parts = stretches(geometry.first, geometry.last);
  for (const [row, device] of devices.entries()) {
    const stop = timeline.offsets[device + 1];
    let last = 0;
    for (const [from, to] of parts) {
      const first = Math.max(last, firstAfter(timeline, device, from));
      last = firstAfter(timeline, device, to, first);
      while (last < stop && timeline.ops.left[last] < to) last++;
      spans.push([first, last, row]);
      count += last - first;
    }
  }
  return { spans, count };
}

const HATCHES = LOOKS.kinds.flatMap(kind => kind.hatch ?? Array(TINTS).fill()); // colour of the lines, by colour index
const hatchId = (colour, dim) => `hatch-${colour}${dim ? '-dim' : ''}`;

/** Return the fill of every colour index, then the dimmed fills, then the bubble; hatched fills are the mean colour. */
function palette(dark, causes) {
  const bubble = LOOKS.bubble[+dark];
  const dimmed = fill => blend(fill, bubble, 0.22);
  const fills = FILLS.map((fill, colour) => HATCHES[colour] ? blend(HATCHES[colour], fill, 0.35) : fill);
  return { fills, dimmed: fills.map(dimmed), bubble, dim: dimmed, dark, causes };
}

/** Return the hatched fills, for cells that are drawn one by one. */
function hatching(colours) {
  const pattern = (colour, dim) => {
    const [fill, line] = [FILLS[colour], HATCHES[colour]].map(c => dim ? colours.dim(c) : c);
    return `<pattern id="${hatchId(colour, dim)}" width="6" height="6" patternUnits="userSpaceOnUse"`
      + ` patternTransform="rotate(45)"><path d="M0 0h6v6h-6z" fill="${fill}"/><path d="M0 0h2v6h-2z" fill="${line}"/></pattern>`;
  };
  const patterns = HATCHES.flatMap((line, colour) => line ? [pattern(colour, false), pattern(colour, true)] : []);
  return patterns.length ? `<defs>${patterns.join('')}</defs>` : '';
}

const channels = colour => [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));

function blend(above, below, share) {
  const under = channels(below);
  const mixed = channels(above).map((c, i) => Math.round(share * c + (1 - share) * under[i]));
  return '#' + mixed.map(c => c.toString(16).padStart(2, '0')).join('');
}

/** Return a nested drawing, clipped to its place; its origin is the upper left corner of the place. */
function clipped(left, top, width, height, content) {
  return `<svg x="${left}" y="${top - 2}" width="${width + 2}" height="${height + 4}" overflow="hidden">`
    + `<g transform="translate(0 2)">${content}</g></svg>`;
}

/** Return a rectangle from time to time and from row to row as part of a path; parts out of sight are cut off. */
function rectangle(panel, geometry, left, right, top, bottom) {
  if (top < 0 || hidden(left, right)) return ''; // of a device without a row
  const x = inPlot(geometry, left);
  const width = inPlot(geometry, right) - x;
  const height = (bottom - top) * panel.row;
  const start = `M${x.toFixed(2)} ${(top * panel.row).toFixed(2)}`;
  return `${start}h${width.toFixed(2)}v${height.toFixed(2)}h${(-width).toFixed(2)}z`;
}

/** Return the margin above and below a cell, as a share of its row. */
const inset = row => row >= 6 ? Math.max(1, 0.06 * row) / row : 0;

/** Return the cells of a panel as one path per colour, above the grey track that shows as bubble. */
function cells(panel, geometry, sight, choose, colours) {
  const { ops, makespan } = panel.timeline;
  const above = inset(panel.row);
  const below = 1 - above - panel.lane;
  const narrowest = narrowestOf(panel.timeline, sight.spans) * geometry.scale;
  const gap = (narrowest >= 10 ? 1 : narrowest >= 4 ? 0.5 : 0) / geometry.scale / 2;
  const paths = new Map([[colours.bubble, []]]);
  const free = panel.timeline.edited?.missing ? Math.max(makespan, SPAN) : makespan; // of a blank row, where ops may go
  for (let row = 0; row < panel.devices.length; row++)
    paths.get(colours.bubble).push(rectangle(panel, geometry, 0, free, row + above, row + below));
  const causes = colours.causes && panel.timeline.waits ? idleCells(panel, geometry, above, below, colours.dark) : '';
  sight.spans.forEach(([first, last, row]) => {
    for (let op = first; op < last; op++) {
      const dim = choose !== null && !choose(op);
      const colour = ops.colour[op];
      const fill = HATCHES[colour] ? `url(#${hatchId(colour, dim)})` : (dim ? colours.dimmed : colours.fills)[colour];
      if (!paths.has(fill)) paths.set(fill, []);
      const inner = ops.pair[op] - op; // no gap between the halves of a pair
      const left = ops.left[op] + (inner === -1 ? 0 : gap);
      const right = ops.right[op] - (inner === 1 ? 0 : gap);
      paths.get(fill).push(rectangle(panel, geometry, left, right, row + above, row + below));
    }
  });
  const [track, ...rest] = [...paths].map(([fill, path]) => `<path d="${path.join('')}" fill="${fill}"/>`);
  return track + causes + rest.join('');
}

function narrowestOf({ ops }, spans) {
  let width = Infinity;
  for (const [first, last] of spans)
    for (let op = first; op < last; op++)
      if (ops.right[op] > ops.left[op]) width = Math.min(width, ops.right[op] - ops.left[op]);
  return width;
}

/** The largest value of a curve on any device of any timeline, so that curves are comparable. */
const highest = curve => TIMELINES.flatMap(t => t.curves[curve]?.host?.peak ?? t.curves[curve]?.peak ?? []).reduce((a, b) => Math.max(a, b), 0) || 1;
/** The smallest value of a curve: below zero for curves with a sign, else zero. */
const lowest = curve => TIMELINES.flatMap(t => t.curves[curve]?.least ?? []).reduce((a, b) => Math.min(a, b), 0);
/** Return whether a curve has the cap: the first curve, memory, and memory by parts. */
const capOf = view => REPORT.cap && (view.curve === 0 || TIMELINES[0].curves[view.curve]?.parts) ? REPORT.cap : null;
/** Return the cap of a device. */
const capAt = device => REPORT.cap.values?.[device] ?? REPORT.cap.value;
/** Return whether a curve has lines on an axis, instead of a strip for each device. */
const isLined = ({ timeline, curve }) => curve.parts || timeline.devices <= LINES;

/** Return the colour at a share of the way from a first colour over a middle one to a last one. */
const rampColour = ([first, middle, last], share) => share < 0.5 ? blend(middle, first, 2 * share) : blend(last, middle, 2 * share - 1);
/** Return the colour of a device's line. */
const lineColour = ({ devices }, dark, device) => rampColour(LOOKS.ramp[+dark], device / Math.max(1, devices - 1));

/** Return the colour of a value in a strip: from nearly the page's colour to the strong end of the ramp; red below 0. */
function shade(dark, page, share) {
  if (share < 0) return blend(LOOKS.highlight[+dark], page, 0.05 - 0.95 * share);
  const [strong, middle] = LOOKS.ramp[+dark];
  return rampColour([blend(middle, page, 0.05), middle, strong], share);
}

/** Return a device's steps in sight as [time, value]; if there are more steps than pixels, least and most per pixel. */
function steps(curve, device, from, to, width) {
  const last = curve.offsets[device + 1];
  let step = stepAfter(curve, device, from);
  let held = heldUntil(curve, device, step);
  const found = [[from, held]];
  const perPixel = (to - from) / width;
  const dense = last - step > 4 * width;
  while (step < last && curve.time[step] <= to) { // at the end too, where a device frees the last
    const until = dense ? from + (Math.floor((curve.time[step] - from) / perPixel) + 1) * perPixel : curve.time[step];
    const time = curve.time[step];
    let least = Infinity;
    let most = -Infinity;
    do {
      held = curve.value[step++];
      least = Math.min(least, held);
      most = Math.max(most, held);
    } while (step < last && curve.time[step] < until);
    if (least < most) found.push([time, least], [time, most]);
    found.push([time, held]);
  }
  return [...found, [to, held]];
}

/** Return the least and the largest value of the axis of a curve. */
const curveRange = view => [1.06 * lowest(view.curve), 1.06 * Math.max(highest(view.curve), capOf(view)?.value ?? 0)];

/** Return the range of values of a curve's axis, and a function to the height of a value below its upper edge. */
function curveScale(view, panel) {
  const [low, high] = curveRange(view);
  return { low, high, y: value => panel.curveHeight * (high - value) / (high - low) };
}

/** Return the lines of a curve, of all devices or of one, as SVG. */
function curveLines(view, panel, geometry, dark, only = -1) {
  const { timeline, curve } = panel;
  const { y } = curveScale(view, panel);
  const parts = stretches(Math.max(0, geometry.first), Math.min(geometry.last, timeline.makespan));
  const floor = y(0).toFixed(2);
  const fullest = Math.max(...curve.peak);
  const lines = Array.from({ length: curve.offsets.length - 1 }, (_, device) => {
    const line = parts.map(([from, to]) => {
      const [first, ...rest] = steps(curve, device, from, to, Math.max(1, (to - from) * geometry.scale)).map(([time, value]) =>
        [xOf(geometry, time).toFixed(2), y(value).toFixed(2)]);
      const way = rest.map(([x, at]) => `H${x}V${at}`).join('');
      return curve.parts ? `M${first[0]} ${floor}V${first[1]}${way}V${floor}z` : `M${first.join(' ')}${way}`;
    });
    if (only >= 0 && device !== only) return '';
    if (curve.parts) return `<path d="${line.join('')}" fill="${curve.fills[device][+dark]}"/>`;
    return `<path d="${line.join('')}" stroke="${lineColour(timeline, dark, device)}" stroke-width="${curve.peak[device] < fullest ? 1.7 : 3.5}"/>`;
  });
  // Each area covers the lower part of the earlier ones.
  return curve.parts ? lines.reverse().join('') : `<g class="lines" fill="none">${lines.join('')}</g>`;
}

/** Return the areas of a curve above the caps, in the colour of warnings. */
function overLines(view, panel, geometry, dark, over, colour) {
  const { y } = curveScale(view, panel);
  return over.map(device => {
    const lines = curveLines(view, panel, geometry, dark, device)
      .replace(/stroke="#[^"]*"/g, `stroke="${colour}"`).replace('class="lines"', '');
    const high = px(y(capAt(device)));
    return `<svg class="over" width="${geometry.plotWidth}" height="${high}" overflow="hidden">${lines}</svg>`;
  }).join('');
}

/**
 * Return a drawn view: the lower layers as canvases with their places, the upper ones as the content of an SVG element.
 */
function figure(view, geometry, theme) {
  const colours = palette(theme.dark, view.causes);
  const { left, plotWidth } = geometry;
  const canvases = [];
  const content = [hatching(colours), timeAxis(geometry, theme)];
  const veils = []; // over timelines of an earlier answer
  geometry.panels.forEach((panel, index) => {
    const { timeline, row, top, height } = panel;
    const choose = chooser(timeline, view);
    const sight = inSight(timeline, geometry);
    sight.vector = sight.count <= CELLS;
    panel.lane = timeline.bands.length ? laneShare(panel) : 0;
    panel.open = Boolean(timeline.inside) && sight.vector && isOpen(panel, geometry, sight);
    panel.strip = panel.lane > 0 && laneStrip(panel, geometry, sight);
    const { from, to } = geometry;
    const { causes, highlight, critical } = view;
    const look = [timeline, `${panel.devices}`, from, to, plotWidth, row, panel.lane, theme.dark, causes, highlight, critical];
    const again = (which, paint) =>
      timeline.edited ? sameCanvas(`${which} ${index}`, look, paint) : paint();
    if (!sight.vector) {
      const canvas = again('cells', () => cellPixels(panel, geometry, sight.spans, choose, colours));
      canvases.push({ canvas, left, top, width: plotWidth, height });
    }
    const drawn = sight.vector ? cells(panel, geometry, sight, choose, colours) : '';
    if (panel.strip) canvases.push({ canvas: lanePixels(panel, geometry, theme, view), left, top, width: plotWidth, height });
    const inside = panel.open ? insides(panel, geometry, sight, theme) : '';
    const messages = panel.lane && !panel.strip ? lanes(panel, geometry, view, theme) : '';
    const bars = timeline.bars && sight.vector ? barsOverRows(panel, geometry) : '';
    const above = numbersOnCells(view, geometry, panel, sight, choose, theme, index);
    const marked = marks(view, geometry, panel, sight, choose, theme, index);
    content.push(clipped(left, top, plotWidth, height, drawn + inside + messages + bars + above));
    content.push(clipped(left, top, plotWidth, height, marked));
    if (view.pinned.length) content.push(pinLine(panel, geometry, theme));
    content.push(deviceAxis(panel.devices, top, row, geometry, theme, panel.lane), notes(panel, geometry, theme));
    if (geometry.several) content.push(title(panel, geometry, theme));
    if (panel.linkTop) {
      const height = timeline.links.names.length * linkRow();
      canvases.push({ canvas: linkPixels(panel, geometry, theme), left, top: panel.linkTop, width: plotWidth, height });
      content.push(linkNotes(panel, geometry, theme));
    }
    if (timeline.old)
      veils.push(`<rect class="veil" x="${left}" y="${top}" width="100%" height="${(panel.curve ? panel.curveTop + panel.curveHeight : top + height) - top}" fill="${theme.page}" opacity="0.65"/>`);
    if (!panel.curve) return;
    content.push(curveNotes(view, panel, geometry, theme));
    const place = { left, top: panel.curveTop, width: plotWidth, height: panel.curveHeight };
    if (!isLined(panel)) {
      look.push(view.curve, SPAN);
      canvases.push({ canvas: again('curve', () => curvePixels(view, panel, geometry, theme)), ...place });
      content.push(deviceAxis(panel.devices, place.top, place.height / panel.devices.length, geometry, theme));
    } else {
      content.push(curveAxis(view, panel, geometry, theme));
      content.push(clipped(left, place.top, plotWidth, place.height,
        curveLines(view, panel, geometry, theme.dark) + capLine(view, panel, geometry, theme)
          + (panel.curve.host ? hostLine(view, panel, geometry, theme.dark) : '')));
    }
  });
  if (folded) content.push(foldMarks(geometry.panels[0], geometry, theme));
  return { canvases, content: [...content, ...veils] };
}

const painted = new Map(); // by timeline and device: the inputs of the last painting, and its canvas

/** Return the last canvas of an edited timeline if its inputs are equal; else paint it again. */
function sameCanvas(which, look, paint) {
  const before = painted.get(which);
  if (!before || look.some((value, i) => value !== before.look[i])) painted.set(which, { look, canvas: paint() });
  return painted.get(which).canvas;
}
