
// The live page: controls into a line of the command, the line's answer into the page.

const LIVE = JSON.parse($('live-data').textContent); // schedules, formats, the controls and the first line
const sliders = new Map(); // by option: the number beside the slider
let chosen = []; // schedules, as typed
let asked = 0; // the newest request
let busy = false;
let resting = 0;

/** A slider with a number beside it, which takes more than the slider reaches. */
function addSlider(place, { option, label, least, most, step, value }) {
  const range = element('input', { type: 'range', min: least, max: most, step, value: value || least, 'aria-label': `${label} (slider)` });
  const number = element('input', { type: 'number', min: 0, step, value, 'aria-label': label });
  range.oninput = () => { number.value = range.value; askSoon(); };
  number.oninput = () => { range.value = number.value; askSoon(); };
  $(place).append(element('label', { className: 'plain' }, label, range, number));
  sliders.set(option, { number, usual: String(value), range });
}

function showChosen() {
  $('chosen').replaceChildren(...chosen.map((name, place) => {
    const button = element('button', { type: 'button', textContent: name, title: `Leave out ${name}` });
    button.onclick = () => { chosen.splice(place, 1); showChosen(); askSoon(); };
    return element('li', {}, button);
  }));
}

/** What the controls ask for, as words of a command line; times at their usual value are left out. */
function lineNow() {
  const words = [...chosen];
  for (const [option, { number, usual }] of sliders) {
    if (number.value === '' || (number.value === usual && !LIVE.always.includes(option))) continue;
    words.push(option, number.value);
  }
  if ($('p2p').value) words.push('--p2p', $('p2p').value);
  if ($('recompute').checked) words.push('--recompute');
  return [...words, $('more').value].join(' ').trim();
}

/** Set the controls to a line, as far as they have its options; the rest goes to the text field. */
function setControls(line) {
  const words = line.split(' ').filter(Boolean);
  const rest = [];
  chosen = [];
  for (const { number, range, usual } of sliders.values()) [number.value, range.value] = [usual, usual || range.min];
  $('p2p').value = '';
  $('recompute').checked = false;
  for (let i = 0; i < words.length; i++) {
    const word = words[i];
    const slider = sliders.get(word);
    if (slider && /^[\d.e+-]+$/.test(words[i + 1] ?? '')) slider.number.value = slider.range.value = words[++i];
    else if (word === '--p2p') $('p2p').value = words[++i];
    else if (word === '--recompute') $('recompute').checked = true;
    else if (word.startsWith('-') || rest.length) rest.push(word);
    else chosen.push(word);
  }
  $('more').value = rest.join(' ');
  showChosen();
}

/** Ask now, or as soon as the last answer is shown; the newest request wins. */
function askSoon() {
  asked++;
  if (!busy) ask();
}

async function ask() {
  if (busy) return;
  busy = true;
  const number = asked;
  const line = lineNow();
  try {
    const response = await fetch(`view?line=${encodeURIComponent(line)}`);
    const answer = await response.json();
    if (response.ok) await showAnswer(answer, line);
    else refuse(answer);
  } catch (error) {
    refuse(unanswered(error));
  }
  busy = false;
  root.dataset.answered = number;
  if (asked !== number) ask();
}

async function showAnswer(answer, line) {
  $('refused').textContent = '';
  hideTip();
  view.op = null;
  const [from, to] = view.range;
  const zoomed = !folded && to - from < 0.99 * SPAN;
  take(answer);
  await showReport(zoomed && from < 0.9 * SPAN ? [from, to] : null);
  document.querySelector('h1').textContent = TIMELINES.map(t => t.title).join(' · ');
  clearTimeout(resting);
  resting = setTimeout(remember, 400, line);
}

/** Put the line into the address, once the controls rest: browsers bound how often it may change. */
function remember(line) {
  try {
    history.replaceState(null, '', `?line=${encodeURIComponent(line)}${location.hash}`);
  } catch {
    // the address stays behind
  }
}

function refuse({ error, hint }) {
  $('refused').textContent = hint ? `${error}\ntry: ${hint}` : error;
}

const unanswered = error => ({ error: `The server does not answer (${error.message}).`, hint: 'ppsim serve' });

/** Hand files over and show them; one that is refused, or cannot be read, is said and ends it. */
const drop = files => readAll(files).catch(error => refuse(unanswered(error)));

async function readAll(files) {
  for (const file of files) {
    const name = file.name.replace(/[^A-Za-z0-9._-]/g, '_').replace(/^[^A-Za-z0-9]/, 'x').slice(-100);
    const response = await fetch(`drop?name=${encodeURIComponent(name)}`, { method: 'POST', body: file });
    const answer = await response.json();
    if (!response.ok) return refuse(answer);
    for (const [option, stated] of Object.entries(answer)) {
      const slider = sliders.get(option);
      if (slider) slider.number.value = slider.range.value = stated;
    }
    if (!chosen.includes(`dropped:${name}`)) chosen.push(`dropped:${name}`);
  }
  showChosen();
  return askSoon();
}

function download() {
  const suffix = $('download').value;
  $('download').value = '';
  if (!suffix) return;
  fetch(`export?form=${suffix}&line=${encodeURIComponent(lineNow())}`).then(async response => {
    if (!response.ok) return refuse(await response.json());
    const link = element('a', { download: `ppsim${suffix}`, href: URL.createObjectURL(await response.blob()) });
    link.click();
    return URL.revokeObjectURL(link.href);
  }).catch(error => refuse(unanswered(error)));
}

function startLive() {
  for (const [place, controls] of Object.entries(LIVE.controls)) controls.forEach(each => addSlider(place, each));
  $('add').append(...LIVE.schedules.map(name => new Option(name, name)));
  $('download').append(...LIVE.formats.map(suffix => new Option(suffix, suffix)));
  $('add').onchange = () => { chosen.push($('add').value); $('add').value = ''; showChosen(); askSoon(); };
  $('p2p').onchange = $('recompute').onchange = $('more').onchange = askSoon;
  $('download').onchange = download;
  $('file').onchange = () => drop([...$('file').files]);
  $('controls').onsubmit = event => { event.preventDefault(); askSoon(); };
  for (const kind of ['dragover', 'dragleave', 'drop'])
    addEventListener(kind, event => {
      event.preventDefault();
      $('controls').classList.toggle('over', kind === 'dragover');
      if (kind === 'drop') drop([...event.dataTransfer.files]);
    });
  const line = new URLSearchParams(location.search).get('line');
  setControls(line ?? LIVE.line);
  if (line !== null && line !== LIVE.line) askSoon();
}

startLive();
