// Segments of ops: if cells are wide enough, the segments of each op and pair are drawn on two streams, compute above
// communication, in the colour of their op.

const LEAST_INSIDE = 48; // width of the narrowest op in sight, in pixels, from which segments are drawn
const INSIDE_TOP = 0.46; // share of a row's height above the segments

/** Return whether rows and ops are large enough for segments. */
function isOpen(panel, geometry, sight) {
  return panel.row >= 22 && narrowestOf(panel.timeline, sight.spans) * geometry.scale >= LEAST_INSIDE;
}

/** Return the segments of the ops in sight as SVG, on one track per stream, with names that fit. */
function insides(panel, geometry, { spans }, theme) {
  const { ops, inside } = panel.timeline;
  const bottom = 1 - inset(panel.row) - panel.lane;
  const high = (bottom - INSIDE_TOP) / 2;
  const size = Math.min(9, 0.85 * high * panel.row);
  const parts = new Map([[LOOKS.bubble[+theme.dark], []]]);
  const [track] = parts.values();
  const names = [];
  spans.forEach(([first, last, row]) => {
    for (let op = first; op < last; op++) {
      const shape = inside.shapes[inside.of[op]];
      if (!shape) continue;
      const [from, length] = [ops.start[op], ops.end[op] - ops.start[op]];
      track.push(rectangle(panel, geometry, from, from + length, row + INSIDE_TOP, row + bottom));
      shape.start.forEach((start, i) => {
        const top = row + INSIDE_TOP + shape.stream[i] * high;
        const [left, right] = [from + start * length, from + shape.end[i] * length];
        const fill = LOOKS.kinds[shape.kind[i]].fill[0];
        if (!parts.has(fill)) parts.set(fill, []);
        parts.get(fill).push(rectangle(panel, geometry, left, right, top + 0.02, top + high));
        const wide = (drawnAt(right) - drawnAt(left)) * geometry.scale;
        if (hidden(left, right) || size < 6 || wide < 0.62 * size * shape.name[i].length + 3) return;
        const x = px(xOf(geometry, (left + right) / 2));
        const y = px((top + high / 2) * panel.row + 0.36 * size);
        names.push(`<text x="${x}" y="${y}" fill="${LOOKS.kinds[shape.kind[i]].text[0]}">${escapeText(shape.name[i])}</text>`);
      });
    }
  });
  const paths = [...parts].map(([fill, path], i) =>
    `<path d="${path.join('')}" fill="${fill}"${i ? ` stroke="${theme.ink}" stroke-width="0.5" stroke-opacity="0.6"` : ''}/>`);
  return `${paths.join('')}<g font-size="${px(size)}" text-anchor="middle">${names.join('')}</g>`;
}
