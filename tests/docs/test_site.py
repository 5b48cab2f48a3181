"""The pages around the code: nothing public is left out, and every file, target and version they name is there."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import buckler
from tests.docs.test_tutorials import run_page
from tests.test_import_law import imports

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "buckler"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
NAV = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def modules() -> set[str]:
    """Return the modules of every room but the command line."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        if "cli" not in parts and parts[-1] != "__main__":
            found.add(".".join(part for part in parts if part != "__init__"))
    return found - {"buckler"}


def generated() -> dict[str, str]:
    """Return the pages that the site makes from the sources."""
    made: dict[str, str] = runpy.run_path(str(DOCS / "hooks" / "pages.py"))["pages"]()
    return made


def test_the_reference_has_every_module_once() -> None:
    text = "\n".join([(DOCS / "reference" / "index.md").read_text(encoding="utf-8"), *generated().values()])
    named = [name for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE) if name in modules()]
    assert sorted(named) == sorted(modules())


def test_the_site_has_every_page_once() -> None:
    pages = [page.relative_to(DOCS) for page in DOCS.rglob("*.md")]
    # The tables beside the page of the reproduction are files to download, not pages.
    written = [str(page) for page in pages if page.parts[0] != "reproduction"]
    assert sorted(NAV) == sorted([*written, *generated()])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", DOCS / "comparison.md"], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    ours = "\n".join(
        line for line in page.read_text(encoding="utf-8").splitlines() if "|" not in line or "uckler" in line
    )
    for name in re.findall(r"`((?:src|tests|benchmarks|docs)/[\w./]*)`", ours):
        assert (ROOT / name).exists(), name


def walks() -> list[tuple[str, list[str]]]:
    """Return the walks of CONTRIBUTING.md: a title, and files in order."""
    section = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Four walks\n")[2].partition("\n## ")[0]
    )
    parts = re.split(r"^\*\*(.+)\*\*$", section, flags=re.MULTILINE)[1:]
    files = [re.findall(r"^\d+\. `([^`]+)`: ", part, re.MULTILINE) for part in parts[1::2]]
    return list(zip(parts[::2], files, strict=True))


def test_there_are_four_walks() -> None:
    assert len(walks()) == 4


@pytest.mark.parametrize(("title", "files"), walks(), ids=[title for title, _ in walks()])
def test_a_walk_goes_from_file_to_file(title: str, files: list[str]) -> None:
    """Every file is there, and is a command or imported by one that the walk has come through."""
    assert len(files) >= 8, title
    known: set[str] = set()
    for name in files:
        module = "buckler." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert name == files[0] or name.startswith("cli/") or module in known, f"{title}: nothing led to {name}"
        for found in imports((SOURCE / name).read_text(encoding="utf-8")):
            known |= {found, found.rpartition(".")[0]}


def test_every_target_is_explained() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    told = set(re.findall(r"`make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert targets - {"help"} == told


def test_versions_agree() -> None:
    assert f"\nversion: {buckler.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {buckler.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nlicense: {project['license']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_first_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page((DOCS / "index.md").read_text(encoding="utf-8"), "index.md") == 1
