
// The live page: it reads fields from its controls, named as the command's options, and shows the answer to them.

const LIVE = JSON.parse($('live-data').textContent); // schedules, formats, the controls and the first fields
const sliders = new Map(); // by field: its slider, its number input and its default
let chosen = []; // schedules, as typed
let asked = 0; // number of the newest request
let busy = false;
let resting = 0;
let later = new AbortController(); // of requests after the first answer: searched orders, explanations
const lastOf = new Map(); // by name: the last timeline of a schedule whose order is searched for
let left = {}; // by name: the reason why a schedule is not in the chart
let pinned = null; // a timeline to compare with, drawn over the first one
let answered = null; // the fields of the chart
const REST_MS = 200; // pause of the controls before searches and explanations are requested
const LATE_MS = 150; // time without an answer after which the old chart is dimmed

/** Add a slider with a number input, whose range is larger than the slider's. */
function addSlider(place, { field, label, least, most, step, value }) {
  const range = element('input', { type: 'range', min: least, max: most, step, value: value || least, 'aria-label': `${label} (slider)` });
  const number = element('input', { type: 'number', min: 0, step, value, 'aria-label': label });
  range.oninput = () => { number.value = range.value; askSoon(); };
  number.oninput = () => { range.value = number.value; askSoon(); };
  $(place).append(element('label', { className: 'plain' }, label, range, number));
  sliders.set(field, { number, usual: String(value), range });
}

/** Return the number of chunks of the slider. */
const chunksNow = () => sliders.get('chunks').number.value;

/** Return a schedule's name for the request: NAME:V if it supports several numbers of chunks and the slider has one. */
const spellChosen = name => chunksNow() && LIVE.chunked.includes(name) ? `${name}:${chunksNow()}` : name;

/** Disable the slider of chunks unless a chosen schedule supports several numbers of chunks. */
function followChunks() {
  const { number, range } = sliders.get('chunks');
  const none = !chosen.some(name => LIVE.chunked.includes(name));
  number.disabled = range.disabled = none;
  number.title = range.title = none ? 'each of these schedules has one number of chunks' : '';
}

function showChosen() {
  followChunks();
  $('chosen').replaceChildren(...chosen.map((name, place) => {
    const reason = left[spellChosen(name)];
    const button = element('button', { type: 'button', textContent: name, title: reason ?? `Leave out ${name}`, className: reason ? 'left' : '' });
    if (reason) button.append(element('span', { textContent: reason.split(/[;\n]/)[0].replace(`${name} `, '') }));
    button.onclick = () => { chosen.splice(place, 1); showChosen(); askSoon(); };
    return element('li', {}, button);
  }));
}

/** Return the fields of the controls; costs with their default value are left out. */
function fieldsNow() {
  const { names = [], ...more } = readOptions($('more').value);
  const fields = { names: [...chosen.map(spellChosen), ...names] };
  for (const [field, { number, usual }] of sliders) {
    if (field === 'chunks' || number.matches(':disabled') || number.value === '' || (number.value === usual && !LIVE.always.includes(field))) continue;
    fields[field] = number.value;
  }
  if ($('model').value) Object.assign(fields, { model: $('model').value, cluster: $('cluster').value });
  if ($('p2p').value) fields.p2p = $('p2p').value;
  if ($('recompute').checked) fields.recompute = true;
  return { ...fields, ...more };
}

/** Return typed options such as `--speed 1,1,0.9 --link 1-2=0.5` as fields; a repeated option is a list. */
function readOptions(text) {
  const fields = {};
  const words = text.match(/(?:'[^']*'|"[^"]*"|\S)+/g) ?? [];
  for (let i = 0; i < words.length; i++) {
    const [, spelled, glued] = /^--?([a-z][\w-]*)(?:=(.*))?$/i.exec(words[i]) ?? [];
    const alone = spelled && glued === undefined && /^(--?[a-z]|$)/i.test(words[i + 1] ?? '');
    const value = alone ? true : unquote(spelled ? glued ?? words[++i] : words[i]);
    const field = spelled ? spelled.replaceAll('-', '_') : 'names';
    if (Object.hasOwn(fields, field) || field === 'names') fields[field] = [fields[field] ?? []].flat().concat(value);
    else fields[field] = value;
  }
  return fields;
}

const unquote = word => word.replace(/'([^']*)'|"([^"]*)"/g, (_, one, two) => one ?? two);
const quote = word => /[\s'"]/.test(word) ? (word.includes("'") ? `"${word}"` : `'${word}'`) : word;

/** Return fields as typed options. */
const spell = fields => Object.entries(fields).flatMap(([field, value]) => [value].flat().map(
  each => `--${field.replaceAll('_', '-')}${each === true ? '' : ` ${quote(String(each))}`}`)).join(' ');

/** Set the controls to fields; fields without a control go to the text field of more options. */
function setControls(fields) {
  const { names = [], ...rest } = fields;
  chosen = [names].flat();
  const split = chosen.map(name => /^([a-z][\w-]*):(\d+)$/.exec(name)).filter(each => each && LIVE.chunked.includes(each[1]));
  if (!rest.chunks && split.length && new Set(split.map(each => each[2])).size === 1
      && !chosen.some(name => LIVE.chunked.includes(name))) {
    rest.chunks = split[0][2];
    chosen = chosen.map(name => split.find(each => each[0] === name)?.[1] ?? name);
  }
  for (const [field, { number, range, usual }] of sliders) {
    [number.value, range.value] = [usual, usual || range.min];
    if (!/^[\d.e+-]+$/.test(rest[field] ?? '')) continue;
    number.value = range.value = rest[field];
    delete rest[field];
  }
  if (LIVE.models.includes(rest.model) && LIVE.clusters.includes(rest.cluster)) {
    $('model').value = rest.model;
    $('cluster').value = rest.cluster;
    delete rest.model;
    delete rest.cluster;
  }
  followModel();
  $('p2p').value = rest.p2p ?? '';
  if ($('p2p').value) delete rest.p2p;
  $('recompute').checked = rest.recompute === true;
  if (rest.recompute === true) delete rest.recompute;
  $('more').value = spell(rest);
  showChosen();
}

/** With a model, disable the costs, which follow from it, and show the link to its plans. */
function followModel() {
  const model = $('model').value;
  $('cost-controls').disabled = Boolean(model);
  for (const id of ['size-controls', 'cluster', 'gpus', 'gbs']) $(id).disabled = !model;
  $('plan').hidden = !model;
  $('plan').href = `plan?${new URLSearchParams({ model, ...Object.fromEntries(['cluster', 'gpus', 'gbs'].map(id => [id, $(id).value])) })}`;
}

/** Send fields to the server. */
const post = (path, fields, signal) => fetch(path, { method: 'POST', body: JSON.stringify(fields), signal });

const isSearched = name => LIVE.searched.includes(name.split(':')[0]);

/** Request an answer now, or once the last answer is shown; a newer request cancels searches of older ones. */
function askSoon() {
  asked++;
  later.abort();
  root.toggleAttribute('data-told', false);
  if (!busy) ask();
}

/** Request schedules that are generated at once, then searched ones, then the explanation. */
async function ask() {
  busy = true;
  const number = asked;
  const fields = fieldsNow();
  const slow = fields.names.filter(isSearched);
  const alone = slow.length === fields.names.length && slow.length > 0;
  let shown = !alone && await askFor(fields, slow, 'computing …');
  busy = false;
  if (!slow.length) root.dataset.answered = number;
  if (asked !== number) return ask();
  later = new AbortController();
  const { signal } = later;
  if (slow.length) {
    if (shown || alone) mark(`searching ${slow.join(', ')} …`, alone);
    if (!alone) await pause(REST_MS); // as a search slows down other requests
    shown = !signal.aborted && await askFor(fields, [], 'searching …', signal);
    if (!signal.aborted) root.dataset.answered = number;
  }
  if (shown && !signal.aborted) askWhy(fields, signal);
}

/** Show the answer to fields without the slow schedules, and a sign if it is late; return whether it was shown. */
async function askFor(fields, slow, sign, signal) {
  const number = asked;
  const late = setTimeout(() => { if (!signal) mark(sign); }, LATE_MS);
  try {
    const response = await post('view', { ...fields, names: fields.names.filter(name => !slow.includes(name)) }, signal);
    const answer = await response.json();
    if (signal?.aborted) return false;
    if (response.ok) await inTurn(() => signal?.aborted || showAnswer(answer, fields, slow)).catch(fault);
    else refuse(answer);
    if (response.ok && asked === number) mark('');
    return response.ok;
  } catch (error) {
    if (!signal?.aborted) refuse(unanswered(error));
    return false;
  } finally {
    clearTimeout(late);
  }
}

const pause = time => new Promise(done => { setTimeout(done, time); });

/** Explain the first schedule's time, and suggest changes, once the controls rest. */
async function askWhy(fields, signal) {
  await pause(REST_MS);
  if (signal.aborted) return;
  const story = await post('why', fields, signal).then(response => response.ok ? response.json() : null).catch(() => null);
  if (!signal.aborted) await inTurn(() => signal.aborted || showWhy(story)).catch(fault);
}

async function showWhy(story) {
  for (const id of ['lead', 'story', 'try']) $(id).hidden = true;
  root.toggleAttribute('data-told', true);
  if (!story) return;
  REPORT.story = story;
  await showStory();
  $('lead').hidden = false; // it has the change to try, unlike the verdict
  comparePinned();
  drawSoon();
  const [, key, value] = /^(mb|schedule)=([\w:-]+)/.exec(story.first) ?? [];
  $('try').hidden = !key;
  $('try').onclick = () => {
    if (key === 'mb') setSliders({ mb: value });
    else chosen = [value, ...chosen.slice(chosen.includes(value) ? 0 : 1).filter(name => name !== value)];
    showChosen();
    askSoon();
  };
}

let showing = Promise.resolve();

/** Show one thing after the other. */
const inTurn = work => showing = showing.catch(() => {}).then(work);

/** Show that the chart is older than the controls, and dim it; with an empty text, that it is up to date. */
function mark(what, dims = true) {
  $('stale').textContent = what;
  $('stale').hidden = !what;
  root.toggleAttribute('data-stale', Boolean(what) && dims);
}

/** Show the last timelines of schedules whose search still runs in their places, each with a sign. */
function keepOld(fields, slow) {
  const fresh = [...TIMELINES];
  const names = fields.names.filter(name => !left[name]);
  if (!slow.length) names.forEach((name, i) => { if (isSearched(name) && names.length === fresh.length) lastOf.set(name, fresh[i]); });
  const old = name => lastOf.has(name) && REPORT.unit === lastOf.get(name).of
    ? [{ ...lastOf.get(name), old: true, title: `${lastOf.get(name).title}: as before, searching …` }] : [];
  const all = names.flatMap(name => slow.includes(name) ? old(name) : fresh.splice(0, 1));
  TIMELINES = REPORT.timelines = [...all, ...fresh];
  const baseline = TIMELINES.findIndex(t => !t.old);
  for (const timeline of TIMELINES) {
    if (slow.length) Object.assign(timeline, { baseline, versus_baseline: timeline.makespan / TIMELINES[baseline].makespan - 1 });
    if (!timeline.old) timeline.of = REPORT.unit;
  }
  SPAN = Math.max(...TIMELINES.map(t => t.makespan)) || 1;
}

/** Pin the first timeline, so that its outlines are drawn over later ones; or unpin it. */
function pin() {
  const [{ ops, offsets, makespan, title }] = TIMELINES;
  const times = { start: ops.start.slice(), end: ops.end.slice(), makespan, unit: REPORT.unit };
  pinned = pinned ? null : { offsets, title, ...times };
  press('pin', Boolean(pinned));
  comparePinned();
  draw();
}

/** Compare with the pinned run, if both have the same unit of time. */
function comparePinned() {
  const alike = pinned?.unit === REPORT.unit;
  const ghosts = [...REPORT.story?.ghosts ?? [], ...alike ? [pinned] : []];
  const own = alike ? ghosts.length - 1 : -1;
  view.story = ghosts.length ? { ghosts, ghost: own, pinned: own, lit: null, outlines: false } : null;
  if (alike) SPAN = Math.max(SPAN, pinned.makespan);
  const [{ makespan }] = TIMELINES;
  const run = pinned && `${pinned.title} (${number(pinned.makespan)} ${pinned.unit})`;
  const ratio = alike && pinned.makespan > 0 ? `${change(makespan / pinned.makespan - 1)} compared with ` : '';
  $('pinned').textContent = !pinned ? '' : alike ? ratio + run : `${run}: not compared, times are in ${REPORT.unit} now`;
}

async function showAnswer(answer, fields, slow) {
  $('refused').textContent = '';
  left = answer.left ?? {};
  showChosen();
  hideTip();
  view.op = null;
  const [from, to] = view.range;
  const zoomed = !folded && to - from < 0.99 * SPAN;
  take(answer);
  keepOld(fields, slow);
  comparePinned();
  await showReport(zoomed && from < 0.9 * SPAN ? [from, to] : null);
  offerEdits(answered ?? LIVE.fields);
  answered = fields;
  $('verdict').textContent = REPORT.verdict;
  $('verdict').hidden = !REPORT.verdict;
  document.querySelector('h1').textContent = TIMELINES.map(t => t.title).join(' · ');
  clearTimeout(resting);
  resting = setTimeout(remember, 400, fields);
}

/** Offer to return to the edited schedule if its edits do not fit this one. */
function offerEdits(before) {
  const { left: edits } = editor;
  if (edits) edits.fields ??= before;
  $('regain').hidden = !edits;
  $('regain').textContent = edits
    ? `${edits.count} edit${edits.count > 1 ? 's' : ''} of the last schedule do not fit this one: go back` : '';
}

/** Write the fields into the address; called once the controls rest, as browsers limit how often it may change. */
function remember(fields) {
  const pairs = Object.entries(fields).flatMap(([field, value]) => [value].flat().map(each => [field, each]));
  try {
    history.replaceState(null, '', `?${new URLSearchParams(pairs)}${location.hash}`);
  } catch {
    // the address stays as it is
  }
}

/** Return the fields of the address; null if it has none. */
function remembered() {
  const fields = {};
  for (const [field, text] of new URLSearchParams(location.search)) {
    const value = text === 'true' ? true : text;
    fields[field] = Object.hasOwn(fields, field) ? [fields[field], value].flat() : value;
  }
  return Object.keys(fields).length ? fields : null;
}

/** Show why there is no answer; the page still shows the last one. */
function refuse({ error, hint }, what = 'the chart does not follow the controls: see the message') {
  $('refused').textContent = hint ? `${error}\ntry: ${hint}` : error;
  later.abort();
  root.toggleAttribute('data-told', false);
  mark(what);
}

const unanswered = error => ({ error: `The server does not answer (${error.message}).`, hint: 'ppsim serve' });

/** Set the sliders to the shape of a file. */
function setSliders(shape) {
  for (const [field, stated] of Object.entries(shape)) {
    const slider = sliders.get(field);
    if (slider) slider.number.value = slider.range.value = stated;
  }
}

/** Send files to the server and show them; the first file that is refused ends this with a message. */
const drop = files => readAll(files).catch(error => refuse(unanswered(error)));

/** The server's name of each file of this page: another page may have dropped one of the same name. */
const storedAs = new Map();

async function readAll(files) {
  mark('reading …');
  for (const file of files) {
    const plain = file.name.replace(/[^A-Za-z0-9._-]/g, '_').replace(/^[^A-Za-z0-9]/, 'x').slice(-100);
    const name = storedAs.get(plain) ?? plain;
    const query = new URLSearchParams({ name, replaces: chosen.includes(`dropped:${name}`) });
    const response = await fetch(`drop?${query}`, { method: 'POST', body: file });
    const answer = await response.json();
    if (!response.ok) return refuse(answer);
    storedAs.set(plain, answer.name);
    setSliders(answer);
    if (!chosen.includes(`dropped:${answer.name}`)) chosen.push(`dropped:${answer.name}`);
  }
  showChosen();
  return askSoon();
}

function download() {
  const suffix = $('download').value;
  $('download').value = '';
  if (!suffix) return;
  post(`export?form=${suffix}`, fieldsNow()).then(async response => {
    if (!response.ok) return refuse(await response.json());
    const link = element('a', { download: `ppsim${suffix}`, href: URL.createObjectURL(await response.blob()) });
    link.click();
    return URL.revokeObjectURL(link.href);
  }).catch(error => refuse(unanswered(error)));
}

/** Request a new answer whenever the watched file has changed. */
function follow(before = null) {
  setTimeout(async () => {
    let changes = before;
    try {
      const response = await fetch(`changes?since=${before ?? 1}`);
      const answer = await response.json();
      if (!response.ok) refuse(answer, 'the changed file cannot be shown; this is its last version');
      else if (answer.changes !== (before ?? 1)) {
        setSliders(answer.shape);
        askSoon();
      }
      changes = answer.changes ?? before;
    } catch (error) {
      refuse(unanswered(error));
    }
    follow(changes);
  }, 1000);
}

function startLive() {
  root.dataset.live = '';
  $('lead').after($('try'));
  for (const [place, controls] of Object.entries(LIVE.controls)) controls.forEach(each => addSlider(place, each));
  $('add').append(...LIVE.schedules.map(name => new Option(name, name)));
  $('download').append(...LIVE.formats.map(suffix => new Option(suffix, suffix)));
  $('add').onchange = () => { chosen.push($('add').value); $('add').value = ''; showChosen(); askSoon(); };
  $('model').append(...LIVE.models.map(name => new Option(name, name)));
  $('cluster').append(...LIVE.clusters.map(name => new Option(name, name)));
  for (const id of ['model', 'cluster']) $(id).onchange = () => { followModel(); askSoon(); };
  for (const id of ['gpus', 'gbs']) $(id).oninput = followModel;
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
  $('pin').onclick = pin;
  $('regain').onclick = () => { setControls(editor.left.fields); askSoon(); };
  $('sheet').onclick = () => $('sheet').setAttribute('aria-expanded', $('controls').classList.toggle('open'));
  if (LIVE.watches) follow();
  const fields = remembered();
  setControls(fields ?? LIVE.fields);
  if (fields) askSoon();
  else askWhy(LIVE.fields, later.signal);
}

startLive();
