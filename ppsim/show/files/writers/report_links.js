// Use of each link and each shared network card over time: a strip of bars for each, below the rows.

const linkRow = () => view.printing ? 9 : 13; // height of a strip with the space above it, in pixels
const LINK_HEAD = 24;

/** Return a canvas with the mean use in the time of every pixel, as bars from the bottom of each strip. */
function linkPixels({ timeline }, geometry, theme) {
  const { links } = timeline;
  const dense = Math.min(2, devicePixelRatio || 1);
  const [width, high] = [Math.max(1, Math.round(geometry.plotWidth * dense)), Math.round(linkRow() * dense)];
  const [space, tall] = [Math.round(3 * dense), high - Math.round(3 * dense)];
  const canvas = element('canvas', { width, height: high * links.names.length });
  const context = canvas.getContext('2d');
  const data = context.createImageData(canvas.width, canvas.height);
  const words = new Uint32Array(data.data.buffer);
  const [full, none] = [LOOKS.lane[0], LOOKS.bubble[+theme.dark]].map(pixel);
  const edge = x => Math.min(timeAt(geometry.from + x * (geometry.to - geometry.from) / width), timeline.makespan);
  links.names.forEach((_, row) => {
    let step = stepAfter(links, row, edge(0));
    for (let x = 0; x < width; x++) {
      const [from, to] = [edge(x), edge(x + 1)];
      if (to <= from) continue;
      let [at, area] = [from, 0];
      for (; at < to; step++) {
        const until = step < links.offsets[row + 1] ? Math.min(to, links.time[step]) : to;
        area += (until - at) * heldUntil(links, row, step);
        at = until;
        if (at === to) break;
      }
      const filled = Math.ceil(tall * Math.min(1, area / (to - from)) - 1e-6);
      for (let y = 0; y < tall; y++) words[(row * high + space + y) * width + x] = y >= tall - filled ? full : none;
    }
  });
  context.putImageData(data, 0, 0);
  return canvas;
}

/** Return the heading of the strips, their names, and their use over the iteration, as SVG. */
function linkNotes({ timeline, linkTop }, geometry, theme) {
  const { links } = timeline;
  const heading = `links: share of ${links.bandwidth ? 'bandwidth' : 'time'} in use`;
  const size = view.printing ? 8 : 10;
  return text(geometry.left, linkTop - 5, 11.5, theme.muted, heading) + links.names.map((name, row) => {
    const y = linkTop + (row + 0.5) * linkRow() + 5;
    const right = geometry.left + geometry.plotWidth + 10;
    const note = geometry.narrow ? links.notes[row].split(',')[0] : `${links.notes[row].replace(',', ', most at once')}`;
    const named = geometry.narrow
      ? text(geometry.left - 4, y, 9, theme.ink, escapeText(name.replace(/card of |other /, '')), AT_ITS_END)
      : text(geometry.left - 6, y, size, theme.ink, escapeText(name), AT_ITS_END);
    return named + text(right, y, size, theme.muted, escapeText(note));
  }).join('');
}

function tellLink(timeline, row, time, x, y) {
  const { links } = timeline;
  const use = percent(heldAt(links, row, time));
  tip(x, y, bold(links.names[row]), `  ${use} in use at ${timed(time)}\n`
    + `over the iteration ${links.notes[row].replace(/, (.*)/, ', at most $1 messages at once')}`);
}

function toggleLinks() {
  view.links = !view.links;
  press('links', view.links);
  draw();
}
