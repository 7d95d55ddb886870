// Shared by the pages of points: elements, the theme, scales and marks.

const $ = id => document.getElementById(id);
const root = document.documentElement;
const LOGARITHMIC = 8; // ratio of the largest to the smallest value from which an axis is logarithmic

/** Follow the theme of the system, or of the button; print in the light theme. */
function followTheme(setTheme) {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let chosen = false;
  $('theme').onclick = () => { chosen = true; setTheme(root.dataset.theme === 'dark' ? 'light' : 'dark'); };
  const follow = () => { if (!chosen) setTheme(dark.matches ? 'dark' : 'light'); };
  dark.addEventListener('change', follow);
  let before = null;
  addEventListener('beforeprint', () => { before = root.dataset.theme; setTheme('light'); });
  addEventListener('afterprint', () => { if (before) setTheme(before); });
  follow();
}

/** Return a scale from values to pixels, with its ticks: logarithmic if values are far apart, else from zero for memory. */
function scaleOf(values, from, to, zero) {
  const least = Math.min(...values);
  const most = Math.max(...values);
  const log = least > 0 && most / least > LOGARITHMIC;
  const low = log ? least / 1.25 : zero ? 0 : least - 0.08 * (most - least || Math.abs(least) || 1);
  const high = log ? most * 1.25 : most + 0.1 * (most - low || 1);
  const place = log ? v => Math.log(v / low) / Math.log(high / low) : v => (v - low) / (high - low);
  return { at: v => from + place(v) * (to - from), ticks: log ? decades(low, high) : steps(low, high) };
}

function steps(low, high) {
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-9 * step; tick += step) ticks.push(tick);
  return ticks;
}

function decades(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const factor of [1, 2, 5]) ticks.push(factor * 10 ** power);
  return ticks.filter(tick => tick >= low && tick <= high);
}

/** Return the outline of a mark by the number of its shape. */
function markOf(shape, x, y, r) {
  const polygon = corners => `M${corners.map(([dx, dy]) => `${(x + r * dx).toFixed(1)} ${(y + r * dy).toFixed(1)}`).join('L')}Z`;
  if (shape === 1) return polygon([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
  if (shape === 2) return polygon([[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]);
  if (shape === 3) return polygon([[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]]);
  if (shape === 4) return polygon([[0, 1.2], [1.1, -0.8], [-1.1, -0.8]]);
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
}
