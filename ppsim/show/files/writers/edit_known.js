// Which schedule edited queues are, or are near to: the page carries the queues that families make at this size.

const NEAR = 8; // ops out of place, up to which a schedule is near

/**
 * The schedules of families at this size, from the page's column of them (show/files/editing.py): names and queues.
 * Where it has none, the one name is of the schedule that the page is about.
 */
function knownOf(sheet, { names, ops }, rows) {
  if (!rows) return [{ name: names[0], queues: sheet.base.queues }];
  const held = Array.from({ length: sheet.devices }, () => []); // by device, the stage of each chunk
  for (const row of sheet.placement) row.forEach((device, stage) => held[device].push(stage));
  const queues = [[]];
  let [following, next] = [[], -1]; // by place the next microbatch, and the one that the row states
  const number = i => rows[i] - (rows[i - 1] ?? 0);
  for (let i = 0; i < rows.length; i++) {
    const place = number(i);
    if (place === -1) next = number(++i);
    else if (place === -2) {
      queues.push([]);
      following = [];
    } else {
      const [kind, chunk, paired] = ops[place];
      const stage = chunk < 0 ? -2 - chunk : held[(queues.length - 1) % sheet.devices][chunk];
      const microbatch = next >= 0 ? next : following[place] ?? 0;
      queues.at(-1).push(packOp(sheet, kind, stage, microbatch, paired));
      [following[place], next] = [microbatch + 1, -1];
    }
  }
  return names.map((name, i) => ({ name, queues: queues.slice(i * sheet.devices, (i + 1) * sheet.devices) }));
}

/** How many ops of a queue have to be moved to make another of the same ops; Infinity where it has others. */
function opsAway(queue, target) {
  if (queue.length !== target.length) return Infinity;
  const place = new Map(target.map((code, i) => [code, i]));
  const ends = []; // the least last place of an increasing run of each length
  for (const code of queue) {
    const at = place.get(code);
    if (at === undefined) return Infinity;
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] < at) low = middle + 1; else high = middle;
    }
    ends[low] = at;
  }
  return queue.length - ends.length;
}

/** The schedule that queues are, or the nearest one with how many ops are out of place; null where none is near. */
function recognised(sheet, state) {
  if (!sheet.known || state.sources.length !== sheet.base.sources.length) return null;
  let best = null;
  sheet.known.forEach(({ name, queues }, number) => {
    let away = 0;
    for (let device = 0; device < sheet.devices && away <= NEAR; device++) away += opsAway(state.queues[device], queues[device]);
    if (away <= NEAR && (!best || away < best.away)) best = { name, number, away };
  });
  return best;
}

/** The same in words; of a large schedule only its own name is known. */
function recognisedWords(found, { known, base }) {
  if (!found) return known?.[0]?.queues === base.queues ? 'no other schedule of so many ops is named' : '';
  if (!found.away) return `these queues are ${found.name}`;
  return `${found.away} op${found.away === 1 ? '' : 's'} from ${found.name}`;
}

Object.assign(EDITS, {
  /** Become a schedule that the page knows. */
  n(sheet, state, number) {
    const known = sheet.known ?? [];
    placeIn(number, known.length, 'schedule of this page');
    if (state.sources.length !== sheet.base.sources.length) throw Error('a microbatch was added or taken off; undo that first');
    return { ...state, partial: false, note: '', queues: known[number].queues };
  },
});

Object.assign(window.ppsim, {
  name: () => recognised(editor.sheets[editor.panel], stateNow()),
  become: number => changed(() => edit(editor.panel, 'n', number)),
  known: () => (editor.sheets[editor.panel].known ?? []).map(({ name }) => name),
});
