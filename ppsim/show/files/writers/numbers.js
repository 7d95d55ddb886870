// Formats of numbers, by the rules of base/numbers.py.

const escapeText = text => String(text).replace(/[&<>"]/g, sign => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[sign]);
/** Return a number's text with the typographic minus; zero has no sign. */
const minus = text => text.replace(/^-(?=.*[1-9i])/, '−').replace(/^-/, '');

const FORMATS = new Map(); // by numbers of decimals, as making a format is slow

/** Return a number with commas between thousands, and from `least` to `most` decimals. */
function written(value, least, most) {
  const key = 100 * least + most;
  if (!FORMATS.has(key))
    FORMATS.set(key, new Intl.NumberFormat('en-US', { minimumFractionDigits: least, maximumFractionDigits: most }));
  return FORMATS.get(key).format(value);
}

/** Return a number with four significant digits or all of its integer part, and commas between thousands. */
function number(value) {
  const [size, near] = [Math.abs(value), Math.abs(+value.toPrecision(4))];
  if (near !== 0 && (near < 1e-4 || size >= 1e15)) return minus(exponential(value));
  return minus(size >= 1e4 ? written(value, 0, 0) : written(+value.toPrecision(4) + 0, 0, 20));
}

/** Return a number with four digits and an exponent, as Python writes it. */
function exponential(value) {
  const [mantissa, exponent] = value.toExponential(3).split('e');
  return `${+mantissa}e${exponent.replace(/([+-])(\d)$/, '$10$2')}`;
}

/** Return a number with a fixed number of decimals. */
const decimals = (value, digits) => minus(written(value + 0, digits, digits));

/** Return the numbers of a column with equal decimals: the most that any of them has, up to four digits. */
function inColumn(values) {
  const found = values.map(value => /^−?([\d,]+)\.?(\d*)$/.exec(number(value)) ?? [number(value)]);
  const most = Math.max(...found.map(([, , part]) => part?.length ?? 0));
  return found.map(([text, whole, part], i) => part === undefined || text === '0' ? text
    : decimals(values[i], Math.max(part.length, Math.min(most, 4 - whole.replace(/,|^0/g, '').length))));
}

const percent = (share, digits = 1) => `${decimals(100 * share, digits)}%`;
const change = share => Math.abs(share) < 5e-4 ? '0.0%' : (share > 0 ? '+' : '') + percent(share);
const measured = (value, unit) => unit ? `${number(value)} ${unit}` : number(value);
