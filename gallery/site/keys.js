// What slides sideways on a phone can be reached and moved by keys.
addEventListener("load", () => {
  for (const part of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
});
