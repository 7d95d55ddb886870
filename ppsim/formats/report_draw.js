// Drawing: where things are (geometry), the cells and curves for Plotly (figure), and what lies above them (marks).
// Few ops in sight are drawn as cells, one path per colour; many as one image, a column per pixel.

const CELLS = 1500; // most ops drawn as cells
const LINES = 8; // most devices whose curve is a line
const OVERSCAN = 0.5; // share of the width drawn beyond each side, so that dragging shows no void
const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escapeText = text => String(text).replace(/[&<>"]/g, sign => ENTITIES[sign]);

/** Places in pixels: one panel per timeline, each with its rows and, where a curve is shown, the curve below. */
function geometryOf(view, width, tallest = TIMELINES.length > 1 ? 26 : 38) {
  if (TIMELINES.some(t => t.bands.length)) tallest += 12;
  const narrow = width < 640;
  const several = TIMELINES.length > 1;
  const rows = TIMELINES.reduce((sum, t) => sum + t.devices, 0);
  const most = Math.max(...TIMELINES.map(t => t.devices));
  const row = clamp(Math.floor(560 / rows), most <= 8 ? 15 : most <= 64 ? 7 : most <= 256 ? 3 : 1, tallest);
  const left = narrow ? 30 : 76;
  const right = narrow ? 44 : 132;
  const plotWidth = Math.max(80, width - left - right);
  const panels = [];
  let top = 8;
  for (const timeline of TIMELINES) {
    if (several) top += 24;
    const height = row * timeline.devices;
    const panel = { timeline, top, height, row, curve: timeline.curves[view.curve] };
    top += height;
    if (panel.curve) {
      panel.curveTop = top + 24;
      panel.curveHeight = timeline.devices <= LINES ? 118 : clamp(6 * timeline.devices, 90, 260);
      top = panel.curveTop + panel.curveHeight;
    }
    panels.push(panel);
    top += several ? 18 : 0;
  }
  const [from, to] = view.range;
  const scale = plotWidth / (to - from);
  return { narrow, several, left, right, width, plotWidth, panels, bottom: top, height: top + 44, from, to, scale };
}

const xOf = (geometry, time) => (time - geometry.from) * geometry.scale;

/** Ops of a timeline from one time to another, per device as [first, after last]. */
function inSight(timeline, from, to) {
  const spans = [];
  let count = 0;
  for (let device = 0; device < timeline.devices; device++) {
    const first = firstAfter(timeline, device, from);
    const stop = timeline.offsets[device + 1];
    let last = firstAfter(timeline, device, to, first);
    while (last < stop && timeline.ops.left[last] < to) last++;
    spans.push([first, last]);
    count += last - first;
  }
  return { spans, count };
}

/** Fill of every colour index, then dimmed, then the bubble. */
function palette(dark) {
  const bubble = dark ? LOOKS.bubble_dark : LOOKS.bubble;
  const fills = LOOKS.kinds.flatMap(kind => kind.fill);
  return { fills, dimmed: fills.map(fill => blend(fill, bubble, 0.22)), bubble };
}

const channels = colour => [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));

function blend(above, below, share) {
  const under = channels(below);
  const mixed = channels(above).map((c, i) => Math.round(share * c + (1 - share) * under[i]));
  return '#' + mixed.map(c => c.toString(16).padStart(2, '0')).join('');
}

function pixel(colour) {
  const [red, green, blue] = channels(colour);
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

/** Rectangles of one colour as a single filled path. */
function filled(axis, colour, line = { width: 0 }) {
  return {
    type: 'scatter', mode: 'lines', fill: 'toself', x: [], y: [], yaxis: axis, fillcolor: colour,
    line: { ...line, simplify: false }, hoverinfo: 'skip',
  };
}

function rectangle(trace, left, right, top, bottom) {
  trace.x.push(left, right, right, left, left, null);
  trace.y.push(top, top, bottom, bottom, top, null);
}

/** How far a cell stays inside its row, in rows. */
const inset = row => row >= 6 ? Math.max(1, 0.06 * row) / row : 0;

/** The share of a row that its lane of messages takes: none where it could not be seen. */
const laneShare = panel => panel.timeline.bands.length && panel.row >= 15 ? 0.1 + 0.1 * panel.timeline.bands.length : 0;

/** Messages that leave a device and its collectives, in the lane below its cells: one band for each kind. */
function lanes(panel, axis, [from, to]) {
  const { lane, bands } = panel.timeline;
  const high = (panel.lane - 1.5 / panel.row) / bands.length; // the rest stays free above
  const traces = bands.map(band => filled(axis, LOOKS.lane[band], { width: 0.75, color: LOOKS.lane_edge }));
  for (let i = 0; i < lane.left.length; i++) {
    if (lane.right[i] < from || lane.left[i] > to) continue;
    const place = bands.indexOf(lane.band[i]);
    const bottom = lane.device[i] + 0.5 - inset(panel.row) - (bands.length - 1 - place) * high;
    rectangle(traces[place], lane.left[i], lane.right[i], bottom - high, bottom);
  }
  return traces;
}

/** One trace per colour, above the grey track that shows as bubble. */
function cells(panel, geometry, axis, sight, choose, colours) {
  const { ops, makespan, devices } = panel.timeline;
  const half = 0.5 - inset(panel.row);
  const below = half - panel.lane;
  const track = filled(axis, colours.bubble);
  for (let device = 0; device < devices; device++) rectangle(track, 0, makespan, device - half, device + below);
  const narrowest = sight.width * geometry.scale;
  const gap = (narrowest >= 10 ? 1 : narrowest >= 4 ? 0.5 : 0) / geometry.scale / 2;
  const traces = new Map();
  sight.spans.forEach(([first, last], device) => {
    for (let op = first; op < last; op++) {
      const dim = choose !== null && !choose(op);
      const key = ops.colour[op] + (dim ? colours.fills.length : 0);
      if (!traces.has(key)) traces.set(key, filled(axis, (dim ? colours.dimmed : colours.fills)[ops.colour[op]]));
      const inner = ops.pair[op] - op; // no gap between the halves of a pair
      rectangle(
        traces.get(key), ops.left[op] + (inner === -1 ? 0 : gap), ops.right[op] - (inner === 1 ? 0 : gap),
        device - half, device + below,
      );
    }
  });
  return [track, ...traces.values()];
}

/**
 * Colours of one device, a pixel each: the mean of what the pixel covers, by area. The largest share alone would
 * show stripes that are not in the schedule once several ops fall into a pixel. Chosen ops outweigh all others.
 */
function pixelRow(row, timeline, [first, last], from, perPixel, choose, colours) {
  const { left, right, colour } = timeline.ops;
  const mean = mixer(colours.bubble);
  let current = 0;
  const flush = () => {
    row[current] = mean(clamp(timeline.makespan - from - current * perPixel, 0, perPixel));
    current++;
  };
  for (let op = first; op < last; op++) {
    const chosen = choose !== null && choose(op);
    const fill = (choose !== null && !chosen ? colours.dimmed : colours.fills)[colour[op]];
    let start = Math.max(0, left[op] - from);
    const end = Math.min(right[op] - from, row.length * perPixel);
    while (start < end) {
      const at = Math.min(row.length - 1, Math.floor(start / perPixel + EPSILON));
      while (current < at) flush();
      const until = Math.max(start, Math.min(end, (at + 1) * perPixel));
      mean.add(fill, until - start, chosen ? 1e6 : 1);
      if (at === row.length - 1) break;
      start = until;
    }
  }
  while (current < row.length) flush();
}

/** Mixes colours by area: `add` them, then call for the pixel of a given area, the rest of which is bubble. */
function mixer(bubble) {
  let [red, green, blue, covered, weight] = [0, 0, 0, 0, 0];
  const add = (colour, area, factor) => {
    red += factor * area * colour[0];
    green += factor * area * colour[1];
    blue += factor * area * colour[2];
    weight += factor * area;
    covered += area;
  };
  const mix = area => {
    if (area <= 0) return 0;
    add(bubble, Math.max(0, area - covered), 1);
    const result = (255 << 24 | Math.round(blue / weight) << 16 | Math.round(green / weight) << 8
      | Math.round(red / weight)) >>> 0;
    red = green = blue = covered = weight = 0;
    return result;
  };
  return Object.assign(mix, { add });
}

/** Rows of pixels as an image in the place of a panel; `paint(row, device)` fills one row. */
function image(devices, rowHeight, gap, from, to, width, axis, paint) {
  const dense = Math.min(2, window.devicePixelRatio || 1);
  const canvas = document.createElement('canvas');
  const rowPixels = Math.max(1, Math.round(rowHeight * dense));
  const edge = Math.round(gap * rowPixels);
  canvas.width = Math.max(1, Math.round(width * dense));
  canvas.height = rowPixels * devices;
  const context = canvas.getContext('2d');
  const data = context.createImageData(canvas.width, canvas.height);
  const words = new Uint32Array(data.data.buffer);
  const row = new Uint32Array(canvas.width);
  for (let device = 0; device < devices; device++) {
    paint(row, device);
    for (let y = edge; y < rowPixels - edge; y++) words.set(row, (device * rowPixels + y) * canvas.width);
  }
  context.putImageData(data, 0, 0);
  return {
    source: canvas.toDataURL(), xref: 'x', yref: axis, x: from, y: -0.5, sizex: to - from, sizey: devices,
    sizing: 'stretch', layer: 'below',
  };
}

function cellImage(panel, geometry, axis, spans, [from, to], choose, colours) {
  const all = {
    fills: colours.fills.map(channels), dimmed: colours.dimmed.map(channels), bubble: channels(colours.bubble),
  };
  const { timeline, row } = panel;
  const width = (to - from) * geometry.scale;
  return image(timeline.devices, row, inset(row), from, to, width, axis, (pixels, device) =>
    pixelRow(pixels, timeline, spans[device], from, (to - from) / pixels.length, choose, all));
}

/** The most that any device of any timeline holds, so that curves compare. */
const highest = curve => TIMELINES.flatMap(t => t.curves[curve]?.peak ?? []).reduce((a, b) => Math.max(a, b), EPSILON);
/** The least likewise: below zero for curves that have a sign, else zero. */
const lowest = curve => TIMELINES.flatMap(t => t.curves[curve]?.least ?? []).reduce((a, b) => Math.min(a, b), 0);

/** A colour of the ramp, `share` of the way from its first to its last. */
const ramp = (dark, share) => blend(LOOKS.ramp[+dark][1], LOOKS.ramp[+dark][0], share);

/** A colour of a strip: from nearly the page's own, over the end of the ramp, to its strong beginning; red below 0. */
function shade(dark, page, share) {
  if (share < 0) return blend(LOOKS.highlight[+dark], page, 0.05 - 0.95 * share);
  const [strong, middle] = LOOKS.ramp[+dark];
  return share < 0.5 ? blend(middle, page, 0.05 + 1.9 * share) : blend(strong, middle, 2 * share - 1);
}

function curveImage(view, panel, geometry, axis, [from, to], dark, page) {
  const { timeline, curve } = panel;
  const most = Math.max(highest(view.curve), -lowest(view.curve));
  const shades = Array.from({ length: 129 }, (_, i) => pixel(shade(dark, page, i / 64 - 1)));
  const rowHeight = panel.curveHeight / timeline.devices;
  return image(timeline.devices, rowHeight, 0, from, to, (to - from) * geometry.scale, axis, (pixels, device) => {
    const perPixel = (to - from) / pixels.length;
    let step = curve.offsets[device];
    const stop = curve.offsets[device + 1];
    for (let x = 0; x < pixels.length; x++) {
      const time = from + (x + 0.5) * perPixel;
      while (step < stop && curve.time[step] <= time) step++;
      const value = step > curve.offsets[device] ? curve.value[step - 1] : 0;
      pixels[x] = time > timeline.makespan ? 0 : shades[64 + Math.round(64 * value / most)];
    }
  });
}

/** One device's steps from one time to another; more steps than pixels become their least and most per pixel. */
function stepLine(curve, device, from, to, width) {
  const last = curve.offsets[device + 1];
  let step = curve.offsets[device];
  while (step < last && curve.time[step] <= from) step++;
  let held = step > curve.offsets[device] ? curve.value[step - 1] : 0;
  const x = [from];
  const y = [held];
  const perPixel = (to - from) / width;
  const dense = last - step > 4 * width;
  while (step < last && curve.time[step] < to) {
    const until = dense ? from + (Math.floor((curve.time[step] - from) / perPixel) + 1) * perPixel : curve.time[step];
    const time = curve.time[step];
    let least = Infinity;
    let most = -Infinity;
    do {
      held = curve.value[step++];
      least = Math.min(least, held);
      most = Math.max(most, held);
    } while (step < last && curve.time[step] < until);
    if (least < most) {
      x.push(time, time);
      y.push(least, most);
    }
    x.push(time);
    y.push(held);
  }
  return { x: [...x, to], y: [...y, held] };
}

function curveLines(panel, geometry, axis, [from, to], dark) {
  const { timeline, curve } = panel;
  return Array.from({ length: timeline.devices }, (_, device) => ({
    type: 'scatter', mode: 'lines', yaxis: axis, hoverinfo: 'skip',
    ...stepLine(curve, device, Math.max(0, from), Math.min(to, timeline.makespan), (to - from) * geometry.scale),
    line: { shape: 'hv', width: 2, simplify: false, color: ramp(dark, device / Math.max(1, timeline.devices - 1)) },
  }));
}

/** Every how many devices a row can carry text. */
const textStep = row => 2 ** Math.max(0, Math.ceil(Math.log2(13 / row)));
const everyDevice = (devices, step) => Array.from({ length: Math.ceil(devices / step) }, (_, i) => i * step);

function deviceAxis(devices, row, domain, narrow) {
  const shown = everyDevice(devices, textStep(row));
  return {
    domain, range: [devices - 0.5, -0.5], anchor: 'x', fixedrange: true, showgrid: false, zeroline: false,
    tickvals: shown, ticktext: shown.map(d => narrow ? `${d} ` : `device ${d} `), ticks: '', ticklabeloverflow: 'allow',
  };
}

/** What Plotly draws for a view: traces, layout, and per panel which ops are drawn as cells. */
function figure(view, geometry, theme) {
  const colours = palette(theme.dark);
  const overscan = OVERSCAN * (view.range[1] - view.range[0]);
  const range = [Math.max(0, view.range[0] - overscan), Math.min(SPAN, view.range[1] + overscan)];
  const traces = [];
  const drawn = [];
  const layout = baseLayout(view, geometry, theme);
  const height = geometry.bottom - geometry.panels[0].top;
  const domain = (top, size) =>
    [top + size, top].map(y => clamp(1 - (y - geometry.panels[0].top) / height, 0, 1));
  let axes = 0;
  const addAxis = axis => {
    axes++;
    layout[axes > 1 ? `yaxis${axes}` : 'yaxis'] = axis;
    return axes > 1 ? `y${axes}` : 'y';
  };
  for (const panel of geometry.panels) {
    const { timeline, row } = panel;
    const choose = chooser(timeline, view);
    const sight = inSight(timeline, ...range);
    const axis = addAxis(deviceAxis(timeline.devices, row, domain(panel.top, panel.height), geometry.narrow));
    sight.vector = sight.count <= CELLS;
    panel.lane = sight.vector ? laneShare(panel) : 0;
    if (sight.vector) {
      sight.width = narrowestOf(timeline, sight.spans);
      traces.push(...cells(panel, geometry, axis, sight, choose, colours));
      if (panel.lane) traces.push(...lanes(panel, axis, range));
    } else {
      layout.images.push(cellImage(panel, geometry, axis, sight.spans, range, choose, colours));
      traces.push({ type: 'scatter', x: [null], y: [null], yaxis: axis, hoverinfo: 'skip' });
    }
    drawn.push({ panel, sight, choose });
    if (!panel.curve) continue;
    const below = domain(panel.curveTop, panel.curveHeight);
    if (timeline.devices <= LINES) {
      const curveAxis = addAxis({
        domain: below, anchor: 'x', fixedrange: true, zeroline: lowest(view.curve) < 0, zerolinecolor: theme.muted,
        gridcolor: theme.line, nticks: 5, range: [1.06 * lowest(view.curve), 1.06 * highest(view.curve)],
        ticksuffix: ' ',
      });
      traces.push(...curveLines(panel, geometry, curveAxis, range, theme.dark));
    } else {
      const curveAxis = addAxis(
        deviceAxis(timeline.devices, panel.curveHeight / timeline.devices, below, geometry.narrow));
      layout.images.push(curveImage(view, panel, geometry, curveAxis, range, theme.dark, theme.page));
      traces.push({ type: 'scatter', x: [null], y: [null], yaxis: curveAxis, hoverinfo: 'skip' });
    }
  }
  layout.xaxis.anchor = axes > 1 ? `y${axes}` : 'y';
  return { traces, layout, drawn, colours };
}

function narrowestOf({ ops }, spans) {
  let width = Infinity;
  for (const [first, last] of spans)
    for (let op = first; op < last; op++)
      if (ops.right[op] > ops.left[op]) width = Math.min(width, ops.right[op] - ops.left[op]);
  return width;
}

function baseLayout(view, geometry, theme) {
  return {
    width: geometry.width, height: geometry.height, showlegend: false, dragmode: 'pan', hovermode: false, images: [],
    margin: {
      l: geometry.left, r: geometry.right, t: geometry.panels[0].top, b: geometry.height - geometry.bottom, pad: 0,
      autoexpand: false,
    },
    paper_bgcolor: theme.page, plot_bgcolor: theme.page, font: { family: FONT, size: 12, color: theme.ink },
    xaxis: {
      range: [...view.range], showgrid: false, zeroline: false, ticks: 'outside', ticklen: 4, tickcolor: theme.muted,
      nticks: geometry.narrow ? 6 : 14, exponentformat: 'none',
      title: { text: `time (${REPORT.unit})`, font: { size: 12 }, standoff: 6 },
    },
  };
}
