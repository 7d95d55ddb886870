// The film of a search: its best orders one after the other, ops sliding to their places, and below how the best and its
// bound come closer.

const SLIDE = 450; // milliseconds in which ops take their places, and until the next step
const REST = 750;
let frames = []; // all timelines, of which the chart shows one
let playing = 0;

async function showStory() {
  const { steps, lead } = REPORT.story;
  frames = TIMELINES;
  $('lead').textContent = lead;
  $('lead').hidden = false;
  const slider = element('input', { id: 'step', type: 'range', min: 0, max: steps.length - 1, value: steps.length - 1, 'aria-label': 'Step of the search' });
  const play = element('button', { id: 'play', type: 'button', textContent: 'play' });
  slider.oninput = () => { stop(); showStep(+slider.value); };
  play.onclick = () => playing ? stop() : run(+slider.value < steps.length - 1 ? +slider.value + 1 : 0);
  $('chart').before(element('section', { id: 'film', 'aria-label': 'The search' },
    element('div', { className: 'tools' }, play, slider), element('output', { htmlFor: 'step' }), element('div', { id: 'closing', role: 'img' })));
  $('closing').setAttribute('aria-label', `Best and bound over ${number(steps.at(-1).seconds)} seconds`);
  $('closing').innerHTML = closing(steps);
  showStep(steps.length - 1);
}

function stop() {
  clearTimeout(playing);
  playing = 0;
  $('play').textContent = 'play';
}

function run(step) {
  $('step').value = step;
  showStep(step);
  $('play').textContent = 'stop';
  playing = setTimeout(() => step + 1 < REPORT.story.steps.length ? run(step + 1) : stop(), SLIDE + REST);
}

function showStep(at) {
  const { steps, objective } = REPORT.story;
  const { timeline, seconds, value, bound } = steps[at];
  const before = TIMELINES;
  TIMELINES = [frames[timeline]];
  const gap = value - bound > EPSILON * value ? `bound ${number(bound)}: at most ${percent(1 - bound / value)} from the best` : `bound ${number(bound)}: nothing is better, proved`;
  $('film').querySelector('output').textContent = `step ${at + 1} of ${steps.length}, ${number(seconds)} s: ${TIMELINES[0].title} · ${objective} ${timed(value)} · ${gap}`;
  $('closing').querySelector('.now').setAttribute('d', `M${steps.length > 1 ? 100 * seconds / (steps.at(-1).seconds || 1) : 0} 0v100`);
  $('numbers').replaceChildren(cards(TIMELINES[0]));
  $('tables').replaceChildren(perDevice(TIMELINES[0]));
  view.op = null;
  hideTip();
  if (before.length > 1 || before[0] === TIMELINES[0] || matchMedia('(prefers-reduced-motion: reduce)').matches) return drawSoon();
  return slide(before[0], TIMELINES[0]);
}

/** Draw a timeline with its ops on their way from where another has the same ones. */
function slide(from, to) {
  const key = ({ ops }, op) => `${ops.kind[op]} ${ops.stage[op]} ${ops.microbatch[op]}`;
  const places = new Map(Array.from(from.ops.kind, (_, op) => [key(from, op), op]));
  const twin = Array.from(to.ops.kind, (_, op) => places.get(key(to, op)));
  const { left, right } = to.ops;
  const begin = performance.now();
  const move = now => {
    const share = Math.min(1, (now - begin) / SLIDE);
    const mix = (own, others) => share === 1 ? own : own.map((value, op) => twin[op] === undefined ? value : value * share + others[twin[op]] * (1 - share));
    Object.assign(to.ops, { left: mix(left, from.ops.left), right: mix(right, from.ops.right) });
    if (TIMELINES[0] === to) draw();
    Object.assign(to.ops, { left, right });
    if (share < 1 && TIMELINES[0] === to) requestAnimationFrame(move);
  };
  move(begin);
}

/** The best and the bound over seconds as two steps that close in. */
function closing(steps) {
  const last = steps.at(-1).seconds || 1;
  const values = steps.flatMap(({ value, bound }) => [value, bound]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = ({ seconds }) => (100 * seconds / last).toFixed(2);
  const y = value => (96 - 92 * (value - low) / (high - low || 1)).toFixed(2);
  const line = name => steps.map((step, i) => `${i ? 'H' : 'M0 '}${i ? `${x(step)}V` : ''}${y(step[name])}`).join('') + 'H100';
  const path = (d, more) => `<path d="${d}" fill="none" vector-effect="non-scaling-stroke" stroke-width="2" ${more}/>`;
  return `<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">${path(line('value'), 'stroke="var(--ink)"')}`
    + `${path(line('bound'), 'stroke="var(--focus)" stroke-dasharray="5 3"')}${path('M0 0', 'class="now" stroke="var(--cap)"')}</svg>`
    + `<p class="muted"><span>best found, and dashed the bound</span><span>${number(last)} s</span></p>`;
}
