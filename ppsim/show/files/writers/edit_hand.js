// Editing by hand: the switch and its buttons, keys, mouse and touch, and the files of an edited schedule.

const MOST_TOLD = 2000; // ops of a schedule up to which selecting a backward also times its split

/** Switch the editor on or off; edits stay. */
function toggleEditor(on = !editor.on) {
  if (editor.held) letGo(false);
  editor.on = on;
  press('edit', on);
  $('editor').hidden = !on;
  if (on && view.causes && !known()) view.causes = false;
  if (on && folded) toggleFold(false);
  editor.selected = null;
  showEdited();
  if (!on) return;
  sayHow();
  editor.warming = setTimeout(warmUp, 50);
}

/** Time an edit that changes nothing, so that the browser compiles the code before the first edit. */
function warmUp() {
  const { panel } = editor;
  const [sheet, state] = [editor.sheets[panel], stateNow(panel)];
  const device = state.queues.findIndex(queue => queue.length);
  if (device < 0) return;
  const same = EDITS.m(sheet, state, device, 0, 0);
  for (let i = 0; i < 3; i++) editedTimeline(sheet, same, editor.originals[panel]);
  recognised(sheet, same);
}

/** Show how to begin: by placing ops on a blank sheet, else by selecting an op. */
function sayHow() {
  const blank = stateNow()?.queues.every(queue => !queue.length);
  say(blank ? 'Press an op above, or a row to see the ops that may run there'
    : 'Click an op or press an arrow key; drag it, or press Alt + ← →');
}

/** Return a button of the editor; `ahead` shows its effect while the pointer is over it. */
function tool(name, title, act, ahead = null) {
  const button = element('button', { type: 'button', textContent: name, title });
  button.onclick = () => attempt(act);
  if (ahead) foreseeing(button, ahead);
  return button;
}

/** Show a button's effect while the pointer is over it or it has the focus. */
function foreseeing(button, ahead) {
  const show = () => {
    try {
      ahead();
    } catch {
      return; // a press shows the reason
    }
  };
  const hide = () => { editor.ghost = null; drawSoon(); };
  Object.assign(button, { onpointerenter: show, onfocus: show, onpointerleave: hide, onblur: hide });
}

/** Return the result of an edit without making it: its timeline, with the cell of a device to outline, and its cost as text. */
function foreseen(device, at, letter, numbers) {
  const { panel } = editor;
  const sheet = editor.sheets[panel];
  const state = EDITS[letter](sheet, stateNow(panel), ...numbers);
  const answer = answerOf(sheet, state);
  const cells = cellsOf(state.queues[device]);
  const op = answer.timed.ops.offsets[device] + cells.slice(0, at).flat().length;
  const ghost = { panel, device, answer, op, sheet, before: TIMELINES[panel].edited };
  const { before } = ghost;
  const by = answer.valid && before.valid ? `${signedTime(answer.makespan - before.makespan)}  ` : '';
  return { ghost, words: by + ghostWords(ghost).replaceAll('\n', ' · ') };
}

/** Show the result of an edit without making it. */
function foresee(device, at, letter, ...numbers) {
  const { ghost, words } = foreseen(device, at, letter, numbers);
  editor.ghost = ghost;
  $('told').textContent = words;
  drawSoon();
}

/** Clear the status line, act, and show the reason if the action is refused. */
function attempt(act) {
  say('');
  try {
    act();
  } catch (error) {
    say(error.message);
  }
}

/** Fill the editor with its tools. */
function fillEditor() {
  const save = element('select', { 'aria-label': 'Save the edited schedule' }, new Option('save as …', ''), new Option('torch CSV', 'csv'),
    new Option('JSON', 'json'), new Option('SVG', 'svg'), new Option('PNG', 'png'));
  save.onchange = () => { const form = save.value; save.value = ''; if (form) attempt(() => saveEdited(form)); };
  $('editor').replaceChildren(...REPORT.lesson ? lessonPart() : [], element('div', { className: 'tools', role: 'toolbar', 'aria-label': 'Edit' },
    tool('undo', 'Undo (Ctrl + Z)', () => ppsim.undo() || say('nothing to undo')),
    tool('redo', 'Redo (Ctrl + Shift + Z)', () => ppsim.redo() || say('nothing to redo')),
    tool('← earlier', 'Move the selected op earlier (Alt + ←)', () => shift(-1)),
    tool('later →', 'Move the selected op later (Alt + →)', () => shift(1)),
    tool('split', 'Split the selected B into I and W (I)', () => withSelected((device, at) => ppsim.split(device, at)),
      () => withSelected((device, at) => foresee(device, at, 's', device, at))),
    tool('join', 'Join this I or W with its other half (J)', () => withSelected((device, at) => ppsim.join(device, at)),
      () => withSelected((device, at) => foresee(device, at, 'j', device, at))),
    menu('split all', everywhere(), which => ppsim.splitAll(...which ? [which - 1] : [])),
    menu('join all', everywhere(), which => ppsim.joinAll(...which ? [which - 1] : [])),
    ...editor.sheets.some(sheet => sheet?.placement.length > 1)
      ? [tool('other replica', 'Move this microbatch to the other replica (Alt + ↑ ↓)', across)] : [],
    tool('+ microbatch', 'Add a microbatch (+)', () => ppsim.add()),
    tool('− microbatch', 'Remove this microbatch (Delete)', takeSelected),
    tool('link', 'Copy a link to this state', copyLink), save), buildTools(),
  element('p', { id: 'edited', 'aria-live': 'polite' }), element('p', {}, element('code', { id: 'again' })), element('div', { id: 'choices', className: 'tools' }), element('p', { id: 'told', 'aria-live': 'polite' }));
}

/** Return the choices of "split all" and "join all": the schedule, or one device. */
const everywhere = () => ['of the schedule', ...Array.from({ length: editor.sheets[editor.panel].devices }, (_, i) => `of device ${i}`)];

/** Act on the device and place of the selected op; throw an error if no op is selected. */
function withSelected(act) {
  if (!editor.selected) throw Error('no op is selected; click one or press an arrow key');
  const { panel, device, at } = editor.selected;
  editor.panel = panel;
  return act(device, at);
}

const takeSelected = () => withSelected((device, at) => {
  const [code] = cellsOf(stateNow().queues[device])[at];
  return ppsim.take(Math.floor(unpackOp(editor.sheets[editor.panel], code).microbatch / editor.sheets[editor.panel].slices));
});

/** Return whether a cell of a queue is drawn in its device's row (true) or on a strip below it. */
const inRow = (sheet, cell) => Boolean(sheet.kinds[unpackOp(sheet, cell[0]).kind].row);

/** Return the place of a cell after one step: an op of the row skips cells that are not in the row; -1 at the end. */
function besideCell(sheet, cells, at, by) {
  let to = at + by;
  if (inRow(sheet, cells[at])) while (cells[to] && !inRow(sheet, cells[to])) to += by;
  return cells[to] ? to : -1;
}

/** Move the selected op by one place. */
function shift(by) {
  withSelected((device, at) => {
    const to = besideCell(editor.sheets[editor.panel], cellsOf(stateNow().queues[device]), at, by);
    if (to < 0) throw Error(`it is the ${by < 0 ? 'first' : 'last'} op of device ${device}`);
    ppsim.move(device, at, to);
    choose(editor.panel, device, to);
  });
}

/** Move the selected op's microbatch to the other replica of the model. */
function across() {
  withSelected((device, at) => {
    const sheet = editor.sheets[editor.panel];
    const target = otherDevice(sheet, stateNow(), device, at);
    const { code } = editor.selected;
    ppsim.cross(device, at);
    chooseCode(target, code);
  });
}

/** Select the op of a code on a device. */
function chooseCode(device, code) {
  const { panel } = editor;
  const same = cell => cell.some(each => each - each % 2 === code - code % 2);
  choose(panel, device, cellsOf(stateNow(panel).queues[device]).findIndex(same));
}

/** Select a cell, outline it, and show its name, place and times. */
function choose(panel, device, at) {
  editor.panel = panel;
  const [code] = cellsOf(stateNow(panel).queues[device])[at];
  editor.selected = { panel, device, at, code };
  const timeline = TIMELINES[panel];
  const op = opOfCell(panel, device, at);
  const row = timeline.kept.indexOf(op);
  view.op = row < 0 ? null : { panel, op: row };
  const { start, end } = timeline.edited.timed;
  if (hasManyDevices()) reveal(device);
  const label = cellText(editor.sheets[panel], cellsOf(stateNow(panel).queues[device])[at]);
  say(`${label} on device ${device}, place ${at + 1}: ${interval(start[op], end[op])}`);
  $('chart').classList.toggle('holds', editor.sheets[panel].placement.length > 1);
  tellSplit(device, at);
  drawSoon();
}

/** Show the cost of splitting the selected full backward, unless the schedule is large. */
function tellSplit(device, at) {
  const [sheet, state] = [editor.sheets[editor.panel], stateNow()];
  const whole = fullBackward(sheet, cellsOf(state.queues[device])[at]) >= 0;
  const few = TIMELINES[editor.panel].edited.timed.ops.size <= MOST_TOLD;
  $('told').textContent = whole && few ? `split: ${foreseen(device, at, 's', [device, at]).words}` : '';
}

/** Return the number of a cell's first op among all ops of the queues. */
function opOfCell(panel, device, at) {
  const { offsets } = TIMELINES[panel].edited.timed.ops;
  return offsets[device] + cellsOf(stateNow(panel).queues[device]).slice(0, at).reduce((sum, cell) => sum + cell.length, 0);
}

/** Return the cell of an op: panel, device and place in the queue. */
function cellOfOp(panel, op) {
  const { offsets, device } = TIMELINES[panel].edited.timed.ops;
  let left = op - offsets[device[op]];
  return { panel, device: device[op], at: cellsOf(stateNow(panel).queues[device[op]]).findIndex(cell => (left -= cell.length) < 0) };
}

/** Select the next op on the device, or the op of the next device at about the same time. */
function chooseNext(along, down) {
  const panel = editor.selected?.panel ?? editor.panel;
  const timeline = TIMELINES[panel];
  const sheet = editor.sheets[panel];
  if (!editor.selected) return choose(panel, 0, Math.max(0, cellsOf(stateNow(panel).queues[0]).findIndex(cell => inRow(sheet, cell))));
  const { device, at } = editor.selected;
  const cells = cellsOf(stateNow(panel).queues[device]);
  if (along) {
    const to = at + along;
    return cells[to] ? choose(panel, device, to) : undefined;
  }
  const other = device + down;
  if (other < 0 || other >= timeline.devices || timeline.offsets[other] === timeline.offsets[other + 1]) return undefined;
  const row = Math.min(timeline.offsets[other + 1] - 1, firstAfter(timeline, other, timeline.edited.timed.start[opOfCell(panel, device, at)]));
  const found = cellOfOp(panel, timeline.kept[row]);
  return choose(panel, found.device, found.at);
}

/** Return the cell under the pointer, in a row or on a strip of copies; null if there is none. */
function cellUnder(event) {
  const at = place(event);
  if (!at || at.curve || !editor.sheets[at.index]) return null;
  const { timeline } = at.panel;
  const message = at.panel.lane && timeline.lane?.op ? messageAt(at.panel, at.device, at.time, at.high) : -1;
  if (message >= 0) return cellOfOp(at.index, timeline.lane.op[message]);
  if (at.panel.lane && at.high > 1 - at.panel.lane) return null;
  const row = opAt(timeline, at.device, at.time);
  return row < 0 ? null : cellOfOp(at.index, timeline.kept[cellOf(timeline, row)]);
}

/**
 * Return the place of a dropped cell in a device's queue: before the first cell whose middle is right of the pointer.
 * `held` is the cell, and `at` its place now if it is on this device.
 */
function placeUnder(event, panel, device, at = -1, held = []) {
  const { drawn, edited: { timed } } = TIMELINES[panel];
  const sheet = editor.sheets[panel];
  const time = timeAt(shown.from + (event.clientX - chartBox().left - shown.left) / shown.scale);
  const cells = cellsOf(stateNow(panel).queues[device]);
  const stream = ([code]) => code === undefined ? 0 : sheet.kinds[unpackOp(sheet, code).kind].stream ?? 0;
  const own = stream(held);
  const behind = place => at >= 0 && place > at ? place - 1 : place; // the cell leaves its old place
  let [op, to] = [timed.ops.offsets[device], 0];
  for (const [place, cell] of cells.entries()) {
    const middle = (drawn.start[op] + drawn.end[op]) / 2;
    op += cell.length;
    if (place === at || !own && stream(cell)) continue;
    if (middle > time) return behind(place);
    to = behind(place + 1);
  }
  return to;
}

/** Start to drag the op under the pointer; return whether there is one. A finger only drags an op that is selected. */
function grab(event) {
  if (!editor.on || event.button !== 0 || event.shiftKey || event.ctrlKey || !shown) return false;
  const found = cellUnder(event);
  if (!found) return offerPlace(event);
  const { selected } = editor;
  const again = selected && selected.panel === found.panel && selected.device === found.device && selected.at === found.at;
  choose(found.panel, found.device, found.at);
  editor.held = event.pointerType === 'touch' && !again ? null
    : { ...editor.selected, state: stateNow(), x: event.clientX, y: event.clientY };
  return Boolean(editor.held);
}

/** Return the edit that dropping the dragged op here makes, and the reason if it cannot go to the row under the pointer. */
function moveUnder(event, { panel, device, at }) {
  const [sheet, state] = [editor.sheets[panel], stateNow(panel)];
  const cell = cellsOf(state.queues[device])[at];
  const under = place(event);
  let why = '';
  if (under && !under.curve && under.index === panel && under.device !== device) {
    try {
      const other = otherDevice(sheet, state, device, at);
      if (other === under.device) return { act: ['c', device, at, placeUnder(event, panel, other, -1, cell)], target: other, why };
      why = `${cellText(sheet, cell)} may run on devices ${device} and ${other}`;
    } catch (error) {
      why = error.message;
    }
  }
  return { act: ['m', device, at, placeUnder(event, panel, device, at, cell)], target: device, why };
}

/** Show where the held op would go and what that costs. */
function carry(event) {
  const { held } = editor;
  if (held.state !== stateNow(held.panel)) return letGo(false); // a key has changed it meanwhile
  const far = Math.hypot(event.clientX - held.x, event.clientY - held.y);
  if (!editor.ghost && far < 5) return;
  const { act, target, why } = moveUnder(event, held);
  const sheet = editor.sheets[held.panel];
  if (editor.ghost?.act.join() !== act.join()) {
    const state = EDITS[act[0]](sheet, stateNow(held.panel), ...act.slice(1));
    const answer = answerOf(sheet, state);
    const own = held.code - held.code % 2;
    const op = answer.timed.ops.offsets[target] + state.queues[target].findIndex(code => code - code % 2 === own);
    editor.ghost = { ...held, act, device: target, answer, op, sheet, before: TIMELINES[held.panel].edited };
  }
  const { answer, before } = editor.ghost;
  const by = answer.valid ? signedTime(answer.makespan - before.makespan) : 'cannot run';
  tip(event.clientX, event.clientY, bold(by), `  ${ghostWords(editor.ghost)}${why && `\n${why}`}`);
  drawSoon();
}

/** End a drag: with `drop` at the new place, else at the old one. */
function letGo(drop) {
  const { held, ghost } = editor;
  editor.held = editor.ghost = null;
  hideTip();
  drawSoon();
  if (!drop || !ghost || held.state !== stateNow(held.panel) || ghost.act[0] === 'm' && ghost.act[3] === held.at) return;
  attempt(() => {
    editor.panel = held.panel;
    changed(() => edit(held.panel, ...ghost.act));
    chooseCode(ghost.device, held.code);
  });
}

const EDIT_KEYS = {
  arrowleft: () => chooseNext(-1, 0), arrowright: () => chooseNext(1, 0), arrowup: () => chooseNext(0, -1), arrowdown: () => chooseNext(0, 1),
  i: () => withSelected((device, at) => ppsim.split(device, at)), j: () => withSelected((device, at) => ppsim.join(device, at)),
  'shift+i': () => ppsim.splitAll(), 'shift+j': () => ppsim.joinAll(),
  '+': () => ppsim.add(), delete: takeSelected, backspace: takeSelected,
};

/** Act on a key of the editor; return whether it was one. */
function editKey(event) {
  const name = event.key.toLowerCase();
  const control = event.ctrlKey || event.metaKey;
  let act = null;
  if (name === 'e' && !control && !event.altKey) act = () => toggleEditor();
  else if (!editor.on) return false;
  else if (control && name === 'z') act = () => (event.shiftKey ? ppsim.redo() : ppsim.undo()) || say(`nothing to ${event.shiftKey ? 're' : 'un'}do`);
  else if (control && name === 'y') act = () => ppsim.redo() || say('nothing to redo');
  else if (event.altKey && (name === 'arrowleft' || name === 'arrowright')) act = () => shift(name === 'arrowleft' ? -1 : 1);
  else if (event.altKey && (name === 'arrowup' || name === 'arrowdown')) act = across;
  else if (!control && !event.altKey) {
    const shifted = event.shiftKey ? EDIT_KEYS[`shift+${name}`] : null;
    act = name === 'escape' && editor.held ? () => letGo(false) : shifted ?? EDIT_KEYS[name] ?? null;
  }
  if (!act) return false;
  event.preventDefault();
  attempt(act);
  return true;
}

/** Show the line on the edited timeline, and the command that runs it. */
function sayEdited() {
  const { edited } = TIMELINES[editor.panel];
  root.toggleAttribute('data-stuck', TIMELINES.some(t => t.edited && !t.edited.valid));
  if (!$('edited') || !edited) return;
  $('edited').textContent = [editedLine(editor.panel), ...sayBuilt()].join(' · ');
  $('edited').className = edited.stuck ? 'stuck' : '';
  $('again').textContent = REPORT.edit_command && editor.at && !edited.missing ? REPORT.edit_command.replace('FILE', nameOfFile(fileForm(editor.sheets[editor.panel]))) : '';
}

/** Return the format that can express a schedule: torch's CSV lacks slices, rounds and partial recompute. */
const fileForm = sheet => sheet.slices > 1 || sheet.rounds > 1 || sheet.feedsBack || sheet.partly.length ? 'json' : 'csv';

const nameOfFile = form => `${editor.sheets[editor.panel].schedule}-edited.${form}`;

/** Download a file. */
function handOver(name, content, type) {
  const link = element('a', { href: typeof content === 'string' && content.startsWith('data:') ? content : URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
}

/** Return the edited schedule as JSON of schema ppsim.run/1. */
function jsonOf(sheet, state) {
  const { timed, makespan, bubble_rate, peak } = answerOf(sheet, state);
  const { ops } = timed;
  const list = values => Array.from(values);
  return JSON.stringify({
    schema: 'ppsim.run/1', inputs: { ppsim: REPORT.inputs.ppsim, edited: editsText() }, schedule: 'custom', devices: sheet.devices, stages: sheet.stages,
    microbatches: state.sources.length / sheet.slices / sheet.rounds, ...sheet.slices > 1 ? { slices: sheet.slices } : {},
    ...sheet.rounds > 1 ? { steps: sheet.rounds } : {}, ...sheet.feedsBack ? { feeds_back: true } : {}, ...sheet.partly.length ? { partly: sheet.partly } : {},
    placement: sheet.placed, unit: REPORT.unit, makespan, bubble_rate, peak_activations: peak,
    ops: { device: list(ops.device), kind: Array.from(ops.kind, kind => sheet.kinds[kind].name), stage: list(ops.stage), microbatch: list(ops.microbatch), start: list(timed.start), end: list(timed.end), pair: list(ops.pair) },
  });
}

/** Save the edited schedule in a format. */
function saveEdited(form) {
  const [sheet, state] = [editor.sheets[editor.panel], stateNow()];
  if (form === 'svg') return unmarked(save);
  if (form === 'csv') return handOver(nameOfFile(form), csvOf(sheet, state), 'text/csv');
  if (form === 'json') return handOver(nameOfFile(form), jsonOf(sheet, state), 'application/json');
  return unmarked(savePng);
}

/** Act while no op is selected or highlighted in the chart, then restore both. */
function unmarked(act) {
  const { selected } = editor;
  const { op, highlight } = view;
  editor.selected = view.op = view.highlight = null;
  draw();
  act();
  editor.selected = selected;
  Object.assign(view, { op, highlight });
  draw();
}

/** Save the view as PNG, with two pixels per pixel of the page. */
function savePng() {
  const { width, height, text: drawn } = savedPicture();
  const image = new Image();
  image.onload = () => {
    const canvas = element('canvas', { width: 2 * width, height: 2 * height });
    canvas.getContext('2d').drawImage(image, 0, 0, 2 * width, 2 * height);
    handOver(nameOfFile('png'), canvas.toDataURL('image/png'), '');
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawn)}`;
}

/** Copy a link to this state; if it is too long for a link, save a file instead. */
function copyLink() {
  if (editsText().length > LONGEST_ADDRESS) {
    saveEdited('json');
    return say(`${editor.at} edits are too many for a link: saved ${nameOfFile('json')} instead`);
  }
  return copyText(location.href, 'Link copied', say, () => {
    const link = element('span', { textContent: location.href });
    $('status').append(': ', link);
    return link;
  });
}
