"""``buckler board``: entries are certified again, claims compared with their evidence, strangers' text is inert."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.cli.app import run
from buckler.report.board import check_board
from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from tests.report.test_html import Parsed
from tests.runs.victim import linear, spec

ROOT = Path(__file__).parents[2]
ATTACK = "<script>window.broken=1</script><img src=x onerror=window.broken=1>'\"&"
COMMAND = ["board", "board", "--method", "top_class"]
RADIUS = 0.02


def write_card(place: Path, **changes: Any) -> None:
    """Write an entry of the name of ``place`` into a file of its own in that folder."""
    known = {"model": "linear", "data": "noise", "noise": "gaussian:sigma=0.25", "source": "https://example.org/a"}
    fields = {**known, "licence": "MIT", **changes}
    place.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in fields.items() if value is not None]
    text = "".join([f"[{json.dumps(place.name)}]\n", *lines])
    (place.parent / f"{place.name}.toml").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Return a folder with evidence of 60 inputs, and its certified accuracy at RADIUS."""
    home: Path = tmp_path_factory.mktemp("board")
    x = np.random.default_rng(0).random((60, 1, 8, 8)).astype(np.float32)
    labels = linear(x).argmax(axis=1)
    settings = spec(scores="none", runner_ups=None, limit=None, n=60, n0=20, data=ATTACK)
    names = [f"{ATTACK}{i}" for i in range(60)]
    sample(settings, as_classifier(linear, num_classes=10), from_arrays(x, labels, ids=names), home / "evidence")
    share = certify_evidence(open_evidence(home / "evidence"), alpha=1e-3, method="top_class").accuracy(radii=[RADIUS])[
        0
    ]
    assert 0.2 < share < 0.95
    return home, float(share)


@pytest.fixture
def here(made: tuple[Path, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, float]:
    (tmp_path / "evidence").symlink_to(made[0] / "evidence")
    monkeypatch.chdir(tmp_path)
    return tmp_path, made[1]


def test_each_claim_is_compared_with_its_evidence(here: tuple[Path, float], capsys: pytest.CaptureFixture[str]) -> None:
    folder, true = here
    held = round(true, 3)
    write_card(folder / "board" / "good", evidence="../evidence", claims=[[RADIUS, held]])
    write_card(folder / "board" / "words", claims=[[RADIUS, 1.0]])
    assert run([*COMMAND, "--check"]) == 0
    assert capsys.readouterr().out.splitlines() == ["good: holds", "words: not checked"]
    assert not (folder / "site").exists()
    # One input more than the evidence has.
    write_card(folder / "board" / "false", evidence="../evidence", claims=[[RADIUS, held + 1 / 60]])
    write_card(folder / "board" / "strict", evidence="../evidence", claims=[[RADIUS, held]])
    assert run([*COMMAND, "--check", "--json"]) == 1
    seen = capsys.readouterr()
    verdicts = {one["name"]: one["verdict"] for one in map(json.loads, seen.out.splitlines())}
    assert verdicts == {"false": "does not hold", "good": "holds", "strict": "holds", "words": "not checked"}
    (line,) = seen.err.splitlines()
    assert f"false: claims {held + 1 / 60:g} at radius {RADIUS}; its evidence gives " in line
    # At another level the same evidence gives less.
    assert run([*COMMAND, "--check", "--quiet", "--alpha", "1e-12"]) == 1
    assert "strict" in capsys.readouterr().err


def test_the_site(here: tuple[Path, float], capsys: pytest.CaptureFixture[str]) -> None:
    folder, true = here
    claims = [[RADIUS, round(true, 3)]]
    hostile = dict.fromkeys(("model", "data", "licence"), ATTACK)
    write_card(folder / "board" / "hostile", **hostile, evidence="../evidence", claims=claims)
    write_card(folder / "board" / "words", source="javascript:window.broken=1", claims=[[RADIUS, 0.5]])
    write_card(folder / "board" / "broken", evidence="../nowhere")
    assert run([*COMMAND, "-o", "site"]) == 0
    assert sorted(path.name for path in (folder / "site").iterdir()) == ["hostile.html", "index.html"]
    assert "broken: evidence must be a folder" in capsys.readouterr().err
    pages = {path.stem: Parsed(path.read_text(encoding="utf-8")) for path in (folder / "site").iterdir()}
    for page in pages.values():
        assert "default-src 'none'" in page.policy
        assert "unsafe" not in page.policy
        for tag, attributes in page.tags:
            assert tag not in {"img", "link", "iframe"}
            assert not any(name.startswith("on") for name in attributes)
            assert str(attributes.get("href", "#")).startswith(("#", "./", "https://example.org/a"))
    assert pages["index"].text.count(ATTACK) == 4
    assert "javascript:window.broken=1" in pages["index"].text
    assert "broken: evidence must be" in pages["index"].text
    (chart,) = pages["index"].payload
    at = [point for point in chart["curves"] if point["radius"] == RADIUS]
    assert [point["accuracy"] for point in at] == [pytest.approx(true, abs=1e-3)]
    assert "(0.5)" in pages["index"].text.split()
    assert pages["hostile"].payload["series"][0]["inputs"] == 60
    assert f"{round(true, 3):g}" in pages["hostile"].text
    for page in pages.values():
        assert str(folder) not in page.text


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "must have the fields model, data, noise, source, licence; it lacks model"),
    ({"source": None, "licence": None}, "it lacks source, licence"),
    ({"colour": "red"}, "may have the fields model"),
    ({"model": "a\nb"}, "model must be a line"),
    ({"model": "a" * 301}, "model must be a line"),
    ({"licence": 7}, "licence must be a line"),
    ({"noise": "pink"}, "noise"),
    ({"noise": "gaussian:sigma=0.5", "evidence": "../evidence"}, "noise must be that of the evidence"),
    ({"claims": [[0.5]]}, "claims must be"),
    ({"claims": [[0.5, 1.5]]}, "claims must have"),
    ({"claims": [["a", 0.5]]}, "claims must be"),
    ({"claims": [[0.1, 0.1]] * 51}, "claims must be"),
    ({"evidence": "/etc"}, "evidence must be a path relative"),
    ({"evidence": "good.toml"}, "evidence must be a folder"),
    ({"evidence": "../evidence", "refutations": "good.toml"}, "good.toml"),
    ({"refutations": "good.toml"}, "must have the field evidence"),
]


@pytest.mark.parametrize(("changes", "named"), BAD, ids=[named for _, named in BAD])
def test_a_bad_card_is_one_line_and_stops_no_other(
    changes: dict[str, Any], named: str, here: tuple[Path, float], capsys: pytest.CaptureFixture[str]
) -> None:
    write_card(here[0] / "board" / "bad", **changes)
    write_card(here[0] / "board" / "good", claims=[[0.5, 0.5]])
    assert run([*COMMAND, "--check"]) == 1
    seen = capsys.readouterr()
    assert seen.out == "good: not checked\n"
    assert seen.err.startswith("buckler: bad: ")
    assert named in seen.err
    assert seen.err.count("\n") == 1


def cut(folder: Path) -> None:
    shard = next((folder / "shards").glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-20])


def unfinish(folder: Path) -> None:
    shutil.rmtree(folder / "shards")
    (folder / "shards").mkdir()


@pytest.mark.parametrize("damage", [cut, unfinish])
def test_damaged_or_unfinished_evidence_is_one_line(
    damage: Callable[[Path], None], here: tuple[Path, float], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(here[0] / "evidence", here[0] / "board" / "evidence")
    damage(here[0] / "board" / "evidence")
    write_card(here[0] / "board" / "bad", evidence="evidence")
    assert run([*COMMAND, "--check"]) == 1
    seen = capsys.readouterr().err
    assert seen.startswith("buckler: bad: ")
    assert seen.count("\n") == 1


@pytest.mark.parametrize("name", ["index", "Upper", "a b", "-a"])
def test_a_name_that_no_file_of_the_site_can_have_is_refused(
    name: str, here: tuple[Path, float], capsys: pytest.CaptureFixture[str]
) -> None:
    write_card(here[0] / "board" / name)
    assert run([*COMMAND, "--check"]) == 1
    assert "the name of an entry must be of small letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "named"),
    [
        ("nowhere", "FOLDER must be a folder of TOML files; got 'nowhere'"),
        ("one.toml", "FOLDER must be a folder of TOML files; got 'one.toml'"),
        ("empty", "FOLDER must hold 1 to 500 entries"),
    ],
)
def test_a_folder_without_entries_is_refused(
    folder: str, named: str, here: tuple[Path, float], capsys: pytest.CaptureFixture[str]
) -> None:
    (here[0] / "empty").mkdir()
    (here[0] / "one.toml").write_text("[one]")
    assert run(["board", folder, "--check"]) == 2
    assert named in capsys.readouterr().err


def test_what_cannot_be_an_entry_is_one_line(here: tuple[Path, float], capsys: pytest.CaptureFixture[str]) -> None:
    write_card(here[0] / "board" / "good")
    shutil.copy(here[0] / "board" / "good.toml", here[0] / "board" / "twice.toml")
    (here[0] / "board" / "line.toml").write_text('card = "a line"')
    (here[0] / "board" / "text.toml").write_text("no card")
    assert run([*COMMAND, "--check"]) == 1
    seen = capsys.readouterr()
    assert seen.out == "good: not checked\n"
    lines = sorted(line.removeprefix("buckler: ") for line in seen.err.splitlines())
    assert [line.partition(":")[0] for line in lines] == ["card", "good", "text.toml"]
    assert "must be a table" in lines[0]
    assert "another file has an entry of this name" in lines[1]


@pytest.mark.slow
def test_what_the_repository_claims_holds() -> None:
    entries, problems = check_board(ROOT / "board")
    assert problems == []
    verdicts = [entry.verdict for entry in entries]
    assert verdicts.count("holds") >= 5
    assert set(verdicts) == {"holds", "not checked"}
