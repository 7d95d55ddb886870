// A lesson on a page: what is to be done, and whether it is.

/** What a lesson asks for, above the tools. */
function lessonPart() {
  const { lesson } = REPORT;
  return [element('section', { id: 'lesson', 'aria-label': 'Lesson' },
    ...lesson.text.map(textContent => element('p', { textContent })), element('p', { id: 'par', 'aria-live': 'polite' }))];
}

/** Whether the schedule does what the lesson asks for, in words. */
function sayLesson() {
  const { lesson } = REPORT;
  if (!$('par')) return;
  const { edited } = TIMELINES[0];
  const answer = edited ?? answerOf(editor.sheets[0], stateNow(0));
  const over = lesson.most === undefined ? [] : [...answer.peak.keys()].filter(device => answer.peak[device] > lesson.most);
  const near = EPSILON * lesson.par;
  const par = `par ${timed(lesson.par)}${lesson.most === undefined ? '' : `, ${lesson.most} activations a device at most`}`;
  let words;
  if (!answer.valid) words = answer.missing ? `${answer.missing} ops to place` : 'this order cannot run';
  else if (answer.makespan > lesson.par + near) words = `yours takes ${timed(answer.makespan)}`;
  else if (over.length) words = `device ${over[0]} holds ${answer.peak[over[0]]} activations`;
  else words = `done: yours takes ${timed(answer.makespan)}, and ${lesson.proof}`;
  $('par').textContent = `${par} · ${words}`;
  $('par').className = words.startsWith('done') ? 'done' : '';
}

/** Begin from a schedule with edits, which no undo takes back. */
function beginFrom(edits) {
  readEdits(`${baseNumber()}~${edits}`);
  editor.past = [editor.past[editor.at]];
  editor.at = 0;
}
