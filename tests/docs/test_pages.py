"""Every page runs, its outputs are compared, and what it names is there: commands, options, functions, files.

A page is read from top to bottom in one empty folder. A fenced block has a language. A block of Python whose title is a
file name is that file. A block of text is the output of the block before it. A block that says "not run" in its title,
with the reason, is skipped, and one that begins by installing a package; ``drawing`` is neither.
"""

import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from benchmarks import networks, routing
from buckler import certificate
from buckler.certify import methods
from buckler.cli.app import run
from tests.cli.test_options import commands
from tests.test_import_law import imports

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "buckler"
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
    if page.parent.name != "reproduction"
}
SLOW = ["docs/cluster.md", "docs/commands.md", *(name for name in PAGES if name.startswith("docs/tutorials/"))]
QUICK = ["README.md", "docs/coming-from.md"]
PIECES = ["docs/sampling.md", "docs/anytime.md", "docs/noise.md", "docs/population.md", "docs/conformal.md"]
"""Pages whose programs run one by one, with a model and inputs given."""

LANGUAGES = {"python", "sh", "toml", "text", "drawing"}
FENCE = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page, and the line of the page where its text begins."""

    language: str
    title: str
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    assert page.count("```") == 2 * len(FENCE.findall(page)), "a fence that the tests do not understand"
    return [
        Block(found[1], found[2] or "", found[3], page.count("\n", 0, found.start(3)) + 1)
        for found in FENCE.finditer(page)
    ]


def run_page(page: str, name: str) -> int:
    """Run a page in the current folder and return how many outputs were compared."""
    variables: dict[str, Any] = {"__name__": "__main__"}
    output: str | None = None
    compared = 0
    for block in blocks_of(page):
        if block.language == "drawing" or block.title.startswith("not run: ") or block.text.startswith("pip install "):
            output = None
        elif block.language == "text":
            assert output is not None, f"{name}:{block.line}: an output of nothing"
            compare(output, block.text, roughly="may differ" in block.title, where=f"{name}:{block.line}")
            output, compared = None, compared + 1
        elif block.language in {"python", "toml"} and "." in block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
            output = None
        elif block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, name, "exec")
            with redirect_stdout(io.StringIO()) as printed:
                exec(code, variables)  # noqa: S102  (a page of our own)
            output = printed.getvalue()
        elif block.language == "sh":
            lines = block.text.replace("\\\n", " ").strip().splitlines()
            output = "".join(run_command(line, f"{name}:{block.line}") for line in lines)
        else:
            pytest.fail(f"{name}:{block.line}: a block of {block.language or 'nothing'} that nobody runs")
    return compared


def run_command(line: str, where: str) -> str:
    program, *arguments = shlex.split(line, comments=True)
    assert program == "buckler", f"{where}: only buckler commands are run; got {line}"
    if "ray" in arguments:  # a cluster takes over signals and loggers: not in the process of the tests
        paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "buckler", *arguments],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{where}: {line}\n{done.stderr}"
        return done.stdout
    with redirect_stdout(io.StringIO()) as printed:
        code = run(arguments)
    assert code == 0, f"{where}: exit code {code} of {line}"
    return printed.getvalue()


def compare(got: str, shown: str, *, roughly: bool, where: str) -> None:
    """Compare what came with what the page shows: to the letter, or numbers roughly where the page says so.

    Roughly is 5 %, and never less than 0.05 for a fraction or 2 for a whole number.
    """
    came, expected = " ".join(got.split()), " ".join(shown.split())
    if not roughly:
        assert came == expected, where
        return
    assert NUMBER.sub("#", came) == NUMBER.sub("#", expected), where
    for a, b in zip(NUMBER.findall(came), NUMBER.findall(expected), strict=True):
        x, y = float(a.replace(",", "")), float(b.replace(",", ""))
        assert abs(x - y) <= max(0.05 if "." in b else 2.0, 0.05 * abs(y)), (
            f"{where}: {a} came where the page shows {b}"
        )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an empty folder to run a page in; modules and methods that the page made are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))
    monkeypatch.setattr(certificate, "_TIES", dict(certificate._TIES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_page_runs(page: str, folder: Path) -> None:
    for name in ("evidence", "tests"):
        (folder / name).symlink_to(ROOT / name)
    for extra in ("sklearn", "torch", "ray", "transformers"):
        if re.search(rf"\b{extra}\b", PAGES[page]) and importlib.util.find_spec(extra) is None:
            pytest.skip(f"{extra} is not installed")
    assert run_page(PAGES[page], page) >= 1


class Linear:
    """The model that pages call mymodels:make."""

    num_classes = 10

    def __call__(self, batch: Any) -> Any:
        return np.stack([batch.reshape(len(batch), -1).mean(axis=1) * k for k in range(10)], axis=1)


@pytest.mark.parametrize("page", PIECES)
def test_programs_run(page: str, folder: Path) -> None:
    (folder / "mymodels.py").write_text("from tests.docs.test_pages import Linear as make\n")
    np.savez(folder / "cifar10.npz", x_test=np.full((3, 3, 8, 8), 0.5, dtype=np.float32))
    programs = [block for block in blocks_of(PAGES[page]) if block.language == "python"]
    for block in programs:
        given = {"buckler": buckler, "model": Linear(), "network": Linear()}
        given["X"] = np.full((2, 3, 8, 8), 0.5, dtype=np.float32)
        exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), given)  # noqa: S102  (our own)
    assert programs


@pytest.mark.usefixtures("folder")
def test_examples_of_guarantees_run() -> None:
    page = str(DOCS / "guarantees.md")
    result = doctest.testfile(page, module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8")
    assert result.attempted >= 4
    assert result.failed == 0


BLOCKS = [(name, block) for name, text in PAGES.items() for block in blocks_of(text)]


def test_every_block_says_what_it_is_and_outputs_are_compared() -> None:
    odd = [(name, block.line, block.language) for name, block in BLOCKS if block.language not in LANGUAGES]
    assert odd == []
    assert {name for name, block in BLOCKS if block.language == "text"} <= {*QUICK, *SLOW, "CONTRIBUTING.md"}


@pytest.mark.parametrize(
    "page",
    [
        "```python\nprint(1)\n```\n```text\n2\n```\n",
        '```python\nprint(1.0)\n```\n```text title="may differ"\n1.06\n```\n',
        "```text\n2\n```\n",
        "```sh\nls\n```\n",
        "```sh\nbuckler certify nowhere/\n```\n",
        "```\nbuckler --version\n```\n",
        "```python\nraise ValueError\n```\n",
        "```json\n{}\n```\n",
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_page_that_does_not_hold_is_found(page: str) -> None:
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        run_page(page, "planted")


@pytest.mark.usefixtures("folder")
def test_a_page_that_holds() -> None:
    page = '```python title="a.py"\nB = 3\n```\n```python\nfrom a import B\nprint(B, 1.02)\n```\n'
    page += '```text title="may differ"\n3 1.0\n```\n```sh title="not run: why"\nls\n```\n'
    assert run_page(page, "p") == 1


def lines_of(name: str, block: Block) -> list[tuple[str, str]]:
    """Return the buckler commands of a block, each with its place."""
    found = block.text.replace("\\\n", " ").splitlines() if block.language == "sh" else []
    return [(f"{name}:{block.line}", line) for line in found if line.startswith("buckler ")]


COMMANDS = [pair for name, block in BLOCKS for pair in lines_of(name, block)]
INLINE = [
    (name, " ".join(code.split()))
    for name, text in PAGES.items()
    for code in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
]


def flags_of(command: str) -> set[str]:
    return {flag for p in commands()[command].params for flag in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}


def unknown(line: str) -> str | None:
    """Return the first command or option of a line that there is not."""
    words = shlex.split(line, comments=True)[1:]
    name = ""
    for i, word in enumerate(words):
        if not name and word in commands():
            name = word
        elif re.match(r"--?[a-z]", word) and word.split("=")[0] not in flags_of(name):
            return f"{name} {word}".strip()
        elif not name and not word.startswith("-") and not words[i - 1].startswith("-"):
            return word
    return None


def test_every_command_and_option_is_there() -> None:
    assert len(COMMANDS) > 20
    wrong = [(where, unknown(line)) for where, line in COMMANDS if unknown(line)]
    programs = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    everything = set().union(*(flags_of(name) for name in commands()))
    everything |= {flag for text in programs for flag in re.findall(r'"(--[a-z0-9-]+)"', text)}
    for page, code in INLINE:
        words = code.split()
        if words[0] == "buckler" or (words[0] in commands() and len(words) > 1 and words[1].startswith("-")):
            found = unknown(code if words[0] == "buckler" else f"buckler {code}")
            wrong += [(page, found)] if found else []
        elif re.fullmatch(r"--[a-z0-9-]+", words[0]) and words[0] not in everything:
            wrong.append((page, words[0]))
    assert wrong == []


def examples(text: str) -> list[str]:
    """Return the commands below "Examples:" in the help text of a command, each on one line."""
    below = re.split(r"Examples?:\n", text)[1]
    return [" ".join(line.split()) for line in re.split(r"\n(?=  buckler )", below) if line.strip()]


def test_the_examples_of_every_help_text_take_options_that_are_there() -> None:
    found = {name: examples(command.help or "") for name, command in commands().items() if name}
    assert all(found.values())
    assert [(line, unknown(line)) for lines in found.values() for line in lines if unknown(line)] == []


@pytest.mark.parametrize("line", ["buckler certify run/ --scores", "buckler polish run/", "buckler --colour audit"])
def test_what_is_not_there_is_found(line: str) -> None:
    assert unknown(line) is not None


ROOMS = "bounds|certificate|certify|evaluate|noise|paper|report|runs|sampling|smoothed|training|types|errors"


def find(name: str) -> object:
    """Return what a name below ``buckler`` stands for."""
    parts = name.split(".")
    for split in range(len(parts), -1, -1):
        try:
            found: object = import_module(".".join(["buckler", *parts[:split]]))
        except ModuleNotFoundError as missing:
            if not (missing.name or "").startswith("buckler"):
                raise
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def missing(names: Iterable[str]) -> list[str]:
    """Return the names that the package does not have."""
    found = []
    for name in names:
        try:
            find(name)
        except (AttributeError, LookupError):
            found.append(name)
    return found


def test_names_of_functions_are_there() -> None:
    pages = PAGES["docs/guarantees.md"] + PAGES["docs/errata.md"]
    names = sorted(set(re.findall(rf"`((?:{ROOMS})(?:\.\w+)+)`", pages)))
    assert len(names) > 30
    assert missing(names) == []
    assert missing(["certify.no_such_name", "no_such_room.name"]) == ["certify.no_such_name", "no_such_room.name"]


def walks() -> list[tuple[str, list[str]]]:
    """Return the walks of CONTRIBUTING.md: a title, and files in order."""
    section = PAGES["CONTRIBUTING.md"].partition("## Four walks\n")[2].partition("\n## ")[0]
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


def test_versions_agree() -> None:
    assert f"\nversion: {buckler.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {buckler.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nlicense: {project['license']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def shown(notebook: Any) -> list[list[tuple[str, str]]]:
    """Return for each program of a notebook the kinds of its outputs, and what it printed without the numbers."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = [(output.output_type, output.get("text", "")) for output in cell.outputs]
            kinds = [(kind, "") for output in cell.outputs for kind in sorted(output.get("data", {}))]
            found.append([(kind, NUMBER.sub("#", text)) for kind, text in texts] + kinds)
    return found


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_kept(tmp_path: Path) -> None:
    """Kept outputs are made by ``jupyter execute --inplace``; numbers may differ between versions, words may not."""
    import nbformat
    from nbclient import NotebookClient

    kept = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    fresh = deepcopy(kept)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(fresh, timeout=250, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(fresh) == shown(kept)
    said = "".join(output.get("text", "") for cell in fresh.cells for output in cell.get("outputs", []))
    certified, refuted = map(float, re.search(r"certified up to (\S+), refuted from (\S+),", said).groups())  # type: ignore[union-attr]
    assert 0.0 < certified < refuted < 2.0


def numbers_in(row: str) -> tuple[float, ...]:
    """Return the numbers in the cells of a table's row, without those of its first cell."""
    cells = re.split(r"\|| {2,}", row.strip().strip("|"))[1:]
    return tuple(float(cell) for cell in cells if re.fullmatch(r"\s*\d+(\.\d+)?\s*", cell))


@pytest.mark.parametrize(("program", "page", "rows"), [(networks, "measured.md", 11), (routing, "noise.md", 3)])
def test_a_table_is_what_its_command_prints(
    program: object, page: str, rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["a benchmark"])
    program.main()  # type: ignore[attr-defined]
    printed = [row for line in capsys.readouterr().out.splitlines() if len(row := numbers_in(line)) > 3]
    assert len(printed) == rows
    shown = {numbers_in(line) for line in (DOCS / page).read_text(encoding="utf-8").splitlines()}
    assert set(printed) <= shown
