"""The tutorials run: every Python block, every buckler command, and every output that a page shows.

A page is read from top to bottom in one empty folder. A block of Python whose title is a file name is that file. A
block of text is the output of the block before it. A block that says "not run" in its title, with the reason, is
skipped, and one that begins by installing a package; nothing else is.
"""

import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from buckler import certificate
from buckler.certify import methods
from buckler.cli.app import run

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs" / "tutorials").glob("*.md")), ROOT / "docs" / "cluster.md"]
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


def test_every_tutorial_is_known() -> None:
    assert [page.stem for page in PAGES] == [
        "compare",
        "counts",
        "denoised",
        "own",
        "populations_and_sets",
        "pytorch",
        "tables_and_text",
        "cluster",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("folder")
def test_tutorial_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for extra in ("sklearn", "torch", "ray", "transformers"):
        if re.search(rf"\b{extra}\b", text) and importlib.util.find_spec(extra) is None:
            pytest.skip(f"{extra} is not installed")
    assert run_page(text, page.name) >= 1


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
    try:
        assert (
            run_page(page + '```text title="may differ"\n3 1.0\n```\n```sh title="not run: why"\nls\n```\n', "p") == 1
        )
    finally:
        sys.modules.pop("a", None)
