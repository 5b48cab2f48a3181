"""``buckler board``: entries are certified again, claims compared with their evidence, strangers' text is inert."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.certificate import Bracket, PairTest, Refutation
from buckler.cli.app import run
from buckler.report.board import entry_folders, read_entry, read_entry_card
from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import write_refutations
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from tests.report.test_html import Parsed
from tests.runs.victim import linear, spec

ROOT = Path(__file__).parents[2]
ATTACK = "<script>window.broken=1</script><img src=x onerror=window.broken=1>'\"&"
COMMAND = ["board", "board", "--method", "top_class"]
RADIUS = 0.02


def write_card(folder: Path, **changes: Any) -> None:
    known = {"model": "linear", "data": "noise", "noise": "gaussian:sigma=0.25", "source": "https://example.org/a"}
    fields = {**known, "licence": "MIT", **changes}
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in fields.items() if value is not None]
    (folder / "card.toml").write_text("".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Return a folder with evidence of 60 inputs, its log and refutations, and its certified accuracy at RADIUS."""
    home: Path = tmp_path_factory.mktemp("board")
    x = np.random.default_rng(0).random((60, 1, 8, 8)).astype(np.float32)
    labels = linear(x).argmax(axis=1)
    settings = spec(scores="none", runner_ups=None, limit=None, n=60, n0=20, data=ATTACK)
    names = [f"{ATTACK}{i}" for i in range(60)]
    sample(settings, as_classifier(linear, num_classes=10), from_arrays(x, labels, ids=names), home / "evidence")
    certificates, truth = certify_evidence(open_evidence(home / "evidence"), alpha=1e-3, method="top_class")
    assert truth is not None
    right = [c.predicted == label and c.radius >= RADIUS for c, label in zip(certificates, truth.tolist(), strict=True)]
    assert 0.2 < np.mean(right) < 0.95
    point, beyond = np.zeros((1, 8, 8), dtype=np.float32), []
    for c in certificates:
        if isinstance(c.predicted, int):
            rival = (c.predicted + 1) % 10
            tests = (PairTest(RADIUS / 2, rival, 100, 90, 5, refuted=True),)
            found = Refutation(c.id, c.predicted, RADIUS / 2, rival, point, 1e-3, c.noise, tests)
            beyond.append(Bracket(found, 0.0, 1e-3))
    write_refutations(home / "refuted.parquet", beyond[:50], {})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert run(["certify", "evidence", "--method", "top_class", "--tsv", "log.tsv", "--quiet"]) == 0
    return home, float(np.mean(right))


@pytest.fixture
def here(made: tuple[Path, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, float]:
    for name in ("evidence", "log.tsv", "refuted.parquet"):
        (tmp_path / name).symlink_to(made[0] / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path, made[1]


def test_each_claim_is_compared_with_its_evidence(here: tuple[Path, float], capsys: pytest.CaptureFixture[str]) -> None:
    folder, true = here
    held = round(true, 3)
    write_card(folder / "board" / "good", evidence="../../evidence", claims=[[RADIUS, held]])
    write_card(folder / "board" / "log", log="../../log.tsv", claims=[[RADIUS, held]])
    write_card(folder / "board" / "words", claims=[[RADIUS, 1.0]])
    assert run([*COMMAND, "--check"]) == 0
    assert capsys.readouterr().out.splitlines() == ["good: holds", "log: holds", "words: not checked"]
    assert not (folder / "site").exists()
    # One input more than the evidence has, and one that an attack excludes.
    write_card(folder / "board" / "false", evidence="../../evidence", claims=[[RADIUS, held + 1 / 60]])
    above = {"evidence": "../../evidence", "refutations": "../../refuted.parquet"}
    write_card(folder / "board" / "refuted", **above, claims=[[RADIUS, 1.0]])
    write_card(folder / "board" / "strict", evidence="../../evidence", claims=[[RADIUS, held]])
    assert run([*COMMAND, "--check", "--json"]) == 1
    seen = capsys.readouterr()
    verdicts = {one["name"]: one["verdict"] for one in map(json.loads, seen.out.splitlines())}
    assert verdicts == {
        "false": "does not hold", "good": "holds", "log": "holds", "refuted": "refuted", "strict": "holds",
        "words": "not checked",
    }  # fmt: skip
    lines = seen.err.splitlines()
    assert [line.split(":")[1] for line in lines] == [" false", " refuted"]
    assert f"claims {held + 1 / 60:g} at radius {RADIUS}; its evidence gives " in lines[0]
    assert "is refuted" in lines[1]
    # At another level the same evidence gives less.
    assert run([*COMMAND, "--check", "--quiet", "--alpha", "1e-12"]) == 1
    assert "strict" in capsys.readouterr().err


def test_the_site(here: tuple[Path, float], capsys: pytest.CaptureFixture[str]) -> None:
    folder, true = here
    claims = [[RADIUS, round(true, 3)]]
    hostile = dict.fromkeys(("model", "data", "licence"), ATTACK)
    write_card(folder / "board" / "hostile", **hostile, evidence="../../evidence", claims=claims)
    write_card(folder / "board" / "words", source="javascript:window.broken=1", claims=[[RADIUS, 0.5]])
    write_card(folder / "board" / "broken", evidence="../../nowhere")
    assert run([*COMMAND, "-o", "site"]) == 0
    assert sorted(path.name for path in (folder / "site").iterdir()) == ["hostile.html", "index.html", "words.html"]
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
    assert "broken: evidence must be" in pages["index"].text
    assert "javascript:window.broken=1" in pages["words"].text
    (chart,) = pages["index"].payload
    at = [point for point in chart["curves"] if point["radius"] == RADIUS]
    assert [point["accuracy"] for point in at] == [pytest.approx(true, abs=1e-3)]
    assert chart["population"]
    assert "(0.5)" in pages["index"].text.split()
    assert pages["hostile"].payload["series"][0]["inputs"] == 60
    assert f"{round(true, 3):g}" in pages["hostile"].text
    for page in pages.values():
        assert str(folder) not in page.text


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "must have the field model"),
    ({"colour": "red"}, "may have the fields model"),
    ({"model": "a\nb"}, "model must be a line"),
    ({"model": "a" * 301}, "model must be a line"),
    ({"licence": 7}, "licence must be a line"),
    ({"noise": "pink"}, "noise"),
    ({"noise": "gaussian:sigma=0.5", "evidence": "../../evidence"}, "noise must be that of the evidence"),
    ({"claims": [[0.5]]}, "claims must be"),
    ({"claims": [[0.5, 1.5]]}, "claims must have"),
    ({"claims": [["a", 0.5]]}, "claims must be"),
    ({"claims": [[0.1, 0.1]] * 51}, "claims must be"),
    ({"evidence": "/etc"}, "evidence must be a path relative"),
    ({"evidence": "a", "log": "b"}, "give one of them"),
    ({"evidence": "../../log.tsv"}, "evidence must be a folder"),
    ({"log": "../../refuted.parquet"}, "log"),
    ({"log": "../../log.tsv", "alpha": 0.5}, "alpha must be"),
    ({"evidence": "../../evidence", "refutations": "../../log.tsv"}, "log.tsv"),
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
    shutil.copytree(here[0] / "evidence", here[0] / "board" / "bad" / "evidence")
    damage(here[0] / "board" / "bad" / "evidence")
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
    assert "the folder of an entry must be called" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_a_folder_without_entries_is_refused(
    folder: str, here: tuple[Path, float], capsys: pytest.CaptureFixture[str]
) -> None:
    (here[0] / "empty").mkdir()
    assert run(["board", folder, "--check"]) == 2
    assert "FOLDER must hold" in capsys.readouterr().err


def test_the_seed_names_evidence_that_is_there() -> None:
    folders = entry_folders(ROOT / "board")
    with_evidence = [path for path in folders if read_entry_card(path / "card.toml").evidence]
    assert len(folders) > len(with_evidence) >= 5
    for path in with_evidence:
        assert (path / str(read_entry_card(path / "card.toml").evidence) / "manifest.json").is_file()


@pytest.mark.slow
def test_what_the_seed_claims_holds() -> None:
    entries = [read_entry(path) for path in entry_folders(ROOT / "board")]
    assert {entry.verdict for entry in entries if entry.result is not None} == {"holds"}
    assert not [line for entry in entries for line in entry.problems()]
