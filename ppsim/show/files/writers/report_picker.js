// A page of many runs shows two of them, which the reader chooses, and where their times differ.

let allRuns = null; // all runs of the page; the page shows copies of two of them
let chosenRuns = [0, 1];

/** Return a difference with its sign, with as many decimals as the makespan has. */
function signed(value) {
  const text = decimals(value, clamp(4 - Math.floor(Math.log10(SPAN)), 0, 12));
  return value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}

/** Show two runs, given by their places in all runs, and their differences. */
async function pickRuns(first, second) {
  if (allRuns) align(0);
  else allRuns = TIMELINES;
  chosenRuns = [first, second];
  const pair = chosenRuns.map(place => allRuns[place]);
  await Promise.all(pair.map(unpack));
  const before = pair[1].makespan;
  TIMELINES = pair.map(run => ({ ...run, baseline: 1, versus_baseline: run.makespan / before - 1, waits: run.waits && { ...run.waits } }));
  SPAN = Math.max(...TIMELINES.map(run => run.makespan)) || 1;
  const { picker } = REPORT.story;
  REPORT.story = { picker, ...differences(picker, TIMELINES, chosenRuns.map(place => picker.rows[place])) };
  await showReport();
  say(TIMELINES.map(run => run.title).join(' above '));
}

/** Return the differences of the second run from the first, by cause and by device, and the ops that are in both. */
function differences({ terms, meanings }, [a, b], [first, second]) {
  const mean = (rows, term) => rows.reduce((sum, row) => sum + row[term], 0) / rows.length;
  const parts = terms.map((name, term) => ({ name, term, by: mean(second, term) - mean(first, term) }))
    .filter(({ term }) => [...first, ...second].some(row => row[term]));
  const whole = b.makespan - a.makespan;
  const bars = [...parts, { name: 'makespan', by: whole }].map(({ name, by }) => ({ name, meaning: meanings[name] ?? '', from: 0, to: by, text: signed(by) }));
  const rows = first.length === second.length ? first.map((row, device) => {
    const values = parts.map(({ term }) => second[device][term] - row[term]);
    return { device, values, texts: values.map(value => value ? signed(value) : '') };
  }) : [];
  const most = [...parts].sort((p, q) => Math.abs(q.by) - Math.abs(p.by)).slice(0, 2);
  const lead = `${b.title} takes ${timed(b.makespan)}, ${signed(whole)} ${REPORT.unit} against ${a.title}: most in ${most.map(({ name, by }) => `${name} ${signed(by)}`).join(', ')}`;
  return {
    lead, bars, ghosts: [], heading: `${b.title} − ${a.title}, ${REPORT.unit} of a device on average`, twins: twinsOf(a, b),
    matrix: { heading: `${b.title} − ${a.title} by device, ${REPORT.unit}`, columns: parts.map(({ name }) => name), rows },
  };
}

/** Return the ops of equal kind, stage and microbatch: their places in the first run, and in the second. */
function twinsOf(a, b) {
  if (a.stages !== b.stages) return [[], []];
  const key = ({ ops }, op) => `${ops.kind[op]},${ops.stage[op]},${ops.microbatch[op]}`;
  const places = new Map(Array.from(b.ops.kind, (_, op) => [key(b, op), op]));
  const found = Array.from(a.ops.kind, (_, op) => [op, places.get(key(a, op))]).filter(([, twin]) => twin !== undefined);
  return [0, 1].map(side => found.map(pair => pair[side]));
}

/** Return the table of prediction errors, which chooses a run and its prediction, and lists to choose any two runs. */
function pickerOf({ picker }) {
  const choice = (label, place) => {
    const select = element('select', {}, ...allRuns.map(({ title }, at) => new Option(title, at)));
    select.value = chosenRuns[place];
    select.onchange = () => pickRuns(...chosenRuns.map((at, i) => i === place ? +select.value : at));
    return element('label', {}, `${label} `, select);
  };
  const rows = picker.errors.map(({ name, texts }, run) => {
    const button = element('button', { type: 'button', textContent: name, 'aria-pressed': chosenRuns[0] === 2 * run && chosenRuns[1] === 2 * run + 1 });
    button.onclick = () => pickRuns(2 * run, 2 * run + 1);
    return element('tr', {}, element('th', { scope: 'row' }, button), ...texts.map(text => element('td', { textContent: text })));
  });
  const head = ['run', ...picker.levels].map(name => element('th', { scope: 'col', textContent: name }));
  const meanings = Object.entries(picker.said).map(([level, meaning]) => element('div', {}, element('b', { textContent: `${level}: ` }), meaning));
  return part('Runs: the error of each prediction',
    element('p', { className: 'muted', textContent: '(predicted − measured) / measured, for the median makespan; the charts show the repetition closest to it. Each column uses more of the measured times:' }),
    sliding('Runs', '', element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...rows)),
    element('span', { className: 'tools' }, choice('above', 0), choice('below', 1)),
    element('div', { className: 'muted' }, ...meanings));
}
