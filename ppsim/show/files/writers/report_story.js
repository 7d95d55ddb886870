// The explanation below the chart: bars from the work to the makespan, causes by device, the critical path as steps, and
// what-if changes, whose outlines can be drawn over the chart. For two runs it joins the ops that are in both.

const MOST_OUTLINES = 3000; // outlines of ops drawn at once
let twins = []; // for each of two runs: its ops that are in both, and the same op of the other run
let joinedTwins = null; // the panel, the op and its twin that a line joins
let laterBy = 0; // time by which the second timeline is drawn later

async function showStory() {
  const { story } = REPORT;
  if (story.picker && !story.bars) return pickRuns(0, 1);
  for (const ghost of story.ghosts) await columns(ghost, 'start', 'end');
  if (story.twins) {
    const sides = await Promise.all(story.twins.map(column));
    twins = sides.map((side, i) => new Map(Array.from(side, (op, at) => [op, sides[1 - i][at]])));
  }
  view.story = { ghosts: story.ghosts, ghost: -1, lit: null, outlines: false };
  $('lead').textContent = story.lead;
  $('lead').hidden = Boolean(REPORT.verdict) && !story.picker; // the verdict says the same
  $('story').hidden = false;
  const parts = story.picker ? [pickerOf(story)] : [];
  parts.push(barsOf(story), matrixOf(story));
  if (story.path) parts.push(pathOf(story));
  if (story.changes?.length) parts.push(changesOf(story));
  if (story.twins) parts.push(aligned());
  return $('story').replaceChildren(...parts);
}

const part = (heading, ...content) => element('div', { className: 'part' }, element('h2', { textContent: heading }), ...content);
const causeOf = name => LOOKS.causes.findIndex(cause => cause.name === name);

/** Return a table of bars on one scale: a waterfall, or differences on both sides of zero. */
function barsOf({ bars, heading }) {
  const values = bars.flatMap(({ from, to }) => [from, to]);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const at = value => 100 * (value - low) / (high - low || 1);
  const rows = bars.map(({ name, meaning, from, to, text }) => {
    const fill = element('span', { className: 'fill' });
    const cause = LOOKS.causes[causeOf(name)];
    for (const [at, theme] of ['light', 'dark'].entries()) if (cause) fill.style.setProperty(`--${theme}`, cause.fill[at]);
    Object.assign(fill.style, { left: `${at(Math.min(from, to))}%`, width: `${Math.max(0.3, Math.abs(at(to) - at(from)))}%` });
    const zero = element('span', { className: 'zero' });
    zero.style.left = `${at(0)}%`;
    return element('tr', {}, element('th', { scope: 'row', textContent: name, title: meaning }),
      element('td', { className: 'track' }, element('div', {}, zero, fill)), element('td', { textContent: text }),
      element('td', { className: 'meaning', textContent: meaning }));
  });
  return part(heading, sliding(heading, 'bars', element('tbody', {}, ...rows)));
}

/** Return the table of idle time by device and cause; pointing at a cell outlines its gaps in the chart. */
function matrixOf({ matrix }) {
  const { heading, columns: names, rows } = matrix;
  const most = Math.max(...rows.flatMap(({ values }) => values.map(Math.abs)), EPSILON);
  const body = rows.map(({ device, values, texts }) => element('tr', {}, element('th', { scope: 'row', textContent: `device ${device}` }),
    ...values.map((value, i) => {
      const cell = element('td', { textContent: texts[i], tabIndex: value ? 0 : -1 });
      cell.style.setProperty('--share', `${Math.round(55 * Math.abs(value) / most)}%`);
      cell.className = value < 0 ? 'less' : 'more';
      const light = on => () => { view.story.lit = on && causeOf(names[i]) >= 0 ? { device, cause: causeOf(names[i]) } : null; drawSoon(); };
      Object.assign(cell, { onpointerenter: light(true), onfocus: light(true), onpointerleave: light(false), onblur: light(false) });
      return cell;
    })));
  const head = names.map(name => element('th', { scope: 'col', textContent: name }));
  return part(heading, sliding(heading, 'matrix', element('thead', {}, element('tr', {}, element('td'), ...head)), element('tbody', {}, ...body)));
}

/** Return the critical path as a list of steps; a click shows a step in the chart. */
function pathOf({ path }) {
  const steps = path.steps.map(({ text, from, to }) => {
    const button = element('button', { type: 'button', textContent: text, title: `${number(from)} to ${number(to)}` });
    button.onclick = () => {
      pick(null, true);
      const around = Math.max(to - from, 0.02 * SPAN);
      show(from - around / 2, to + around / 2);
    };
    return element('li', {}, button);
  });
  return part(path.heading, element('ol', { className: 'steps' }, ...steps));
}

/** Return the simulated changes; a button draws the outlines of the changed timeline over the chart. */
function changesOf({ changes, ghosts, notes }) {
  const rows = changes.map(({ text, makespan, change: share }, i) => {
    const button = element('button', { type: 'button', textContent: text, 'aria-pressed': 'false', disabled: !ghosts[i] });
    button.onclick = () => {
      view.story.ghost = view.story.ghost === i ? view.story.pinned ?? -1 : i;
      for (const [other, each] of document.querySelectorAll('.changes button').entries())
        each.setAttribute('aria-pressed', view.story.ghost === other);
      SPAN = Math.max(...TIMELINES.map(t => t.makespan), view.story.ghosts[view.story.ghost]?.makespan ?? 0);
      fit();
    };
    return element('li', {}, button, element('span', { textContent: `${makespan} · ${share}` }));
  });
  const said = notes.map(text => element('p', { className: 'muted', textContent: text }));
  return part('What if: draw a change over the chart', element('ul', { className: 'changes' }, ...rows), ...said);
}

/** Return the controls of two runs: the time at which they are aligned, and outlines of the first over the second. */
function aligned() {
  const select = element('select', { 'aria-label': 'Align the runs at' }, new Option('start', 0), new Option('first backward', 1), new Option('end', 2));
  const outlines = element('button', { type: 'button', textContent: 'outlines of A on B', 'aria-pressed': 'false' });
  select.onchange = () => { align(+select.value); say(laterBy ? `B is drawn ${timed(Math.abs(laterBy))} ${laterBy > 0 ? 'later' : 'earlier'}` : ''); };
  outlines.onclick = () => {
    view.story.outlines = !view.story.outlines;
    outlines.setAttribute('aria-pressed', view.story.outlines);
    drawSoon();
  };
  return part('The two charts', element('p', { className: 'muted', textContent: 'Point at an op: a line joins it with the same op of the other run. Click an op: B shows the outlines of its microbatch in A.' }),
    element('span', { className: 'tools' }, element('label', {}, 'align at ', select), outlines));
}

const firstBackward = ({ ops }) => ops.start.reduce((least, time, op) => 'BI'.includes(LOOKS.kinds[ops.kind[op]].letter) ? Math.min(least, time) : least, Infinity);

/** Shift the second run so that both start, run their first backward, or end at the same time. */
function align(at) {
  const [first, second] = TIMELINES;
  const place = [() => 0, firstBackward, ({ makespan }) => makespan][at];
  const by = place(first) - (at === 1 ? place(second) - laterBy : place(second)) - laterBy;
  if (!Number.isFinite(by)) return;
  laterBy += by;
  const { ops, waits, lane, links, curves } = second;
  const times = [ops.start, ops.end, ops.left, ops.right, waits?.left, waits?.right, lane?.left, lane?.right, lane?.sent, lane?.arrived, links?.time];
  for (const values of [...times, ...curves.map(curve => curve.time)].filter(Boolean)) for (let i = 0; i < values.length; i++) values[i] += by;
  second.merged = null;
  drawSoon();
}

/** Return outlines of another timeline's ops in the rows of a panel as SVG: all, or those for which `keep` is true. */
function outlinesOf(panel, geometry, { offsets, start, end }, theme, keep = () => true) {
  const parts = [];
  for (const [row, device] of panel.devices.entries())
    for (let op = firstAbove(end, geometry.first, offsets[device], offsets[device + 1] ?? 0); op < offsets[device + 1] && start[op] < geometry.last; op++) {
      if (end[op] > start[op] && keep(op)) parts.push(rectangle(panel, geometry, start[op], end[op], row + inset(panel.row), row + 1 - inset(panel.row) - panel.lane));
      if (parts.length > MOST_OUTLINES) return '';
    }
  return stroked(parts, theme.page, 2.5) + stroked(parts, theme.ink, '1.1" stroke-dasharray="4 2');
}

/** Return the marks of the explanation in a panel as SVG: outlines of a change, of the first run, and of chosen gaps. */
function storyMarks(panel, geometry, theme, index) {
  const { ghosts, ghost, lit, outlines } = view.story;
  const found = [];
  const lights = index === (twins.length ? 1 : 0);
  const picked = view.highlight;
  if (twins.length && index === 1 && (outlines || picked)) {
    const first = TIMELINES[0].ops;
    const keep = outlines ? undefined : op => first[picked.by][op] === picked.value;
    found.push(outlinesOf(panel, geometry, { offsets: TIMELINES[0].offsets, ...first }, theme, keep));
  }
  if (ghost >= 0 && index === 0) {
    const other = ghosts[ghost];
    const x = px(xOf(geometry, other.makespan));
    found.push(outlinesOf(panel, geometry, other, theme), stroked([`M${x} 0v${panel.height}`], theme.ink, 1.5));
  }
  if (lit && panel.timeline.waits && lights) {
    const parts = [];
    eachSegment(panel.timeline.waits, lit.device, geometry.first, geometry.last, i => {
      const { left, right, cause } = panel.timeline.waits;
      if (cause[i] === lit.cause) parts.push(rectangle(panel, geometry, left[i], right[i], panel.rows[lit.device] + 0.04, panel.rows[lit.device] + 0.96));
    });
    found.push(stroked(parts, LOOKS.highlight[+theme.dark], 2.5));
  }
  return found.join('');
}

/** Return the tip's text on the same op in the other run, and draw a line that joins the two. */
function tellTwin(timeline, op) {
  const index = TIMELINES.indexOf(timeline);
  const twin = twins[index]?.get(op);
  joinTwins(twin === undefined ? null : { index, op, twin });
  if (twin === undefined) return '';
  const [own, other] = [timeline.ops, TIMELINES[1 - index].ops];
  const later = own.start[op] - other.start[twin];
  const longer = own.end[op] - own.start[op] - (other.end[twin] - other.start[twin]);
  const than = word => ` than in ${'AB'[1 - index]}${word}`;
  const begins = Math.abs(later) < EPSILON * SPAN ? 'starts at the same time as in the other run' : `starts ${number(Math.abs(later))} ${later > 0 ? 'later' : 'earlier'}${than('')}`;
  return `\n${begins}${Math.abs(longer) < EPSILON * SPAN ? '' : `, takes ${number(Math.abs(longer))} ${longer > 0 ? 'longer' : 'less'}`}`;
}

/** Draw the line between an op and its twin; null removes it. */
function joinTwins(pair) {
  joinedTwins = pair;
  $('twin')?.remove();
  if (!pair || !shown || shown.panels[1 - pair.index].rows[TIMELINES[1 - pair.index].ops.device[pair.twin]] < 0) return;
  const end = (index, op) => {
    const { timeline, top, row, rows } = shown.panels[index];
    const x = shown.left + inPlot(shown, (timeline.ops.start[op] + timeline.ops.end[op]) / 2);
    return [x, top + (rows[timeline.ops.device[op]] + 0.5) * row].map(px);
  };
  const [a, b] = [end(pair.index, pair.op), end(1 - pair.index, pair.twin)];
  $('marks').insertAdjacentHTML('beforeend', `<path id="twin" d="M${a}L${b}" stroke="${LOOKS.highlight[+isDark()]}" stroke-width="2.5"/>`);
}
