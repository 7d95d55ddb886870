// How numbers are written, by the same rules as base/numbers.py.

const escapeText = text => String(text).replace(/[&<>"]/g, sign => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[sign]);
/** A text with the typographic sign of negative numbers; zero has none. */
const minus = text => text.replace(/^-(?=.*[1-9i])/, '−').replace(/^-/, '');

/** Four digits and all before the point, commas between thousands. */
function number(value) {
  const [size, near] = [Math.abs(value), Math.abs(+value.toPrecision(4))];
  if (near !== 0 && (near < 1e-4 || size >= 1e15)) return minus(exponential(value));
  const digits = size >= 1e4 ? 0 : 20;
  return minus((size >= 1e4 ? value : +value.toPrecision(4) + 0).toLocaleString('en-US', { maximumFractionDigits: digits }));
}

/** Four digits with an exponent, as Python writes it. */
function exponential(value) {
  const [mantissa, exponent] = value.toExponential(3).split('e');
  return `${+mantissa}e${exponent.replace(/([+-])(\d)$/, '$10$2')}`;
}

const percent = (share, digits = 1) => minus(`${(100 * share + 0).toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })}%`);
const change = share => Math.abs(share) < 5e-4 ? '0.0%' : (share > 0 ? '+' : '') + percent(share);
const measured = (value, unit) => unit ? `${number(value)} ${unit}` : number(value);
