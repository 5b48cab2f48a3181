"""Every page: outputs that it shows are compared, its programs run, and every command and option it names is there.

A fenced block has a language. ``text`` is the output of the block before it, and stands only on pages that the tests
run from top to bottom; ``drawing`` is neither, and there are few.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from tests.cli.test_options import commands
from tests.docs.test_tutorials import ROOT, Block, blocks_of, folder, run_page

DOCS = ROOT / "docs"
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
    if page.parent.name != "reproduction"
}
TUTORIALS = {name for name in PAGES if name.startswith("docs/tutorials/")}
RUN = {*TUTORIALS, "docs/cluster.md", "docs/index.md", "docs/commands.md", "docs/coming-from.md"}
"""Pages that are run whole: tutorials by ``test_tutorials``, the first page by ``test_site``, commands here."""

LANGUAGES = {"python", "sh", "toml", "text", "drawing"}
DRAWINGS = 4
BLOCKS = [(name, block) for name, text in PAGES.items() for block in blocks_of(text)]

__all__ = ["folder"]  # a fixture, used by name


def test_every_block_says_what_it_is() -> None:
    odd = [(name, block.line, block.language) for name, block in BLOCKS if block.language not in LANGUAGES]
    assert odd == []
    assert sum(block.language == "drawing" for _, block in BLOCKS) <= DRAWINGS


def test_outputs_stand_on_pages_that_are_run() -> None:
    shown = {name for name, block in BLOCKS if block.language == "text"}
    assert shown <= RUN | {"CONTRIBUTING.md"}
    assert len(shown) >= 7


@pytest.mark.slow
def test_the_page_of_commands_runs(folder: Path) -> None:
    for name in ("evidence", "tests"):
        (folder / name).symlink_to(ROOT / name)
    assert run_page(PAGES["docs/commands.md"], "commands.md") == 8


@pytest.mark.usefixtures("folder")
def test_the_page_for_those_who_come_from_elsewhere_runs() -> None:
    assert run_page(PAGES["docs/coming-from.md"], "coming-from.md") == 5


def linear(batch: Any) -> Any:
    return np.stack([batch.reshape(len(batch), -1).mean(axis=1) * k for k in range(10)], axis=1)


class Linear:
    """The model that pages call mymodels:make."""

    num_classes = 10

    def __call__(self, batch: Any) -> Any:
        return linear(batch)


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/sampling.md", "docs/anytime.md", "docs/noise.md", "docs/population.md", "docs/conformal.md"],
)
def test_programs_run(page: str, folder: Path) -> None:
    (folder / "mymodels.py").write_text("from tests.docs.test_outputs import Linear as make\n")
    np.savez(folder / "cifar10.npz", x_test=np.full((3, 3, 8, 8), 0.5, dtype=np.float32))
    given: dict[str, Any] = {"buckler": buckler, "model": linear, "network": linear}
    given["X"] = np.full((2, 3, 8, 8), 0.5, dtype=np.float32)
    ran = 0
    for name, block in BLOCKS:
        if name == page and block.language == "python":
            # The first program that anyone sees runs as it is copied: nothing is given to it.
            variables = {} if page == "README.md" and not ran else dict(given)
            exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), variables)  # noqa: S102  (our own)
            ran += 1
    assert ran


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


def test_every_command_in_a_block_is_there() -> None:
    assert len(COMMANDS) > 20
    assert [(where, unknown(line)) for where, line in COMMANDS if unknown(line)] == []


def test_every_command_and_option_in_a_sentence_is_there() -> None:
    programs = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    everything = set().union(*(flags_of(name) for name in commands()))
    everything |= {flag for text in programs for flag in re.findall(r'"(--[a-z0-9-]+)"', text)}
    wrong = []
    for page, code in INLINE:
        words = code.split()
        if words[0] == "buckler" or (words[0] in commands() and len(words) > 1 and words[1].startswith("-")):
            found = unknown(code if words[0] == "buckler" else f"buckler {code}")
            wrong += [(page, found)] if found else []
        elif re.fullmatch(r"--[a-z0-9-]+", words[0]) and words[0] not in everything:
            wrong.append((page, words[0]))
    assert wrong == []
    assert sum(code.startswith("--") for _, code in INLINE) > 20


@pytest.mark.parametrize("line", ["buckler certify run/ --scores", "buckler polish run/", "buckler --colour audit"])
def test_what_is_not_there_is_found(line: str) -> None:
    assert unknown(line) is not None
