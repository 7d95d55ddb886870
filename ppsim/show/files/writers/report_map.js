// The map of the cluster at the time of the pointer on the chart, or of a slider: the op that each device runs, and the
// links that carry a message.

$('cluster').innerHTML = new TextDecoder().decode(await inflate(REPORT.cluster));
const moment = $('moment');
let instant = null; // null for the whole iteration

/** Place the cursor on the chart; hide it if its time is out of sight. */
function placeCursor() {
  const x = instant === null || !shown ? -1 : xOf(shown, instant);
  $('cursor').hidden = x < 0 || x > shown.plotWidth;
  $('cursor').style.left = `${shown.left + x}px`;
}

function mapAt(time) {
  instant = time;
  const [timeline] = TIMELINES;
  const { ops, lane, devices } = timeline;
  const running = Array.from({ length: devices }, (_, device) => time === null ? -1 : opAt(timeline, device, time));
  document.querySelectorAll('.map [data-device]').forEach((place, device) => {
    const op = running[device];
    const kind = LOOKS.kinds[ops.kind[op]];
    const colour = ops.colour[op];
    place.querySelector('.now').style.fill = FILLS[colour] ?? '';
    const [name, doing] = place.querySelectorAll('text');
    name.style.fill = doing.style.fill = TEXTS[colour] ?? '';
    doing.textContent = kind ? labelOf(timeline, op) : '';
    place.classList.toggle('waits', time !== null && !kind);
  });
  const carrying = new Set();
  for (let i = 0; i < lane.left.length && time !== null; i++)
    if (lane.left[i] <= time && time < lane.right[i]) carrying.add(`${lane.device[i]}-${lane.target[i]}`);
  const links = [...document.querySelectorAll('.map [data-link]')];
  for (const link of links) link.classList.toggle('rests', time !== null && !carrying.has(link.dataset.link));
  const busy = running.filter(op => op >= 0).length;
  const carry = links.filter(link => carrying.has(link.dataset.link)).length;
  const said = time === null ? 'the whole iteration'
    : `${timed(time)}: ${busy} of ${devices} devices compute, ${carry} of ${links.length} links carry a message`;
  $('moment-said').textContent = said;
  moment.value = time === null ? 0 : 1000 * time / timeline.makespan;
  moment.setAttribute('aria-valuetext', said);
  placeCursor();
}

$('chart').append(element('div', { id: 'cursor', hidden: true }));
moment.addEventListener('input', () => mapAt(Math.min(+moment.value / 1000, 1 - EPSILON) * TIMELINES[0].makespan));
$('whole').addEventListener('click', () => mapAt(null));
$('chart').addEventListener('pointermove', event => {
  const over = event.buttons ? null : place(event);
  if (over && over.time >= 0 && over.time < TIMELINES[0].makespan) mapAt(over.time);
});
new MutationObserver(placeCursor).observe($('marks'), { childList: true, subtree: true });
