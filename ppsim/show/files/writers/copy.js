// How a text is copied, and what is said where the browser refuses its clipboard.

const REFUSED = 'The browser refuses to copy. The text is selected: press Ctrl + C';

/** Copy a text and say so; where that is refused, select it in the element that `holder` returns. */
async function copyText(text, done, say, holder) {
  try {
    await navigator.clipboard.writeText(text); // pages from plain http have no clipboard
    say(done);
  } catch {
    say(REFUSED);
    getSelection().selectAllChildren(holder());
  }
}
