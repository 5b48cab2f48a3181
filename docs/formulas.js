// Typeset the formulas of a page with the KaTeX beside it.
for (const element of document.querySelectorAll(".arithmatex"))
  katex.render(element.textContent.trim().slice(2, -2), element, {displayMode: element.tagName === "DIV"});
