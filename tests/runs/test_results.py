"""What a report and a sweep show, made by a program: without the command line, reading each file of evidence once."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler import files
from buckler.certify.votes import certify_votes
from buckler.errors import InvalidInput
from buckler.results import Certified
from buckler.runs.certify import certify_by_each, certify_evidence
from buckler.runs.results import CertifyOptions, read_result
from buckler.runs.store import evidence as store
from buckler.runs.store import folder, scores, shard
from buckler.runs.store.certificates import read_certificates, read_labelled, write_certificates
from buckler.runs.store.evidence import open_evidence
from tests.runs.victim import run as sample
from tests.runs.victim import spec

PROGRAM = """
import sys
from pathlib import Path
from buckler.report.pages import build_page
from buckler.report.sweeps import draw_axes, sweep_table
from buckler.report.tables import to_markdown
from buckler.runs.grid import Grid
from buckler.runs.results import CertifyOptions, read_result
from buckler.runs.sweep import sweep_runs
run = sys.argv[1]
page = build_page([read_result(Path(run), CertifyOptions(methods=("top_class", "bonferroni")))])
assert "<html" in page and "bonferroni" in page
cells = sweep_runs([run], Grid(method=("top_class", "bonferroni"), n=(50, 100)), Path("sweep.parquet"))
print(to_markdown(sweep_table(cells, baseline="bonferroni")))
assert [path.name for path in draw_axes(cells, Path())] == ["accuracy_by_n.png", "accuracy_by_method.png"]
assert not [name for name in sys.modules if name.startswith("buckler.cli")]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("runs") / "run"
    sample(str(made), spec=spec(scores="logits", runner_ups=None, limit=6, n=100, n0=20, shard_inputs=2))
    return made


def test_a_program_makes_the_page_and_the_table(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(run)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert "gain over bonferroni" in done.stdout


def test_each_file_is_read_and_hashed_once_for_all_methods(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    checksum, score_file = files.checksum, scores.ScoreFile

    def counting(path: Path) -> Any:
        hashed[path.name] += 1
        return checksum(path)

    def decoding(path: Path, *rest: Any) -> Any:
        opened[path.name] += 1
        return shard.decode(path, *rest)

    def reading(path: Path, *rest: Any) -> Any:
        opened[path.name] += 1
        return score_file(path, *rest)

    monkeypatch.setattr(folder, "checksum", counting)
    monkeypatch.setattr(store, "decode", decoding)
    monkeypatch.setattr(store, "ScoreFile", reading)
    methods = ("top_class", "bonferroni", "pairwise/hoeffding", "pairwise/bernstein")
    result = read_result(run, CertifyOptions(methods=methods))
    assert [group.certificates[0].method for group in result.groups] == list(methods)
    names = {path.name for path in (run / "shards").glob("*.parquet")}
    assert len(names) == 6
    assert hashed == dict.fromkeys(names, 1)
    assert opened == dict.fromkeys(names, 1)


def test_several_methods_at_once_give_what_each_gives_alone(run: Path) -> None:
    evidence = open_evidence(run)
    methods = ["top_class", "pairwise/hoeffding", "exact"]
    for chosen in ("label", "selection"):
        made = certify_by_each(evidence, methods, n=50, certified_class=chosen, alpha=0.01)
        for method, group in zip(methods, made.certificates, strict=True):
            alone, labels = certify_evidence(evidence, method=method, n=50, certified_class=chosen, alpha=0.01)
            assert alone == group
            assert labels is not None
            assert made.labels is not None
            assert (labels == made.labels).all()
    assert len(made.contents) == 6


def test_labels_travel_with_certificates(run: Path, tmp_path: Path) -> None:
    made, labels = certify_evidence(open_evidence(run), method="top_class")
    write_certificates(tmp_path / "c.parquet", made, labels=labels)
    again, known = read_labelled(tmp_path / "c.parquet")
    assert again == made == read_certificates(tmp_path / "c.parquet")
    assert known is not None
    assert labels is not None
    assert (known == labels).all()
    found = read_result(tmp_path / "c.parquet", CertifyOptions()).labels
    assert found is not None
    assert (found == labels).all()
    write_certificates(tmp_path / "bare.parquet", made)
    assert read_labelled(tmp_path / "bare.parquet")[1] is None


def test_certified_checks_its_labels() -> None:
    made = certify_votes([[90, 10], [80, 20]], sigma=0.5, labels=[0, 0], ids=["a", "b"])
    assert isinstance(made, list)
    with pytest.raises(InvalidInput, match="one for each of 2"):
        Certified("run", tuple(made), np.array([1]))
    with pytest.raises(InvalidInput, match="at least one certificate"):
        Certified("run", ())
