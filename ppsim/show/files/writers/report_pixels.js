// Drawing of many ops: cells and curves as canvases with one column per pixel, so each op is read once.

function pixel(colour) {
  const [red, green, blue] = channels(colour);
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

/**
 * Return the colours of one device's row, one per pixel: the mean over the pixel by area. The colour with the largest
 * share would show stripes that are not in the schedule if several ops fall into a pixel. Highlighted ops outweigh others.
 */
function pixelRow(row, timeline, spans, from, perPixel, choose, colours) {
  const { left, right, colour } = timeline.ops;
  const mean = mixer(colours.bubble);
  let current = 0;
  const flush = () => {
    row[current] = mean(clamp(drawnAt(timeline.makespan) - from - current * perPixel, 0, perPixel));
    current++;
  };
  for (const [first, last] of spans) for (let op = first; op < last; op++) {
    const chosen = choose !== null && choose(op);
    const fill = (choose !== null && !chosen ? colours.dimmed : colours.fills)[colour[op]];
    let start = Math.max(0, drawnAt(left[op]) - from);
    const end = Math.min(drawnAt(right[op]) - from, row.length * perPixel);
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

/** Return a mixer of colours by area: `add` colours, then take the pixel of a given area; the rest of it is bubble. */
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

/** Return a canvas with rows painted by `paint(line, row)`; margins of each row, and its lane, stay free. */
function pixels(geometry, rows, rowHeight, gap, lane, paint) {
  const dense = Math.min(2, devicePixelRatio || 1);
  const rowPixels = Math.max(1, Math.round(rowHeight * dense));
  const edge = Math.round(gap * rowPixels);
  const foot = rowPixels - Math.round((gap + lane) * rowPixels);
  const width = Math.max(1, Math.round(geometry.plotWidth * dense));
  const canvas = element('canvas', { width, height: rowPixels * rows });
  const context = canvas.getContext('2d');
  const data = context.createImageData(canvas.width, canvas.height);
  const words = new Uint32Array(data.data.buffer);
  const line = new Uint32Array(width);
  for (let row = 0; row < rows; row++) {
    paint(line, row);
    for (let y = edge; y < foot; y++) words.set(line, (row * rowPixels + y) * width);
  }
  context.putImageData(data, 0, 0);
  return canvas;
}

function cellPixels({ timeline, devices, row, lane }, geometry, spans, choose, colours) {
  const all = {
    fills: colours.fills.map(channels), dimmed: colours.dimmed.map(channels), bubble: channels(colours.bubble),
  };
  if (colours.causes && timeline.waits) {
    timeline = mergedTimeline(timeline);
    ({ spans } = inSight(timeline, geometry, devices));
    const [{ source }, chosen] = [timeline, choose];
    if (chosen) choose = item => source[item] >= 0 && chosen(source[item]);
    const causes = LOOKS.causes.map((_, cause) => channels(causeFill(cause, colours.dark)));
    all.fills.push(...causes);
    all.dimmed.push(...causes);
  }
  const of = Array.from({ length: devices.length }, () => []);
  for (const span of spans) of[span[2]].push(span);
  return pixels(geometry, devices.length, row, inset(row), lane, (line, at) => pixelRow(
    line, timeline, of[at], geometry.from, (geometry.to - geometry.from) / line.length, choose, all,
  ));
}

function curvePixels(view, panel, geometry, theme) {
  const { timeline, curve, devices } = panel;
  const most = Math.max(highest(view.curve), -lowest(view.curve));
  const shades = Array.from({ length: 129 }, (_, i) => pixel(shade(theme.dark, theme.page, i / 64 - 1)));
  const red = pixel(LOOKS.highlight[+theme.dark]);
  const cap = device => capOf(view) ? capAt(device) * (1 + EPSILON) : Infinity;
  return pixels(geometry, devices.length, panel.curveHeight / devices.length, 0, 0, (line, row) => {
    const device = devices[row];
    const perPixel = (geometry.to - geometry.from) / line.length;
    let step = stepAfter(curve, device, geometry.first);
    const stop = curve.offsets[device + 1];
    for (let x = 0; x < line.length; x++) {
      const time = timeAt(geometry.from + (x + 0.5) * perPixel);
      while (step < stop && curve.time[step] <= time) step++;
      const held = heldUntil(curve, device, step);
      line[x] = time > timeline.makespan ? 0 : held > cap(device) ? red : shades[64 + Math.round(64 * held / most)];
    }
  });
}
