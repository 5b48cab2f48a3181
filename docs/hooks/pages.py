"""Pages made when the site is built (the reference, a page a room; README and its like), and KaTeX for formulas."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "buckler"
PROJECT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages of the site, and the files of the repository that they are."""

DOORS = """\
# Reference

Here are the modules whose names `buckler` itself has, and those beneath every room. Each room has a page of its own,
which says what it turns into what.
"""
WHOLE = "    options: {show_root_heading: false, show_root_toc_entry: false, show_if_no_docstring: true}\n"
OPENING = "    options: {members: false, show_root_heading: false}\n"

KATEX = Path(sys.prefix) / "node_modules" / "katex"
"""Where `make docs` has npm install it: in the environment that builds the site."""

TYPESET = """\
for (const element of document.querySelectorAll(".arithmatex"))
  katex.render(element.textContent.trim().slice(2, -2), element, {displayMode: element.tagName === "DIV"});
"""
"""Typesets the formulas of a page with the KaTeX beside it."""

STYLE = """\
/* Lines of code have 120 characters: give them room, and wrap the outputs that have more, where tables still fit. */
.md-grid { max-width: 78rem; }
.md-typeset table:not([class]) code { overflow-wrap: anywhere; word-break: normal; }
@media (min-width: 60em) {
  .language-text pre > code { white-space: pre-wrap; }
}
/* A signature has a line for each argument; what is still too long is wrapped, not cut off. */
.doc-signature pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
"""

SHIPPED = ("LICENSE", "dist/katex.min.css", "dist/katex.min.js", "dist/fonts/*.woff2")
RENDER = """
const katex = require(process.argv[1]);
for (const [page, source] of JSON.parse(require("fs").readFileSync(0)))
  try { katex.renderToString(source, {strict: "error"}); }
  catch (error) { console.error(`${page}: ${error.message} in ${source}`); process.exitCode = 1; }
"""

FORMULA = re.compile(r'class="arithmatex">\\[(\[](.*?)\\[)\]]</', re.DOTALL)

formulas: list[tuple[str, str]] = []
"""Page and source of every formula of the site."""


def pages() -> dict[str, str]:
    """Return the text of each page by its path; the command line has its own pages."""
    rooms = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if path.parent.name != "cli")
    made = {"reference/index.md": _doors()} | {f"reference/{room}.md": _page(room) for room in rooms}
    return made | {path: _linked((ROOT / file).read_text(encoding="utf-8")) for path, file in PROJECT.items()}


def _linked(text: str) -> str:
    """Return the text of a file of the repository with its links as they lead from a page of the site."""
    for path, file in PROJECT.items():
        text = text.replace(f"]({file})", f"]({path})")
    return text.replace("](docs/", "](")


def _doors() -> str:
    """Return the page about the modules that belong to no room."""
    modules = sorted(path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("_"))
    return "\n".join([DOORS, *(f"## {name}\n\n::: buckler.{name}\n{WHOLE}" for name in modules)])


def _page(room: str) -> str:
    names = {path.relative_to(SOURCE / room).with_suffix("") for path in (SOURCE / room).rglob("*.py")}
    modules = sorted(".".join(part for part in name.parts if part != "__init__") for name in names)
    sections = [f"## {name}\n\n::: buckler.{room}.{name}\n{WHOLE}" for name in modules if name]
    return "\n".join([f"# {room}\n\n::: buckler.{room}\n{OPENING}", *sections])


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and the files of KaTeX, to those of the site."""
    from mkdocs.exceptions import PluginError  # noqa: PLC0415  (a test asks for the pages without mkdocs)
    from mkdocs.structure.files import File  # noqa: PLC0415

    for path, text in {**pages(), "formulas.js": TYPESET, "site.css": STYLE}.items():
        files.append(File.generated(config, path, content=text))
    found = [path for pattern in SHIPPED for path in KATEX.glob(pattern)]
    if not found:
        raise PluginError(f"formulas need KaTeX: npm install --prefix {sys.prefix} katex")
    for path in found:
        target = "katex" / path.relative_to(KATEX).relative_to("dist" if "dist" in path.parts[-3:] else ".")
        files.append(File.generated(config, target.as_posix(), abs_src_path=str(path)))
    return files


def on_page_content(html: str, page: Any, **_: Any) -> None:
    """Collect the formulas of a page."""
    formulas.extend((page.file.src_uri, unescape(source)) for source in FORMULA.findall(html))


def on_post_build(**_: Any) -> None:
    """Fail where KaTeX does not understand a formula."""
    from mkdocs.exceptions import PluginError  # noqa: PLC0415

    command = ["node", "-e", RENDER, str(KATEX / "dist" / "katex.js")]
    done = subprocess.run(command, input=json.dumps(formulas), text=True, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise PluginError(done.stderr)
