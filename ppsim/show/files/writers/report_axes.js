// Axes: ticks of time below the chart, devices left of their rows, values left of a curve's lines.

/** Return n such that every n-th row has room for text. */
const textStep = row => 2 ** Math.max(0, Math.ceil(Math.log2(13 / row)));
const everyDevice = (devices, step) => Array.from({ length: Math.ceil(devices / step) }, (_, i) => i * step);

const CENTRED = 'text-anchor="middle"';
const AT_ITS_END = 'text-anchor="end"';

const text = (x, y, size, colour, content, more = '') =>
  `<text x="${px(x)}" y="${px(y)}" font-size="${size}" fill="${colour}" ${more}>${content}</text>`;

/** Return an edge in the page's colour around a text, so that no line crosses the text. */
const halo = ({ page }) => ` stroke="${page}" stroke-width="4" paint-order="stroke"`;

const DIGIT = 7.2; // mean width of a digit of an axis, in pixels

/** Return the width of the widest of some labels of an axis, in pixels. */
const widest = found => DIGIT * Math.max(0, ...found.map(([, label]) => label.length));

/**
 * Return at most `most` round values between two numbers, each with its label: multiples of 1, 2 or 5 times a power of
 * ten. Very large and very small ones have an exponent.
 */
function ticks(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * (1 - EPSILON));
  const digits = clamp(-Math.floor(Math.log10(step) + EPSILON), 0, 12);
  const first = Math.ceil(from / step - EPSILON);
  const count = Math.max(0, Math.floor(to / step + EPSILON) - first + 1);
  const size = Math.max(Math.abs(from), Math.abs(to));
  return Array.from({ length: count }, (_, i) => {
    const value = (first + i) * step;
    return [value, size < 1e-4 || size >= 1e15 ? number(value) : decimals(value, digits)];
  });
}

function timeAxis(geometry, theme) {
  const { left, plotWidth, bottom, from, to, narrow, scale } = geometry;
  const atMost = most => stretches(timeAt(from), timeAt(to)).flatMap(([first, last]) =>
    ticks(first, last, Math.max(1, Math.round(most * (last - first) * scale / plotWidth))));
  let found = atMost(narrow ? 5 : 14);
  const room = Math.floor(plotWidth / (widest(found) + 8)); // labels that fit side by side
  if (found.length > room) found = atMost(room - 1);
  const places = found.map(([value]) => left + xOf(geometry, value));
  const labels = found.map(([, label], i) => text(places[i], bottom + 18, 12, theme.ink, label, CENTRED));
  return `<path d="${places.map(x => `M${px(x)} ${bottom}v4`).join('')}" stroke="${theme.muted}"/>`
    + labels.join('')
    + text(left + plotWidth / 2, bottom + 37, 12, theme.ink, `time (${escapeText(REPORT.unit)})`, CENTRED);
}

function deviceAxis(devices, top, row, { left, narrow }, theme, lane = 0) {
  return everyDevice(devices.length, textStep(row)).map(at => text(
    left - 6, top + (at + (1 - lane) / 2) * row + 4.3, 12, theme.ink, narrow ? devices[at] : `device ${devices[at]}`,
    AT_ITS_END + (view.pinned.includes(devices[at]) ? ' font-weight="600"' : ''),
  )).join('');
}

const LETTER = 6; // mean width of a letter of a cap's label, in pixels

/** Return dashed lines across the curves with their sizes as SVG, one for each different cap. */
function capLine(view, panel, geometry, theme) {
  const cap = capOf(view);
  if (!cap) return '';
  const { timeline, curve } = panel;
  const { y } = curveScale(view, panel);
  const colour = LOOKS.highlight[+theme.dark];
  const over = timeline.edited ? overCap(timeline) : cap.over[TIMELINES.indexOf(timeline)];
  const red = curve.parts ? '' : overLines(view, panel, geometry, theme.dark, over, colour);
  const shown = curve.parts ? [curve.device] : [...curve.peak.keys()];
  const sizes = cap.values ? [...new Set(shown.map(capAt))] : [cap.value];
  const plural = devices => `device${devices.length > 1 ? 's' : ''} ${devices.join(', ')}`;
  return red + sizes.map(size => {
    const at = y(size);
    const own = shown.filter(device => capAt(device) === size);
    const passed = over.filter(device => capAt(device) === size);
    const name = cap.values ? `cap ${cap.texts[own[0]]} of ${plural(own)}` : cap.text;
    const whole = passed.length ? `${name}, passed by ${cap.values ? passed.join(', ') : plural(passed)}` : name;
    const label = whole.length * LETTER > geometry.plotWidth ? name : whole;
    const line = cap.values && own.length === 1 && !curve.parts
      ? lineColour(timeline, theme.dark, own[0]) : colour;
    return `<path class="cap" d="M0 ${px(at)}h${geometry.plotWidth}" stroke="${line}" stroke-width="1.5"`
      + ` stroke-dasharray="6 4"/>`
      + text(geometry.plotWidth - 4, at < 14 ? at + 12 : at - 4, 11, colour, escapeText(label), AT_ITS_END + halo(theme));
  }).join('');
}

/** Return the values left of a curve. */
const valueTicks = view => ticks(...curveRange(view), 5);

function curveAxis(view, panel, geometry, theme) {
  const { low, y } = curveScale(view, panel);
  const { left, plotWidth } = geometry;
  return valueTicks(view).map(([value, label]) => {
    const at = panel.curveTop + y(value);
    const colour = value === 0 && low < 0 ? theme.muted : theme.line;
    return `<path d="M${left} ${px(at)}h${plotWidth}" stroke="${colour}"/>`
      + text(left - 6, at + 4.3, 12, theme.ink, label, AT_ITS_END);
  }).join('');
}
