"""Pages that are made when the site is built: the reference, a page a room, and the project's own files."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "buckler"
PROJECT = {"changelog.md": ROOT / "CHANGELOG.md", "contributing.md": ROOT / "CONTRIBUTING.md"}
WHOLE = "    options: {show_root_heading: false, show_root_toc_entry: false}\n"
OPENING = "    options: {members: false, show_root_heading: false}\n"


def pages() -> dict[str, str]:
    """Return the text of each page by its path; the command line has its own pages."""
    rooms = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if path.parent.name != "cli")
    made = {f"reference/{room}.md": _page(room) for room in rooms}
    return made | {path: file.read_text(encoding="utf-8") for path, file in PROJECT.items()}


def _page(room: str) -> str:
    names = {path.relative_to(SOURCE / room).with_suffix("") for path in (SOURCE / room).rglob("*.py")}
    modules = sorted(".".join(part for part in name.parts if part != "__init__") for name in names)
    sections = [f"## {name}\n\n::: buckler.{room}.{name}\n{WHOLE}" for name in modules if name]
    return "\n".join([f"# {room}\n\n::: buckler.{room}\n{OPENING}", *sections])


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of the site."""
    from mkdocs.structure.files import File  # noqa: PLC0415  (a test asks for the pages without mkdocs)

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
