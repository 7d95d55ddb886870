// The schedule that edited queues equal or resemble: the page has the queues that schedule families make at this size.

const NEAR = 8; // ops out of place, up to which queues resemble a schedule

const HASH_FACTORS = [0x9E3779B1, 0x7FEB352D]; // as in show/files/editing.py

/** Return a hash of queues as text, equal to hash_queues of show/files/editing.py. */
function hashOfQueues(queues) {
  const [first, second] = HASH_FACTORS;
  const [high, low] = HASH_FACTORS.map(factor => {
    let [op, sum] = [0, 0];
    queues.forEach((queue, device) => {
      for (const code of queue) {
        let x = Math.imul(Math.imul(Math.imul(code, factor) + device, factor) + op++, factor);
        x = Math.imul(x ^ x >>> 16, first);
        x = Math.imul(x ^ x >>> 15, second);
        sum += (x ^ x >>> 16) >>> 0;
      }
    });
    return sum % 2 ** 32;
  });
  return (high * 2 ** 19 + (low >>> 13)).toString(36);
}

/** Return the schedules of families at this size (show/files/editing.py): names, hashes, and the queues of the first ones. */
async function knownOf(sheet, known) {
  const lines = new TextDecoder().decode(await inflate(known.names)).split('\n');
  const whole = [...known.own ? [sheet.base.queues] : [], ...known.rows ? queuesOfRows(sheet, known.ops, await column(known.rows)) : []];
  return lines.map((line, i) => {
    const at = line.lastIndexOf(' ');
    return { name: line.slice(0, at), hash: line.slice(at + 1), queues: whole[i] };
  });
}

/** Return the queues of schedules from the page's packed column. */
function queuesOfRows(sheet, ops, rows) {
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
  return Array.from({ length: (queues.length - 1) / sheet.devices }, (_, i) => queues.slice(i * sheet.devices, (i + 1) * sheet.devices));
}

/** Return the number of ops to move until a queue equals the target; Infinity if they have different ops. */
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

/** Return the schedule that queues equal, or the nearest one and the number of ops out of place; null if none is near. */
function recognised(sheet, state) {
  if (!sheet.known || state.sources.length !== sheet.base.sources.length) return null;
  const hash = hashOfQueues(state.queues);
  const same = sheet.known.findIndex(each => each.hash === hash);
  if (same >= 0) return { name: sheet.known[same].name, number: same, away: 0 };
  let best = null;
  becomes(sheet).forEach(({ name, queues }, number) => {
    let away = 0;
    for (let device = 0; device < sheet.devices && away <= NEAR; device++) away += opsAway(state.queues[device], queues[device]);
    if (away <= NEAR && (!best || away < best.away)) best = { name, number, away };
  });
  return best;
}

/** Return the schedules whose queues the page has. */
const becomes = ({ known }) => (known ?? []).filter(({ queues }) => queues);

/** Return the recognised schedule as text, or the schedules that were too large to compare. */
function recognisedWords(found, { leftOut }) {
  if (!found) return leftOut ? `not compared with ${leftOut.join(', ')}` : '';
  if (!found.away) return `these queues are ${found.name}`;
  return `${found.away} op${found.away === 1 ? '' : 's'} from ${found.name}`;
}

Object.assign(EDITS, {
  /** Replace the queues by those of a schedule that the page has. */
  n(sheet, state, number) {
    const known = becomes(sheet);
    placeIn(number, known.length, 'schedule of this page');
    if (state.sources.length !== sheet.base.sources.length) throw Error('a microbatch was added or removed; undo that first');
    return { ...state, partial: false, note: '', queues: known[number].queues };
  },
});

Object.assign(window.ppsim, {
  name: () => recognised(editor.sheets[editor.panel], stateNow()),
  become: number => changed(() => edit(editor.panel, 'n', number)),
  known: () => becomes(editor.sheets[editor.panel]).map(({ name }) => name),
});
