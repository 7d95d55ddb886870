// A lesson on a page: its text, its par, and whether the schedule reaches it.

/** Return the part of the editor with the lesson's text. */
function lessonPart() {
  const { lesson } = REPORT;
  return [element('section', { id: 'lesson', 'aria-label': 'Lesson' },
    ...lesson.text.map(textContent => element('p', { textContent })), element('p', { id: 'par', 'aria-live': 'polite' }))];
}

/** Show whether the schedule reaches par. */
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

/** Make edits that belong to the lesson and that undo does not revert. */
function beginFrom(edits) {
  readEdits(`${baseNumber()}~${edits}`);
  editor.past = [editor.past[editor.at]];
  editor.at = 0;
}
