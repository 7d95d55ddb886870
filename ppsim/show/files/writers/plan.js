// The plan explorer: the outcomes of all candidates, the simulated ones as points, the best as rows, one in detail.

const DATA = JSON.parse($('ppsim-data').textContent);
const EDGE = { left: 54, right: 14, top: 12, bottom: 42 };
const { sizes: SIZES, terms: TERMS, parts: PARTS } = DATA;
const NEAR = 1.3; // times the fastest step, above which plans are only drawn after a press of "all"
const hidden = new Set(); // schedules that the reader has switched off
let plans = []; // all simulated plans
let chosen = 0;
let dark = 0;
let all = false;

function unzip(packed) {
  const bytes = Uint8Array.from(atob(packed), sign => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')));
}

/** Return columns as one object per plan. */
const rowsOf = columns => columns.step_s.map((_, row) => Object.fromEntries(
  Object.entries(columns).map(([key, values]) => [key, values[row]])));

const cap = () => +$('cap').value;
const fits = plan => plan.memory <= cap() + 1e-9;
const family = plan => plan.schedule || 'no pipeline';
const shown = () => plans.filter(plan => !hidden.has(family(plan)));
const gib = value => `${number(value)} GiB`;
const fill = pair => pair[dark];

const nameOf = plan => [...SIZES.filter(key => plan[key] > 1).map(key => `${key} ${plan[key]}`), plan.schedule]
  .filter(Boolean).join(' × ') || 'one GPU';
const moreOf = plan => [`microbatches of ${plan.mbs}`, plan.layout && `${plan.layout} layout`,
  plan.zero !== 1 && `ZeRO-${plan.zero}`, plan.offload > 0 && `${percent(plan.offload, 0)} of activations offloaded`,
  plan.recompute !== 'none' && `${plan.recompute} recompute${plan.layers > 0 ? ` of ${plan.layers} layers a stage` : ''}`, plan.placed]
  .filter(Boolean).join(', ');

/** Return the Pareto front of step time and memory, fastest first. */
function frontOf(points) {
  let least = Infinity;
  return [...points].sort((a, b) => a.step_s - b.step_s || a.memory - b.memory).filter(({ memory }) => memory < least && (least = memory, true));
}

/** Return a bar of parts as HTML, each as wide as its share of `whole`, with a mark at the cap `at`. */
function bar(plan, entries, whole, at = null) {
  const parts = entries.map(({ key, colour }) => `<div style="width:${(100 * plan[key] / whole).toFixed(2)}%;background:${fill(colour)}"></div>`);
  const mark = at === null ? '' : `<div class="cap" style="left:calc(${Math.min(100, 100 * at / whole).toFixed(2)}% - 2px)"></div>`;
  return `<div class="bar" aria-hidden="true">${parts.join('')}${mark}</div>`;
}

const swatch = colour => `<span class="swatch" style="background:${colour}"></span>`;
const entryOf = (text, colour) => `<li>${swatch(fill(colour))}<span>${escapeText(text)}</span></li>`;
const listOf = (plan, entries, unit) => '<ul>'
  + entries.filter(({ key }) => plan[key] > 0).map(({ key, name, colour }) => entryOf(`${name} ${number(plan[key])} ${unit}`, colour)).join('') + '</ul>';

function showFunnel() {
  const some = DATA.outcomes.filter(({ count }) => count);
  $('funnel').innerHTML = some.map(({ count, colour }) => `<div style="flex:${count} 1 0;background:${fill(colour)}"></div>`).join('');
  $('outcomes').innerHTML = some.map(({ count, name, colour }, place) => `<li><button type="button" aria-pressed="false" data-place="${place}">`
    + `${swatch(fill(colour))}${number(count)} ${escapeText(name)}</button></li>`).join('');
  for (const button of $('outcomes').querySelectorAll('button'))
    button.onclick = () => {
      for (const other of $('outcomes').querySelectorAll('button')) other.setAttribute('aria-pressed', other === button);
      $('why').textContent = some[+button.dataset.place].meaning;
    };
}

function draw() {
  const points = shown();
  const wide = Math.max(300, Math.min(1100, $('chart').clientWidth));
  const tall = Math.round(Math.max(300, Math.min(560, 0.6 * wide)));
  const near = plans.filter(plan => all || plan.step_s <= NEAR * plans[0].step_s);
  const x = scaleOf(near.map(p => p.step_s), EDGE.left, wide - EDGE.right, false);
  const y = scaleOf([...near.map(p => p.memory), DATA.cap], tall - EDGE.bottom, EDGE.top, false);
  const parts = [];
  for (const tick of x.ticks)
    parts.push(`<line class="grid" x1="${x.at(tick)}" x2="${x.at(tick)}" y1="${EDGE.top}" y2="${tall - EDGE.bottom}"/>`
      + `<text class="muted" text-anchor="middle" x="${x.at(tick)}" y="${tall - EDGE.bottom + 17}">${number(tick)}</text>`);
  for (const tick of y.ticks)
    parts.push(`<line class="grid" x1="${EDGE.left}" x2="${wide - EDGE.right}" y1="${y.at(tick)}" y2="${y.at(tick)}"/>`
      + `<text class="muted" text-anchor="end" x="${EDGE.left - 7}" y="${y.at(tick) + 4}">${number(tick)}</text>`);
  parts.push(`<text text-anchor="middle" x="${(wide + EDGE.left) / 2}" y="${tall - 6}">step (s)</text>`
    + `<text text-anchor="middle" transform="translate(12 ${tall / 2}) rotate(-90)">memory (GiB)</text>`);
  const best = frontOf(points.filter(fits));
  const onFront = new Set(best);
  for (const plan of points.filter(plan => near.includes(plan)).sort((a, b) => onFront.has(a) - onFront.has(b))) {
    const { colour, shape } = DATA.families[family(plan)];
    const on = onFront.has(plan);
    parts.push(`<path class="point" data-plan="${plan.place}" d="${markOf(shape, x.at(plan.step_s), y.at(plan.memory), on ? 6 : 3.2)}"`
      + ` fill="${fill(colour)}" opacity="${fits(plan) ? on ? 1 : 0.55 : 0.12}"><title>${escapeText(`${nameOf(plan)}, ${moreOf(plan)}\n${number(plan.step_s)} s, ${gib(plan.memory)}`)}</title></path>`);
  }
  const line = best.filter(plan => near.includes(plan));
  if (line.length) parts.push(`<path d="M${x.at(line[0].step_s)} ${y.at(line[0].memory)}${line.slice(1).map(p => `H${x.at(p.step_s)}V${y.at(p.memory)}`).join('')}" fill="none" stroke="var(--ink)" stroke-width="1.2"/>`);
  const edge = y.at(cap());
  parts.push(`<line x1="${EDGE.left}" x2="${wide - EDGE.right}" y1="${edge}" y2="${edge}" stroke="var(--cap)" stroke-dasharray="5 4"/>`
    + `<text text-anchor="end" x="${wide - EDGE.right}" y="${edge - 5}" style="fill:var(--cap)">cap ${gib(cap())}</text>`);
  $('all').textContent = all ? 'the fastest only' : `all ${number(plans.length)}`;
  $('chart').innerHTML = `<svg viewBox="0 0 ${wide} ${tall}" aria-hidden="true">${parts.join('')}</svg>`;
  for (const mark of $('chart').querySelectorAll('.point')) mark.onclick = () => choose(+mark.dataset.plan);
  sayCap(best[0]);
  markChosen();
}

/** Show the step of the fastest plan within the cap, and how much slower it is than the fastest of all. */
function sayCap(best) {
  const fastest = shown()[0];
  const later = best && fastest && best !== fastest ? `, ${change(best.step_s / fastest.step_s - 1)} time for ${gib(fastest.memory - best.memory)} less` : '';
  $('capped').textContent = `${gib(cap())}: ${best ? `${number(best.step_s)} s a step${later}` : 'no simulated plan fits'}`;
}

/** Mark the chosen plan in the table and, above all other points, in the chart. */
function markChosen() {
  for (const item of document.querySelectorAll('[data-plan]')) item.classList.toggle('on', +item.dataset.plan === chosen);
  const point = $('chart').querySelector('.point.on');
  point?.parentNode.append(point);
}

/** Show a plan in detail: the parts of its step, the memory of its fullest GPU, and its launch command. */
function choose(place) {
  chosen = place;
  const plan = plans[place];
  const { texts = {}, refused = [] } = DATA.flags[place] ?? {};
  const commands = Object.entries({ ...texts, ppsim: [DATA.base, ...fixed(plan)].join(' ') });
  $('plan').innerHTML = `<h2>${escapeText(nameOf(plan))}</h2><p>${escapeText(moreOf(plan))}</p>`
    + `<p>${number(plan.step_s)} s a step · ${number(plan.tokens)} tokens/s per GPU · MFU ${percent(plan.mfu)} · bubble ${percent(plan.bubble)}</p>`
    + `<h3>parts of a step</h3>${bar(plan, TERMS, plan.step_s)}${listOf(plan, TERMS, 's')}`
    + `<h3>parts of the memory: ${gib(plan.memory)} of ${gib(DATA.cap)} on the fullest GPU</h3>${bar(plan, PARTS, Math.max(DATA.cap, plan.memory), DATA.cap)}${listOf(plan, PARTS, 'GiB')}`
    + commands.map(([name, text], at) => `<h3>${escapeText(name)} <button type="button" data-copy="${at}">copy</button> <output></output></h3><pre tabindex="0">${escapeText(text)}</pre>`).join('')
    + refused.map(reason => `<p class="muted">${escapeText(reason)}</p>`).join('');
  for (const button of $('plan').querySelectorAll('[data-copy]'))
    button.onclick = () => copyText(commands[+button.dataset.copy][1], 'copied', said => { button.nextElementSibling.textContent = said; },
      () => button.parentElement.nextElementSibling);
  markChosen();
  showRun(place).catch(fault);
}

/** Show the timeline and the ranks of a plan. */
async function showRun(place) {
  const timeline = await timelineOf(place);
  if (place !== chosen) return;
  $('run-of').innerHTML = timeline + (DATA.perNode ? ranksOf(plans[place]) + sentOf(place) : ''); // no map if nodes have unequal sizes
  drawRun();
  if (!DATA.perNode) return;
  followRanks(plans[place]);
  drawLines();
}

/** Return the options with which `ppsim plan` finds only this plan. */
const fixed = plan => [...DATA.sizes.filter(key => key !== 'dp').map(key => `--${key} ${plan[key]}`), `--mbs ${plan.mbs}`,
  ...plan.schedule ? [`--schedules ${plan.schedule}`] : [], `--recomputes ${plan.recompute}`, `--layouts ${plan.layout}`,
  `--zero ${plan.zero}`, `--offload ${plan.offload}`, '--ranks'];

function showTable() {
  const rows = plans.filter(({ listed }) => listed).sort((a, b) => a.rank - b.rank); // as the terminal has them
  const sizes = SIZES.filter(key => rows.some(plan => plan[key] > 1));
  const longest = Math.max(...rows.map(plan => plan.step_s)); // so that no bar is cut
  const [step, memory] = ['step_s', 'memory'].map(key => inColumn(rows.map(plan => plan[key])));
  const head = [['#', 'left'], ...sizes.map(key => [key]), ['mbs'], ['schedule', 'left'], ['step, s'], ['tied', 'left'], ['parts of the step', 'left'], ['MFU'],
    ['memory, GiB'], ['up to the cap', 'left'], ['loses by', 'left']];
  const cells = (plan, i) => [`<button type="button" aria-label="Plan ${plan.rank}: ${escapeText(nameOf(plan))}">${plan.rank}</button>`,
    ...sizes.map(key => plan[key]), plan.mbs, escapeText(family(plan) + (plan.recompute === 'none' ? '' : `, ${plan.recompute} recompute`)),
    step[i], plan.tied ? 'tied' : '', bar(plan, TERMS, longest), percent(plan.mfu), memory[i],
    bar(plan, PARTS, DATA.cap, DATA.cap), escapeText(plan.lost_by ?? '')];
  $('plans').innerHTML = `<thead><tr>${head.map(([name, side = '']) => `<th scope="col" class="${side}">${name}</th>`).join('')}</tr></thead><tbody>`
    + rows.map((plan, i) => `<tr data-plan="${plan.place}">${cells(plan, i).map((cell, at) => `<td class="${head[at][1] ?? ''}">${cell}</td>`).join('')}</tr>`).join('') + '</tbody>';
  for (const row of $('plans').querySelectorAll('tbody tr')) row.onclick = () => choose(+row.dataset.plan);
  const used = entries => entries.filter(({ key }) => rows.some(plan => plan[key] > 0));
  for (const [id, entries] of [['goes', TERMS], ['held', PARTS]])
    $(id).innerHTML = `<li class="muted">${id === 'goes' ? 'step:' : 'memory:'}</li>` + used(entries).map(({ name, colour }) => entryOf(name, colour)).join('');
}

function showLegend() {
  const count = name => plans.filter(plan => family(plan) === name).length;
  $('legend').innerHTML = Object.entries(DATA.families).map(([name, { colour, shape }]) =>
    `<li><button type="button" aria-pressed="${!hidden.has(name)}" data-family="${escapeText(name)}"><svg width="14" height="14" aria-hidden="true">`
    + `<path d="${markOf(shape, 7, 7, 5)}" fill="${fill(colour)}"/></svg>${escapeText(name)} ${count(name)}</button></li>`).join('');
  for (const button of $('legend').querySelectorAll('button'))
    button.onclick = () => {
      const { family: name } = button.dataset;
      if (!hidden.delete(name)) hidden.add(name);
      showLegend();
      draw();
    };
}

function setTheme(theme) {
  root.dataset.theme = theme;
  dark = +(theme === 'dark');
  for (const show of [showFunnel, showLegend, showTable, draw]) show();
  choose(chosen);
}

async function start() {
  plans = rowsOf(await unzip(DATA.plans).json());
  for (const name of ['flags', 'runs', 'sent']) DATA[name] = await unzip(DATA[name]).json();
  plans.forEach((plan, place) => Object.assign(plan, { place, rank: plan.listed }));
  $('all').onclick = () => { all = !all; draw(); };
  const paragraph = said => Object.assign(document.createElement('p'), { textContent: said });
  $('remarks').replaceChildren(...DATA.remarks.map(paragraph));
  $('counted').textContent = DATA.counted;
  $('command').textContent = DATA.inputs.command ?? '';
  const memory = plans.map(plan => plan.memory);
  Object.assign($('cap'), { min: Math.min(...memory), max: DATA.cap, value: DATA.cap });
  $('cap').oninput = draw;
  addEventListener('resize', () => { draw(); drawRun(); drawLines(); });
  chosen = plans.find(plan => plan.rank === 1).place;
  followTheme(setTheme);
  root.dataset.state = 'drawn';
}

start().catch(fault);
