// Folding: a repeating middle is drawn once, and a gap replaces its other repetitions.

let folded = null; // { from, until, gap }: the range of time that is left out, and the width of its gap

/** Return the place of a time in the folded chart, in units of time; `timeAt` is the inverse. */
const drawnAt = time => !folded || time <= folded.from ? time
  : Math.max(folded.from, time - folded.until + folded.from + folded.gap);
const timeAt = place => !folded || place <= folded.from ? place
  : Math.max(folded.until, place - folded.from - folded.gap + folded.until);
/** Return the length of the folded chart, in units of time. */
const length = () => drawnAt(SPAN);
/** Return whether a range of time is left out completely. */
const hidden = (from, until) =>
  folded !== null && from >= folded.from - 1e-9 * SPAN && until <= folded.until + 1e-9 * SPAN;

/** Return whether a part of a range of time is left out. */
const cutByFold = (from, until) =>
  folded !== null && from < folded.until - 1e-9 * SPAN && until > folded.from + 1e-9 * SPAN;

/** Return the drawn parts of a range of time. */
function stretches(from, to) {
  const parts = folded ? [[from, Math.min(to, folded.from)], [Math.max(from, folded.until), to]] : [[from, to]];
  return parts.filter(([first, last]) => first < last);
}

/** Fold or unfold the middle, and show the whole chart. */
function toggleFold(on = !folded) {
  const [{ fold }] = TIMELINES;
  folded = on && fold ? { from: fold.until, until: fold.until + (fold.repeats - 1) * fold.period, gap: fold.period / 2 } : null;
  press('fold', folded !== null);
  view.range = [0, length() * 1.005];
  hideTip();
  draw();
  sayPicked();
}

const sayFold = ({ fold }) => say(`Steady from ${number(fold.from)} on: ${number(fold.period)} that run ${fold.repeats} times`
  + `; ${interval(folded.from, folded.until)} is folded away`);

/** Return the gap with dots in every row, and a bracket above the drawn repetition with the number of all, as SVG. */
function foldMarks({ timeline, devices, top, height, row, linkTop, curve, curveTop, curveHeight }, geometry, theme) {
  if (!folded) return '';
  const { from, until, repeats } = timeline.fold;
  const at = time => geometry.left + inPlot(geometry, time);
  const [left, right, end] = [from, until, folded.until].map(at);
  const blank = (y, high) => `<rect x="${right}" y="${y}" width="${end - right}" height="${high}" fill="${theme.page}"/>`;
  const dots = end - right < 8 ? [] : everyDevice(devices.length, textStep(row)).map(at =>
    text((right + end) / 2, top + (at + 0.5) * row + 3, 12, theme.ink, '…', CENTRED));
  const bracket = right > left ? `<path d="M${px(left)} ${top - 1}v-3H${px(right)}v3" fill="none" stroke="${theme.ink}"/>`
    + text((left + right) / 2, top - 8, 12, theme.ink, `× ${repeats}`, CENTRED) : '';
  return blank(top - 2, height + 4) + (curve ? blank(curveTop - 2, curveHeight + 4) : '')
    + (linkTop ? blank(linkTop, timeline.links.names.length * linkRow()) : '') + dots.join('') + bracket;
}
