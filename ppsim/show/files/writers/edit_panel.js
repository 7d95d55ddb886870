// The panel of a schedule that is built by hand: a blank sheet, what may run next on a device, filling, stamping, the
// name of what came out, and playing it with a line for each step.

const MOST_CHOICES = 12; // ops that are offered at once
const STEP_MS = 900; // of playing

/** A list to choose from, which acts and goes back to its first line. */
function menu(label, names, act) {
  const list = element('select', { 'aria-label': label }, new Option(`${label} …`, ''), ...names.map((name, i) => new Option(name, i)));
  list.onchange = () => { const chosen = list.value; list.value = ''; if (chosen !== '') attempt(() => act(Number(chosen))); };
  return list;
}

/** The tools to build with. */
function buildTools() {
  const sheet = editor.sheets[editor.panel];
  const names = becomes(sheet).map(({ name }) => name);
  const refused = () => { throw Error(`this schedule cannot begin blank: ${sheet.no_blank}`); };
  const placing = sheet.no_blank ? [tool('blank sheet', `Not here: ${sheet.no_blank}`, refused)] : [
    tool('blank sheet', 'Take all ops off, and place them by hand', () => { ppsim.blank(); offer(0); sayHow(); }),
    menu('fill the rest', POLICIES.map(({ name }) => name), policy => { ppsim.fill(policy); offerTie(); }),
    tool('stamp', 'Repeat the selected microbatch, or 0, for all', () => ppsim.stamp(selectedMicrobatch())),
    tool('block', 'Save its building block', () =>
      handOver('block.toml', blockText(sheet, stateNow(), selectedMicrobatch()), 'text/plain')),
    tool('take off', 'Take the selected op off its row', () => withSelected((device, at) => {
      ppsim.remove(device, at);
      editor.selected = view.op = null;
      offer(device, at);
    }))];
  return element('div', { className: 'tools', role: 'toolbar', 'aria-label': 'Build' }, ...placing,
    ...names.length ? [menu('become', names, number => ppsim.become(number))] : [],
    tool('play', 'Play, with a line a step (P)', togglePlay), tool('step', 'The next step of it', () => { stopPlay(); playStep(); }));
}

/** The microbatch of the selected op, or the first. */
function selectedMicrobatch() {
  if (!editor.selected || editor.selected.panel !== editor.panel) return 0;
  const { device, at } = editor.selected;
  const cell = cellsOf(stateNow().queues[device] ?? [])[at];
  return cell ? unpackOp(editor.sheets[editor.panel], cell[0]).microbatch : 0;
}

/** Which schedule the queues are, and what filling said; what may run next and the lesson are said anew. */
function sayBuilt() {
  const [sheet, state] = [editor.sheets[editor.panel], stateNow()];
  if (editor.offered) offer(...editor.offered);
  if (REPORT.lesson) sayLesson();
  return [recognisedWords(recognised(sheet, state), sheet), state.note ?? ''].filter(Boolean);
}

/** Offer what may run where a row is pressed and free, between the ops there; never a hold. */
function offerPlace(event) {
  const at = place(event);
  if (at && !at.curve && editor.sheets[at.index] && !editor.sheets[at.index].no_blank) {
    editor.panel = at.index;
    const missing = missingOps(editor.sheets[at.index], stateNow(at.index));
    if (missing.some(queue => queue.length)) offer(at.device, placeUnder(event, at.index, at.device));
  }
  return false;
}

/** Offer the ops between which filling stopped. */
function offerTie() {
  const found = /^a tie on device (\d+)/.exec(stateNow().note ?? '');
  if (found) offer(Number(found[1]));
}

/** What may run next on any device: of each the first op of every kind and stage. */
function choicesOfAll(sheet, state) {
  return Array.from({ length: sheet.devices }, (_, device) => {
    const seen = new Set();
    const isFirst = ({ label }) => !seen.has(label.replace(/\d+$/, '')) && seen.add(label.replace(/\d+$/, ''));
    return choicesOf(sheet, state, device).filter(isFirst).map(choice => ({ ...choice, device }));
  }).flat().sort((a, b) => a.start - b.start);
}

/**
 * List the ops that may run next on a device, or behind some cells of it, or with the number of devices as `device` on
 * any; each with its start and a ghost of where it would be.
 */
function offer(device, at = Infinity) {
  const [sheet, state] = [editor.sheets[editor.panel], stateNow()];
  const count = state.partial ? missingOps(sheet, state).reduce((sum, queue) => sum + queue.length, 0) : 0;
  editor.offered = count ? [device, at] : null;
  if (!count) return $('choices').replaceChildren();
  const all = device === sheet.devices;
  const names = Array.from({ length: sheet.devices }, (_, i) => new Option(`device ${i}`, i));
  const devices = element('select', { 'aria-label': 'Device to place on' }, ...names, new Option('all devices', sheet.devices));
  devices.value = device;
  devices.onchange = () => offer(Number(devices.value));
  const cells = cellsOf(state.queues[device] ?? []);
  const found = all ? choicesOfAll(sheet, state) : choicesOf(sheet, state, device, at).map(each => ({ ...each, device }));
  const place = Math.min(at, cells.length);
  const buttons = found.slice(0, MOST_CHOICES).map(choice =>
    choiceButton(sheet, state, all ? cellsOf(state.queues[choice.device]).length : place, choice));
  const more = found.length > MOST_CHOICES ? ` and ${found.length - MOST_CHOICES} more` : '';
  const before = cells[place] ? [element('span', { textContent: `before ${cellText(sheet, cells[place])}:` })] : [];
  const end = element('span', { textContent: found.length ? more : 'nothing may run here yet' });
  return $('choices').replaceChildren(devices, ...before, ...buttons, end);
}

/** One op that may be placed: pressed it is; while it is pointed at, its ghost and its cost are shown. */
function choiceButton(sheet, state, at, choice) {
  const { device } = choice;
  const wait = choice.waits > EPSILON * SPAN ? `, idle ${timed(choice.waits)}` : '';
  const button = element('button', { type: 'button', textContent: `${choice.label} at ${number(choice.start)}${wait}` });
  const last = at === cellsOf(state.queues[device]).length;
  button.onclick = () => attempt(() => {
    editor.ghost = null;
    if (!last) editor.offered = [device, at + 1];
    ppsim.place(device, choice.place, at);
    $('choices').querySelector('button')?.focus();
  });
  foreseeing(button, () => {
    foresee(device, at, 'p', device, at, ...choice.place);
    const { answer } = editor.ghost;
    $('told').textContent = `${choice.label}: ${interval(choice.start, choice.end)}; peak activations ${answer.peak.join(' ')}`;
  });
  return button;
}

/** The steps of a schedule: at each time, which ops start and what they waited for. */
function stepsOf(panel) {
  const { edited, kept } = TIMELINES[panel];
  const { timed: { ops, start, done, inputs } } = edited;
  const sheet = editor.sheets[panel];
  const order = [...kept].filter(op => done[op] && ops.lead[op] === op).sort((a, b) => start[a] - start[b] || ops.device[a] - ops.device[b]);
  return order.map(op => {
    const source = inputs.neighbour[op];
    const sent = source >= 0 && ops.device[source] !== ops.device[op] ? `, on what device ${ops.device[source]} sent: ${opLabel(sheet, ops, source)}` : '';
    return { op, text: `${timed(start[op])}: device ${ops.device[op]} runs ${opLabel(sheet, ops, op)}${sent}` };
  });
}

/** Show the next step and say it. */
function playStep() {
  const { panel } = editor;
  const steps = stepsOf(panel);
  if (!steps.length) throw Error('nothing is placed yet');
  editor.step = ((editor.step ?? -1) + 1) % steps.length;
  const { op, text } = steps[editor.step];
  view.op = { panel, op: TIMELINES[panel].kept.indexOf(op) };
  $('told').textContent = `${editor.step + 1} of ${steps.length} · ${text}`;
  drawSoon();
  if (editor.step === steps.length - 1) stopPlay();
}

function togglePlay() {
  if (editor.playing) return stopPlay();
  playStep();
  editor.playing = setInterval(() => attempt(playStep), STEP_MS);
  return undefined;
}

function stopPlay() {
  clearInterval(editor.playing);
  editor.playing = 0;
}

EDIT_KEYS.p = togglePlay;
