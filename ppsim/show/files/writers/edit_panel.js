// The panel for building a schedule by hand: a blank sheet, the ops that may run next on a device, filling, stamping, the
// name of the resulting schedule, and playing it with one line of text per step.

const MOST_CHOICES = 12; // ops offered at once
const STEP_MS = 900; // time of a step while playing

/** Return a drop-down list that acts on a choice and then shows its label again. */
function menu(label, names, act) {
  const list = element('select', { 'aria-label': label }, new Option(`${label} …`, ''), ...names.map((name, i) => new Option(name, i)));
  list.onchange = () => { const chosen = list.value; list.value = ''; if (chosen !== '') attempt(() => act(Number(chosen))); };
  return list;
}

/** Return the tools for building. */
function buildTools() {
  const sheet = editor.sheets[editor.panel];
  const names = becomes(sheet).map(({ name }) => name);
  const refused = () => { throw Error(`this schedule cannot begin blank: ${sheet.no_blank}`); };
  const placing = sheet.no_blank ? [tool('blank sheet', `Not here: ${sheet.no_blank}`, refused)] : [
    tool('blank sheet', 'Remove all ops, and place them by hand', () => { ppsim.blank(); offer(0); sayHow(); }),
    menu('fill the rest', POLICIES.map(({ name }) => name), policy => { ppsim.fill(policy); offerTie(); }),
    tool('stamp', 'Give all microbatches the times of the selected one (default: microbatch 0)', () => ppsim.stamp(selectedMicrobatch())),
    tool('block', 'Save the building block of the selected microbatch', () =>
      handOver('block.toml', blockText(sheet, stateNow(), selectedMicrobatch()), 'text/plain')),
    tool('remove', 'Remove the selected op from its row', () => withSelected((device, at) => {
      ppsim.remove(device, at);
      editor.selected = view.op = null;
      offer(device, at);
    }))];
  return element('div', { className: 'tools', role: 'toolbar', 'aria-label': 'Build' }, ...placing,
    ...names.length ? [menu('turn into', names, number => ppsim.become(number))] : [],
    tool('play', 'Play the schedule, with one line of text per step (P)', togglePlay), tool('step', 'Show the next step', () => { stopPlay(); playStep(); }));
}

/** Return the microbatch of the selected op, else 0. */
function selectedMicrobatch() {
  if (!editor.selected || editor.selected.panel !== editor.panel) return 0;
  const { device, at } = editor.selected;
  const cell = cellsOf(stateNow().queues[device] ?? [])[at];
  return cell ? unpackOp(editor.sheets[editor.panel], cell[0]).microbatch : 0;
}

/** Update the offered ops and the lesson; return the name of the schedule and the note of the last filling as texts. */
function sayBuilt() {
  const [sheet, state] = [editor.sheets[editor.panel], stateNow()];
  if (editor.offered) offer(...editor.offered);
  if (REPORT.lesson) sayLesson();
  return [recognisedWords(recognised(sheet, state), sheet), state.note ?? ''].filter(Boolean);
}

/** Offer the ops that may run at the pressed place of a row; return false, as no op is dragged. */
function offerPlace(event) {
  const at = place(event);
  if (at && !at.curve && editor.sheets[at.index] && !editor.sheets[at.index].no_blank) {
    editor.panel = at.index;
    const missing = missingOps(editor.sheets[at.index], stateNow(at.index));
    if (missing.some(queue => queue.length)) offer(at.device, placeUnder(event, at.index, at.device));
  }
  return false;
}

/** Offer the tied ops at which filling stopped. */
function offerTie() {
  const found = /^a tie on device (\d+)/.exec(stateNow().note ?? '');
  if (found) offer(Number(found[1]));
}

/** Return the ops that may run next on all devices: of each device the first op of every kind and stage. */
function choicesOfAll(sheet, state) {
  return Array.from({ length: sheet.devices }, (_, device) => {
    const seen = new Set();
    const isFirst = ({ label }) => !seen.has(label.replace(/\d+$/, '')) && seen.add(label.replace(/\d+$/, ''));
    return choicesOf(sheet, state, device).filter(isFirst).map(choice => ({ ...choice, device }));
  }).flat().sort((a, b) => a.start - b.start);
}

/**
 * List the ops that may run next on a device, or at place `at` of its queue; all devices if `device` is the number of
 * devices. Each op has its start, and an outline while the pointer is over it.
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
  const end = element('span', { textContent: found.length ? more : 'no op may run here yet' });
  return $('choices').replaceChildren(devices, ...before, ...buttons, end);
}

/** Return the button that places an op; while the pointer is over it, the op's outline and its cost are shown. */
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

/** Return the steps of a schedule in order of time: each op that starts, with a text that names the input it waited for. */
function stepsOf(panel) {
  const { edited, kept } = TIMELINES[panel];
  const { timed: { ops, start, done, inputs } } = edited;
  const sheet = editor.sheets[panel];
  const order = [...kept].filter(op => done[op] && ops.lead[op] === op).sort((a, b) => start[a] - start[b] || ops.device[a] - ops.device[b]);
  return order.map(op => {
    const source = inputs.neighbour[op];
    const sent = source >= 0 && ops.device[source] !== ops.device[op] ? ` on the result of ${opLabel(sheet, ops, source)} from device ${ops.device[source]}` : '';
    return { op, text: `${timed(start[op])}: device ${ops.device[op]} runs ${opLabel(sheet, ops, op)}${sent}` };
  });
}

/** Show the next step and its text. */
function playStep() {
  const { panel } = editor;
  const steps = stepsOf(panel);
  if (!steps.length) throw Error('no op is placed yet');
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
