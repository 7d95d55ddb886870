// Copying a text, and the message if the browser refuses access to the clipboard.

const REFUSED = 'The browser refuses to copy. The text is selected: press Ctrl + C';

/** Copy a text and confirm it; if the browser refuses, select the text in the element that `holder` returns. */
async function copyText(text, done, say, holder) {
  try {
    await navigator.clipboard.writeText(text); // pages from plain http have no clipboard
    say(done);
  } catch {
    say(REFUSED);
    getSelection().selectAllChildren(holder());
  }
}
