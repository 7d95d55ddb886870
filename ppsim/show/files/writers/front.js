// Time against memory: the points, a front for each group, and the same points as a table.

const DATA = JSON.parse($('ppsim-data').textContent);
let WIDE = 820; // of the chart at most; less on a narrow page, so that texts keep their size
let TALL = 560;
const EDGE = { left: 62, right: 24, top: 16, bottom: 48 };
const CROWD = 28; // with more points, only points of fronts have a name; others show it under the pointer
const hidden = new Set(); // families that the reader has switched off
let sorting = { by: 'time', up: true };

const shownPoints = () => {
  const wanted = $('filter').value.trim().toLowerCase();
  return DATA.points.filter(({ name, family, group }) => (!DATA.grouped || group === $('group').value) && !hidden.has(family) && name.toLowerCase().includes(wanted));
};

const lookOf = family => DATA.families[family];

function draw() {
  const points = shownPoints();
  if (!points.length) {
    $('chart').innerHTML = '<p class="muted">no name contains this text</p>';
    return fillTable(points);
  }
  WIDE = Math.min(820, Math.max(320, $('chart').clientWidth));
  TALL = Math.max(400, Math.round(0.683 * WIDE));
  const dark = +(root.dataset.theme === 'dark');
  const x = scaleOf(points.map(p => p.time), EDGE.left, WIDE - EDGE.right, false);
  const y = scaleOf(points.map(p => p.memory), TALL - EDGE.bottom, EDGE.top, true);
  const parts = [];
  for (const tick of x.ticks)
    parts.push(`<line class="grid" x1="${x.at(tick)}" x2="${x.at(tick)}" y1="${EDGE.top}" y2="${TALL - EDGE.bottom}"/>`
      + `<text class="muted" text-anchor="middle" x="${x.at(tick)}" y="${TALL - EDGE.bottom + 17}">${number(tick)}</text>`);
  for (const tick of y.ticks)
    parts.push(`<line class="grid" x1="${EDGE.left}" x2="${WIDE - EDGE.right}" y1="${y.at(tick)}" y2="${y.at(tick)}"/>`
      + `<text class="muted" text-anchor="end" x="${EDGE.left - 7}" y="${y.at(tick) + 4}">${number(tick)}</text>`);
  parts.push(`<text text-anchor="middle" x="${(WIDE + EDGE.left) / 2}" y="${TALL - 8}">${escapeText(DATA.time)}</text>`
    + `<text text-anchor="middle" transform="translate(14 ${TALL / 2}) rotate(-90)">${escapeText(DATA.memory)}</text>`);
  for (const group of new Set(points.map(p => p.group))) parts.push(frontLine(points.filter(p => p.group === group && p.best), x, y));
  const order = [...points].sort((a, b) => a.best - b.best);
  for (const point of order) {
    const { colour, shape } = lookOf(point.family);
    const fill = point.best ? colour[dark] : 'var(--page)';
    parts.push(`<path class="point" data-place="${point.place}" d="${markOf(shape, x.at(point.time), y.at(point.memory), point.best ? 6 : 4.5)}"`
      + ` fill="${fill}" stroke="${colour[dark]}" stroke-width="1.6"><title>${escapeText(tellPoint(point))}</title></path>`);
  }
  parts.push(names(points, x, y));
  $('chart').innerHTML = `<svg viewBox="0 0 ${WIDE} ${TALL}" aria-hidden="true">${parts.join('')}</svg>`;
  for (const mark of $('chart').querySelectorAll('.point')) {
    mark.onpointerenter = () => pick(+mark.dataset.place, false);
    mark.onclick = () => pick(+mark.dataset.place, true);
  }
  return fillTable(points);
}

const tellPoint = p => `${p.name}\n${DATA.time}: ${p.text[0]}\n${DATA.memory}: ${p.text[1]}${p.best ? '\non the front' : ''}`;

/** Return the stepped line through a group's Pareto front as an SVG path. */
function frontLine(best, x, y) {
  const ordered = [...best].sort((a, b) => a.time - b.time);
  if (!ordered.length) return '';
  let path = `M${x.at(ordered[0].time)} ${y.at(ordered[0].memory)}`;
  for (const point of ordered.slice(1)) path += `H${x.at(point.time)}V${y.at(point.memory)}`;
  return `<path d="${path}" fill="none" stroke="var(--muted)" stroke-width="1.2"/>`;
}

/** Return boxes around the lines of the fronts, which names avoid if they can. */
function frontBoxes(points, x, y) {
  return [...new Set(points.map(p => p.group))].flatMap(group => {
    const best = points.filter(p => p.best && p.group === group).sort((a, b) => a.time - b.time);
    return best.slice(1).flatMap((point, i) => {
      const [from, to, above, below] = [x.at(best[i].time), x.at(point.time), y.at(best[i].memory), y.at(point.memory)];
      return [{ left: from, right: to, top: above - 1, bottom: above + 1 }, { left: to - 1, right: to + 1, top: above, bottom: below }];
    });
  });
}

/**
 * Return the names of points as SVG, points of fronts first. A name covers no other name and no point, and no line of a
 * front if there is such a place; a thin line joins a name that is far from its point. With more than CROWD points, only
 * points of fronts have names.
 */
function names(points, x, y) {
  const taken = points.map(p => ({ left: x.at(p.time) - 6, right: x.at(p.time) + 6, top: y.at(p.memory) - 6, bottom: y.at(p.memory) + 6 }));
  const lines = frontBoxes(points, x, y);
  const clear = (box, boxes) => box.left > EDGE.left && box.right < WIDE && box.top > 2 && box.bottom < TALL - EDGE.bottom
    && !boxes.some(other => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom);
  const parts = [];
  const named = points.filter(p => p.best || points.length <= CROWD).sort((a, b) => b.best - a.best || a.time - b.time);
  for (const point of named) {
    const name = point.name.length > 34 ? `${point.name.slice(0, 33)}…` : point.name;
    const [px, py, wide] = [x.at(point.time), y.at(point.memory), 6.6 * name.length + 2];
    const spots = [8, 22, 40].flatMap(away => [[away, 4], [-away - wide, 4], [-wide / 2, -away - 2], [-wide / 2, away + 12],
      [away, -away], [away, away + 8], [-away - wide, -away], [-away - wide, away + 8]].map(([dx, dy]) => [dx, dy, away]));
    const boxAt = ([dx, dy]) => ({ left: px + dx, right: px + dx + wide, top: py + dy - 12, bottom: py + dy + 3 });
    const spot = spots.find(at => clear(boxAt(at), [...taken, ...lines])) ?? spots.find(at => clear(boxAt(at), taken));
    if (!spot) continue;
    const [dx, dy, away] = spot;
    taken.push(boxAt(spot));
    if (away > 8) parts.push(`<line stroke="var(--muted)" x1="${px}" y1="${py}" x2="${px + dx + (dx < -wide / 2 ? wide : dx < 0 ? wide / 2 : 0)}" y2="${py + dy - 4}"/>`);
    parts.push(`<text class="name${point.best ? '' : ' muted'}" x="${px + dx}" y="${py + dy}">${escapeText(name)}</text>`);
  }
  return parts.join('');
}

const KEYS = { name: 'schedule', time: DATA.time, memory: DATA.memory };

function fillTable(points) {
  const { by, up } = sorting;
  const ordered = [...points].sort((a, b) => (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) * (up ? 1 : -1));
  $('table').querySelector('thead').innerHTML = `<tr>${Object.entries(KEYS).map(([key, text]) =>
    `<th scope="col" aria-sort="${key === by ? (up ? 'ascending' : 'descending') : 'none'}"><button type="button" data-key="${key}">${escapeText(text)}</button></th>`).join('')}</tr>`;
  $('table').querySelector('tbody').innerHTML = ordered.map(p => `<tr data-place="${p.place}" class="${p.best ? 'best' : ''}">`
    + `<td>${escapeText(p.name)}${p.best ? '\u00a0●' : ''}</td><td>${p.text[0]}</td><td>${p.text[1]}</td></tr>`).join('');
  for (const button of $('table').querySelectorAll('thead button'))
    button.onclick = () => { sorting = { by: button.dataset.key, up: button.dataset.key === by ? !up : true }; fillTable(points); };
  for (const row of $('table').querySelectorAll('tbody tr')) row.onpointerenter = () => pick(+row.dataset.place, false);
}

/** Mark a point in the chart and in the table; `far` scrolls to its row. */
function pick(place, far) {
  for (const item of document.querySelectorAll('[data-place]')) {
    item.classList.toggle('on', +item.dataset.place === place);
    if (far && item.tagName === 'TR' && +item.dataset.place === place) item.scrollIntoView({ block: 'nearest' });
  }
}

function showLegend() {
  const dark = +(root.dataset.theme === 'dark');
  $('legend').innerHTML = Object.entries(DATA.families).map(([family, { colour, shape }]) =>
    `<li><button type="button" aria-pressed="${!hidden.has(family)}" data-family="${escapeText(family)}">`
    + `<svg width="14" height="14" aria-hidden="true"><path d="${markOf(shape, 7, 7, 5)}" fill="${colour[dark]}"/></svg>${escapeText(family)}</button></li>`).join('');
  for (const button of $('legend').querySelectorAll('button'))
    button.onclick = () => {
      const { family } = button.dataset;
      if (!hidden.delete(family)) hidden.add(family);
      showLegend();
      draw();
    };
}

/** Return the style of a cell: its background for a shade from 0 to 1, and a text colour with contrast. */
function heatLook(shade) {
  const [low, high] = DATA.heat.colours[+(root.dataset.theme === 'dark')]
    .map(colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16)));
  const mixed = low.map((value, i) => Math.round(value + shade * (high[i] - value)));
  const linear = mixed.map(value => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return `background:rgb(${mixed});color:${light > 0.18 ? '#000000' : '#ffffff'}`;
}

function showHeat() {
  if (!DATA.heat) return;
  const { rows, microbatches, maps } = DATA.heat;
  $('heat').hidden = false;
  if (!$('metric').options.length) $('metric').append(...maps.map(({ heading }, place) => new Option(heading, place)));
  const { meaning, text, shade, best } = maps[+$('metric').value];
  $('meaning').textContent = `${meaning}; outlined: the least for this M and P; -: the schedule does not support the shape`;
  $('heat').querySelector('thead').innerHTML = `<tr><th scope="col">schedule</th><th scope="col">P</th>${microbatches
    .map(m => `<th scope="col">M = ${m}</th>`).join('')}</tr>`;
  $('heat').querySelector('tbody').innerHTML = rows.map(([name, devices], row) => `<tr><th scope="row">${escapeText(name)}</th><td>${devices}</td>${text[row]
    .map((value, m) => (value === null ? '<td class="none">-</td>'
      : `<td class="${best[row][m] ? 'best' : ''}" style="${heatLook(shade[row][m])}">${escapeText(value)}</td>`)).join('')}</tr>`).join('');
}

function setTheme(theme) {
  root.dataset.theme = theme;
  showHeat();
  showLegend();
  draw();
}

function start() {
  DATA.points.forEach((point, place) => { point.place = place; });
  $('command').textContent = DATA.inputs.command ?? '';
  $('groups').hidden = $('which').hidden = !DATA.grouped;
  $('group').append(...[...new Set(DATA.points.map(point => point.group))].map(group => new Option(group, group)));
  $('group').onchange = draw;
  $('filter').oninput = draw;
  $('metric').onchange = showHeat;
  addEventListener('resize', draw);
  followTheme(setTheme);
  root.dataset.state = 'drawn';
}

start();
