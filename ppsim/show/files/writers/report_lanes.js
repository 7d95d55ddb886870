// Messages and collectives in the lane below each device's cells: boxes if they are wide enough, else a strip that is
// darker the larger the share of time with a message on its way; the tip of each, and the one under the pointer.

const LEAST_BOX = 3; // width of a typical message, in pixels, below which the lane is a strip
const MOST_BOXES = 3000;
const STRIP = 8; // width of a column of a strip, in pixels

/** Return the lane's share of a row: a band per kind, or one strip if rows are low; 0 if they are too low. */
function laneShare({ timeline, row }) {
  if (row < (view.printing ? 9 : 5)) return 0;
  return row >= 15 ? 0.1 + 0.15 * timeline.bands.length : 0.4;
}

/** Return whether an entry of the lane is out of sight. */
const outside = ({ left, right }, i, { first, last }) => right[i] < first || left[i] > last || hidden(left[i], right[i]);

/** Return whether the lane is a strip: rows are too low for bands, or messages too many or too short in this view. */
function laneStrip(panel, geometry, sight) {
  if (panel.row < 15 || !sight.vector) return true;
  const { lane } = panel.timeline;
  let [seen, width] = [0, 0];
  for (let i = 0; i < lane.left.length; i++) {
    if (outside(lane, i, geometry)) continue;
    seen++;
    width += lane.right[i] - lane.left[i];
  }
  return seen > MOST_BOXES || seen > 0 && width / seen * geometry.scale < LEAST_BOX;
}

/** Return top and bottom of a band's boxes, as shares of the row from its upper edge. */
function bandPlace(panel, place) {
  const bottom = 1 - inset(panel.row);
  const count = panel.strip && panel.row < 15 ? 1 : panel.timeline.bands.length;
  const high = (panel.lane - 1.5 / panel.row) / count; // the rest stays free above
  const from = bottom - (count - place) * high;
  return [from, from + high];
}

/** Return a function that tells whether an entry of the lane is highlighted; null if none is. */
function laneChooser({ timeline }, { highlight, critical }) {
  if (critical) return () => false;
  return highlight && (i => timeline.lane[highlight.by][i] === highlight.value);
}

/** Return messages that leave a device, and its collectives, as boxes with their microbatch if it fits. */
function lanes(panel, geometry, view, theme) {
  const { lane, bands } = panel.timeline;
  const choose = laneChooser(panel, view);
  const parts = bands.map(() => [[], []]);
  const numbers = [];
  for (let i = 0; i < lane.left.length; i++) {
    if (outside(lane, i, geometry)) continue;
    const place = bands.indexOf(lane.band[i]);
    const [top, bottom] = bandPlace(panel, place).map(share => panel.rows[lane.device[i]] + share);
    const dim = top < 0 || choose !== null && !choose(i);
    parts[place][+dim].push(rectangle(panel, geometry, lane.left[i], lane.right[i], top, bottom));
    const high = (bottom - top) * panel.row;
    const size = Math.min(10, 0.9 * high);
    const wide = (drawnAt(lane.right[i]) - drawnAt(lane.left[i])) * geometry.scale;
    const shown = String(numberIn(panel.timeline, lane.microbatch[i], lane.kind?.[i]));
    if (dim || !shown || lane.microbatch[i] < 0 || size < 7 || wide < 0.62 * size * shown.length + 3) continue;
    const x = (xOf(geometry, lane.left[i]) + xOf(geometry, lane.right[i])) / 2;
    const y = (top + bottom) / 2 * panel.row + 0.36 * size;
    numbers.push(`<text x="${px(x)}" y="${px(y)}" font-size="${px(size)}" text-anchor="middle"`
      + ` fill="${LOOKS.lane_text[bands[place]]}">${shown}</text>`);
  }
  return parts.map(([lit, dimmed], place) => {
    const look = `fill="${LOOKS.lane[bands[place]]}" stroke="${LOOKS.lane_edge}" stroke-width="0.75"`;
    return `<path d="${lit.join('')}" ${look}/><path d="${dimmed.join('')}" ${look} opacity="0.22"/>`;
  }).join('') + numbers.join('');
}

/** Return ops on all devices as one bar over all rows; a collective, which runs in parallel, is an outline. */
function barsOverRows(panel, geometry) {
  const { bars: { left, right, kind } } = panel.timeline, edge = inset(panel.row), devices = panel.devices.length;
  let drawn = '';
  left.forEach((from, i) => {
    const fill = LOOKS.kinds[kind[i]]?.fill[0];
    if (!fill && panel.strip || hidden(from, right[i])) return;
    const add = (top, low, by) => drawn += `<path d="${rectangle(panel, geometry, from, right[i], top, low)}" ${by}/>`;
    for (let d = 1; d < devices && fill; d++) add(d - edge - panel.lane, d + edge, `fill="${fill}"`);
    if (!fill) add(edge, devices - edge, `fill="none" stroke="${LOOKS.lane[2]}" stroke-width="0.6"`);
  });
  return drawn;
}

/** Return the memory of the fullest host as a line, lighter than the lines of devices. */
const hostLine = (view, panel, geometry, dark) => curveLines(view, { ...panel, curve: panel.curve.host }, geometry, dark)
  .replace(/"(1.7|3.5)"/, '"1" stroke-dasharray="2"');

/** Return the lane as a canvas: for each column and band, the share of time with a message or collective. */
function lanePixels(panel, geometry, theme, view) {
  const { lane, bands } = panel.timeline;
  const dense = Math.min(2, devicePixelRatio || 1);
  const [width, rowPixels] = [Math.round(geometry.plotWidth * dense), Math.max(1, Math.round(panel.row * dense))];
  const canvas = element('canvas', { width, height: rowPixels * panel.devices.length });
  const context = canvas.getContext('2d');
  const choose = laneChooser(panel, view);
  const single = panel.row < 15;
  const bins = Math.ceil(width / (STRIP * dense));
  const perBin = (geometry.to - geometry.from) / width * STRIP * dense;
  const track = LOOKS.bubble[+theme.dark];
  const shares = new Map();
  for (let i = 0; i < lane.left.length; i++) {
    if (outside(lane, i, geometry) || choose && !choose(i)) continue;
    const key = lane.device[i] * bands.length + (single ? 0 : bands.indexOf(lane.band[i]));
    if (!shares.has(key)) shares.set(key, new Float32Array(bins));
    addShares(shares.get(key), (drawnAt(lane.left[i]) - geometry.from) / perBin, (drawnAt(lane.right[i]) - geometry.from) / perBin);
  }
  for (const [key, share] of shares) {
    const [row, place] = [panel.rows[Math.floor(key / bands.length)], key % bands.length];
    if (row < 0) continue;
    const [top, bottom] = bandPlace(panel, place).map(at => Math.round((row + at) * rowPixels));
    const data = context.createImageData(width, Math.max(1, bottom - top));
    const words = new Uint32Array(data.data.buffer);
    const fill = LOOKS.lane[bands[single ? 0 : place]];
    for (let x = 0; x < width; x++) {
      const part = share[Math.floor(x / (STRIP * dense))];
      const word = pixel(part ? blend(fill, track, 0.2 + 0.8 * Math.min(1, part)) : track);
      for (let y = 0; y < data.height; y++) words[y * width + x] = word;
    }
    context.putImageData(data, 0, top);
  }
  return canvas;
}

/** Add to every pixel its covered part of a range. */
function addShares(share, from, to) {
  const [first, last] = [Math.max(0, from), Math.min(share.length, to)];
  for (let x = Math.floor(first); x < last; x++) share[x] += Math.min(last, x + 1) - Math.max(first, x);
}

/** Return the entry of the lane at a device and time, or -1; `high` is the pointer's place in the row, 0 top, 1 bottom. */
function messageAt(panel, device, time, high) {
  if (high < 1 - inset(panel.row) - panel.lane) return -1;
  const { lane, bands } = panel.timeline;
  const single = panel.row < 15;
  const slack = 2 / shown.scale; // time of two pixels, so that short boxes can be hit
  let [best, far] = [-1, Infinity];
  for (let i = 0; i < lane.left.length; i++) {
    if (lane.device[i] !== device) continue;
    const [top, low] = single ? [0, 1] : bandPlace(panel, bands.indexOf(lane.band[i]));
    if (high < top || high > low + 0.05) continue;
    const away = Math.max(lane.left[i] - time, time - lane.right[i], 0);
    if (away <= slack && away < far) [best, far] = [i, away];
  }
  return best;
}

const ofBytes = size => {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, size)) / 10));
  return `${number(Number((size / 1024 ** power).toPrecision(4)))} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`;
};

function tellMessage(timeline, i, x, y) {
  const { lane } = timeline;
  const [name, stage] = [['activation', 'gradient', 'parameters or gradients (FSDP)'][lane.band[i]], lane.stage[i]];
  const times = interval(lane.left[i], lane.right[i]);
  if (!timeline.links) return tip(x, y, bold(LOOKS.kinds[lane.kind[i]].name),
    `${stage < 0 ? '' : ` of stage ${stage}`} · ${microbatchName(timeline, lane.microbatch[i], lane.kind[i])}\ndevice ${lane.device[i]} · ${times}`);
  if (lane.microbatch[i] < 0)
    return tip(x, y, bold(name), `  stage ${stage} · device ${lane.device[i]} · ${times}`);
  const queued = lane.left[i] - Math.max(lane.posted[i], lane.awaited[i]);
  const waited = lane.awaited[i] - lane.posted[i];
  const facts = [`queued ${number(Math.max(0, queued))}`];
  if (waited > EPSILON) facts.push(`its receive was posted ${number(waited)} after its send`);
  if (lane.size[i]) facts.push(ofBytes(lane.size[i]));
  const route = `device ${lane.device[i]} → ${lane.target[i]} · ${times}`;
  return tip(x, y, bold(name),
    ` of stage ${stage} · ${microbatchName(timeline, lane.microbatch[i])}\n${route}\n${facts.join(' · ')}`);
}

/** Return the sentence for a view in which messages cannot be distinguished. */
function hiddenMessages(geometry) {
  const hidden = geometry.panels.filter(panel => panel.timeline.bands.length && (!panel.lane || panel.strip));
  if (!hidden.length) return '';
  const count = hidden.reduce((sum, panel) => sum + panel.timeline.lane.left.length, 0);
  const shade = hidden.some(panel => panel.lane) ? 'the strip below each device shows how busy its links are; ' : '';
  return `${number(count)} messages: ${shade}zoom in to tell them apart`;
}
