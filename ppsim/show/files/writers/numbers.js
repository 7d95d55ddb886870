// How numbers are written, by the same rules as base/numbers.py.

const escapeText = text => String(text).replace(/[&<>"]/g, sign => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[sign]);
/** A text with the typographic sign of negative numbers; zero has none. */
const minus = text => text.replace(/^-(?=.*[1-9i])/, '−').replace(/^-/, '');

const FORMATS = new Map(); // of numbers with so many digits after the point, as making one takes long

/** A number with commas between thousands, and with so many digits after the point at least and at most. */
function written(value, least, most) {
  const key = 100 * least + most;
  if (!FORMATS.has(key))
    FORMATS.set(key, new Intl.NumberFormat('en-US', { minimumFractionDigits: least, maximumFractionDigits: most }));
  return FORMATS.get(key).format(value);
}

/** Four digits and all before the point, commas between thousands. */
function number(value) {
  const [size, near] = [Math.abs(value), Math.abs(+value.toPrecision(4))];
  if (near !== 0 && (near < 1e-4 || size >= 1e15)) return minus(exponential(value));
  return minus(size >= 1e4 ? written(value, 0, 0) : written(+value.toPrecision(4) + 0, 0, 20));
}

/** Four digits with an exponent, as Python writes it. */
function exponential(value) {
  const [mantissa, exponent] = value.toExponential(3).split('e');
  return `${+mantissa}e${exponent.replace(/([+-])(\d)$/, '$10$2')}`;
}

/** So many digits after the point. */
const decimals = (value, digits) => minus(written(value + 0, digits, digits));

/** The numbers of a column: as many digits after the point as the one that has most, where four digits have room. */
function inColumn(values) {
  const found = values.map(value => /^−?([\d,]+)\.?(\d*)$/.exec(number(value)) ?? [number(value)]);
  const most = Math.max(...found.map(([, , part]) => part?.length ?? 0));
  return found.map(([text, whole, part], i) => part === undefined || text === '0' ? text
    : decimals(values[i], Math.max(part.length, Math.min(most, 4 - whole.replace(/,|^0/g, '').length))));
}

const percent = (share, digits = 1) => `${decimals(100 * share, digits)}%`;
const change = share => Math.abs(share) < 5e-4 ? '0.0%' : (share > 0 ? '+' : '') + percent(share);
const measured = (value, unit) => unit ? `${number(value)} ${unit}` : number(value);
