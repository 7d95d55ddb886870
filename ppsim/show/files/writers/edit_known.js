// Which schedule edited queues are, or are near to: the page carries the queues that families make at this size.

const NEAR = 8; // ops out of place, up to which a schedule is near

/** The schedules of families at this size, from the page's column of them: names, and queues as packed ops. */
function knownOf({ names, codes }) {
  const found = [];
  let queues = [[]];
  for (const code of codes) {
    if (code >= 0) queues.at(-1).push(code);
    else if (code === -1) queues.push([]);
    else {
      queues.pop();
      found.push({ name: names[found.length], queues });
      queues = [[]];
    }
  }
  return found;
}

const sameQueues = (one, other) => one.every((queue, device) => queue.length === other[device].length && queue.every((code, i) => code === other[device][i]));

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

/** The same in words. */
function recognisedWords(found) {
  if (!found) return '';
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
