// Texts and marks of an edited schedule: the cost of an edit, the distance to a proved bound, and the ops that wait for
// each other in a deadlock.

/** Return a time with its sign, such as +0.5 t_F. */
const signedTime = time => `${time < 0 ? '' : '+'}${timed(Math.abs(time) < EPSILON * SPAN ? 0 : time)}`;

const SORTED = [new WeakMap(), new WeakMap()]; // by queue, its sorted ops: unchanged, and with full backwards as halves

/** Return the sorted ops of a queue; with `halves`, a full backward counts as I and W. */
function sortedOps(sheet, queue, halves) {
  const known = SORTED[+halves];
  if (known.has(queue)) return known.get(queue);
  const found = [];
  for (const code of queue) {
    const { kind, stage, microbatch } = unpackOp(sheet, code);
    const kinds = halves && kind === BACKWARD_KIND ? [INPUT_KIND, WEIGHTS_KIND] : [kind];
    for (const each of kinds) found.push(packOp(sheet, each, stage, microbatch));
  }
  known.set(queue, Float64Array.from(found).sort());
  return known.get(queue);
}

/** Return whether every device has its original ops, in any order. */
const hasSameOps = (sheet, { queues }, halves) => queues.every((queue, device) => {
  const first = sheet.base.queues[device];
  if (queue === first) return true;
  const [own, other] = [queue, first].map(each => sortedOps(sheet, each, halves));
  return own.length === other.length && own.every((code, i) => code === other[i]);
});

/** Return a lower bound on the makespan of a state's ops, and the ops for which it is proved; null if none is known. */
function boundOf(sheet, state, answer, original) {
  if (state.sources.length !== sheet.base.sources.length || state.sources.some((source, i) => source !== i)) return null;
  if (hasSameOps(sheet, state, false)) {
    const within = answer.peak.every((peak, device) => peak <= original.peak_activations[device]);
    if (within && Number.isFinite(original.bound)) return { time: original.bound, of: 'these ops in this memory' };
    return sheet.bound === undefined ? null : { time: sheet.bound, of: 'these ops in any memory' };
  }
  const split = sheet.bound_split !== undefined && hasSameOps(sheet, state, true);
  return split ? { time: sheet.bound_split, of: 'these ops, backwards split or not, in any memory' } : null;
}

/** Return the distance of a makespan to its bound as text. */
function aboveBound(bound, makespan) {
  if (!bound) return '';
  const above = makespan - bound.time;
  return above <= EPSILON * makespan ? `no order of ${bound.of} takes less` : `${timed(above)} above the proved bound of ${bound.of}`;
}

/** Return the devices whose peak exceeds the cap, in the unit of the page's first curve. */
const overCap = ({ curves: [curve] }) => REPORT.cap ? [...curve.peak.keys()].filter(device => curve.peak[device] > capAt(device) * (1 + EPSILON)) : [];

/** Return the devices above the cap as a list of one text; empty if there are none. */
function capWords(timeline) {
  const over = overCap(timeline);
  return over.length ? [`above the cap on device${over.length > 1 ? 's' : ''} ${over.join(', ')}`] : [];
}

/** Return the legend's entries for the kinds of op and the causes of idle time in the edited timelines. */
function legendOfEdits() {
  if (!TIMELINES.some(({ edited }) => edited)) return REPORT.legend;
  const kinds = new Set(TIMELINES.flatMap(({ ops }) => [...ops.kind]));
  const causes = new Set(TIMELINES.flatMap(({ waits }) => waits ? [...waits.cause] : []));
  const known = REPORT.legend.filter(entry => entry.kinds ? entry.kinds.some(kind => kinds.has(kind)) : entry.cause < 0 || causes.has(entry.cause));
  const inSome = kind => REPORT.legend.some(entry => entry.kinds?.includes(kind));
  const more = [...kinds].filter(kind => !inSome(kind)).sort().map(kind => {
    const { name, fill, hatch } = LOOKS.kinds[kind];
    return { name: name[0].toUpperCase() + name.slice(1), colours: [fill[0]], hatch: hatch?.[0], cause: -1 };
  });
  const bubble = [...causes].filter(cause => !known.some(entry => entry.cause === cause)).sort((a, b) => a - b)
    .map(cause => ({ name: `Idle: ${LOOKS.causes[cause].name}`, colours: [], cause }));
  const first = known.findLastIndex(entry => entry.kinds) + 1;
  return [...known.slice(0, first), ...more, ...known.slice(first), ...bubble];
}

/** Return the peaks of all devices as text, with the unit once. */
function heldWords({ held }) {
  const unit = held[0].split(' ').slice(1).join(' ');
  return `${held.map(each => each.split(' ')[0]).join(' ')} ${unit}`;
}

/** Return one line on an edited timeline: makespan and its change, bubble, peaks, cap and bound. */
function editedLine(panel) {
  const timeline = TIMELINES[panel];
  const { edited } = timeline;
  const before = begunOf(panel);
  if (edited.missing && !edited.stuck) return `${edited.missing} ops left to place. So far ${timed(edited.makespan)}, peak ${heldWords(timeline)}.`;
  if (!edited.valid) {
    const ran = edited.timed.done.reduce((sum, done) => sum + done, 0);
    return `Cannot run: ${stuckWords(editor.sheets[panel], edited.timed, edited.stuck)}. ${ran} of ${edited.timed.done.length} ops run, until ${timed(edited.makespan)}.`;
  }
  const parts = [`${timed(edited.makespan)}, ${signedTime(edited.makespan - before.makespan)}`, `bubble ${percent(edited.bubble_rate)}`, `peak ${heldWords(timeline)}`];
  const { makespan: ran } = editor.originals[panel];
  if (Math.abs(ran - before.makespan) > EPSILON * ran) parts.push(`the run took ${timed(ran)}, with waits that edits do not model`);
  parts.push(...capWords(timeline));
  const bound = aboveBound(boundOf(editor.sheets[panel], stateNow(panel), edited, editor.originals[panel]), edited.makespan);
  return [...parts, ...bound ? [bound] : []].join(' · ');
}

/** Return the marks of edits as SVG: ops that cannot run are faded, deadlocked ops framed and joined, the dragged op outlined. */
function editMarks(panel, geometry, theme, index) {
  const { timeline } = panel;
  const { edited } = timeline;
  const red = LOOKS.highlight[+theme.dark];
  const found = [];
  if (editor.ghost?.panel === index) found.push(ghostMarks(panel, geometry, theme));
  if (editor.selected?.panel === index) found.push(selectedOnStrip(panel, geometry, theme));
  if (!edited.stuck) return found.join('');
  const inSight = row => panel.rows[timeline.ops.device[row]] >= 0;
  const rows = new Map([...timeline.kept].map((op, row) => [op, row]).filter(([, row]) => inSight(row)));
  const veiled = [...rows].filter(([op]) => !edited.timed.done[op]).map(([, row]) => box(panel, geometry, row));
  found.push(`<path d="${veiled.join('')}" fill="${theme.page}" fill-opacity="0.55"/>`);
  const centre = row => {
    const { ops } = timeline;
    return `${px(inPlot(geometry, (ops.start[row] + ops.end[row]) / 2))} ${px((panel.rows[ops.device[row]] + (1 - panel.lane) / 2) * panel.row)}`;
  };
  const links = edited.stuck.cycle.filter(([op, need]) => rows.has(op) && rows.has(need));
  const lines = links.map(([op, need]) => `${box(panel, geometry, rows.get(op))}${box(panel, geometry, rows.get(need))}M${centre(rows.get(op))}L${centre(rows.get(need))}`);
  const x = px(xOf(geometry, edited.makespan));
  found.push(stroked([`M${x} 0v${panel.height}`], red, '1.5" stroke-dasharray="5 3'), stroked(lines, red, 2.2));
  return `<g class="stuck">${found.join('')}</g>`;
}

/** Return the outline of the selected op as SVG if it is drawn on a strip below its row. */
function selectedOnStrip(panel, geometry, theme) {
  const { lane, bands } = panel.timeline;
  const { panel: number, device, at } = editor.selected;
  const entry = panel.lane && lane.op ? lane.op.indexOf(opOfCell(number, device, at)) : -1;
  if (entry < 0) return '';
  const [top, low] = bandPlace(panel, bands.indexOf(lane.band[entry]));
  const row = panel.rows[device];
  const place = rectangle(panel, geometry, lane.left[entry], lane.right[entry], row + top, row + low);
  return stroked([place], theme.ink, 2.5);
}

/** Return outlines as SVG: the dragged op at its new place, and the new end of the timeline. */
function ghostMarks(panel, geometry, theme) {
  const { answer, op, device, sheet } = editor.ghost;
  const { start, end, done } = answer.timed;
  if (!done[op]) return '';
  const low = sheet.kinds[answer.timed.ops.kind[op]].stream ? 1 - inset(panel.row) - panel.lane : inset(panel.row);
  const high = sheet.kinds[answer.timed.ops.kind[op]].stream ? 1 : 1 - inset(panel.row) - panel.lane;
  const row = panel.rows[device];
  const place = rectangle(panel, geometry, start[op], end[op], row + low, row + high);
  const x = px(inPlot(geometry, answer.makespan));
  return `<g class="ghost">${stroked([place], theme.page, 4)}${stroked([place, `M${x} 0v${panel.height}`], theme.ink, '2" stroke-dasharray="4 3')}</g>`;
}

/** Return the cost of an edit that is shown ahead: makespan, bubble, peaks, and changes of idle time. */
function ghostWords({ answer, sheet, before, panel }) {
  if (!answer.valid || !before.valid) return answer.valid ? timed(answer.makespan) : `cannot run: ${stuckWords(sheet, answer.timed, answer.stuck)}`;
  const causes = [before, answer].map(({ timed: each, makespan }) => sumsByCause(idleOfQueues(sheet, each, makespan)));
  const changes = LOOKS.causes.flatMap(({ name }, cause) => {
    const by = causes[1][cause] - causes[0][cause];
    return Math.abs(by) > EPSILON * answer.makespan ? [`${name} ${signedTime(by)}`] : [];
  });
  const peaks = answer.peak.map((peak, device) => peak === before.peak[device] ? `${peak}` : `${peak} (${peak > before.peak[device] ? '+' : '−'}${Math.abs(peak - before.peak[device])})`);
  const times = drawnTimes(answer.timed, answer.makespan);
  const over = REPORT.cap ? capWords({ curves: curvesOf(sheet, answer.timed, times, answer, editor.originals[panel]) }) : [];
  const lines = [`${timed(answer.makespan)} · bubble ${percent(answer.bubble_rate)}`, `peak activations ${peaks.join(' ')}`, ...over,
    changes.length ? `idle: ${changes.join(', ')}` : 'idle time of each cause as before'];
  return lines.join('\n');
}
