"""Evidence outlives versions: today's reads the first format, leaves a newer one alone, and tells which is which."""

import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler import __version__
from buckler.errors import DamagedEvidence, NewerFormat, StoreError
from buckler.runs.certify import certify_evidence
from buckler.runs.identity import Identity
from buckler.runs.spec import RunSpec, hash_of
from buckler.runs.store.certificates import read_certificates, read_origin
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.sealed import FORMAT, read_sealed, write_sealed, writing
from buckler.runs.store.writer import Writer, open_writer
from tests.runs.victim import run, spec

GOLDEN = Path(__file__).parents[1] / "golden" / "evidence_1"


def contents(home: Path) -> dict[str, bytes]:
    return {p.relative_to(home).as_posix(): p.read_bytes() for p in sorted(home.rglob("*")) if p.is_file()}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "run", tmp_path / "run")
    return tmp_path / "run"


def test_the_first_format_is_read_as_it_was_written(golden: Path) -> None:
    held: dict[str, Any] = json.loads((GOLDEN / "held.json").read_text())
    evidence = open_evidence(golden)
    assert evidence.complete
    counts, selection, labels = evidence.counts()
    assert selection is not None
    assert labels is not None
    assert list(counts.ids) == held["ids"]
    assert counts.values.tolist() == held["counts"]
    assert selection.values.tolist() == held["selection"]
    assert labels.tolist() == held["labels"]
    assert [made.values[0].tolist() for made, _, _ in evidence.scores()] == held["scores"]
    made, _ = certify_evidence(evidence, alpha=0.05)
    assert [c.predicted for c in made] == held["predicted"]
    np.testing.assert_allclose([c.radius for c in made], held["radii"], rtol=1e-9)


def test_certificates_of_the_first_format_are_read() -> None:
    held = json.loads((GOLDEN / "held.json").read_text())
    made = read_certificates(GOLDEN / "certificates.parquet")
    assert [c.radius for c in made] == held["radii"]
    assert [c.predicted for c in made] == held["predicted"]
    assert read_origin(GOLDEN / "certificates.parquet") == {"run": "golden"}


def open_golden(home: Path, asked: RunSpec) -> AbstractContextManager[Writer]:
    manifest = read_sealed(home / "manifest.json")
    owner, environment = manifest["owner"], manifest["environment"]
    return open_writer(home, asked, Identity(owner["classifier"], owner["data"], environment), inputs=3)


def test_the_first_format_is_gone_on_with_in_its_own_shards(golden: Path) -> None:
    for path in (golden / "shards").glob("000001.*"):
        path.unlink()
    with open_golden(golden, replace(open_evidence(golden).spec, shard_inputs=None)) as writer:
        assert writer.missing() == [(2, 3)]
        assert writer.spec.shard_inputs == writer.spec.drawn_together == 2


def test_the_writers_version_is_in_the_manifest_and_in_every_seal(tmp_path: Path) -> None:
    run(str(tmp_path / "run"), spec=spec(limit=8))
    files = [tmp_path / "run" / "manifest.json", *(tmp_path / "run" / "shards").glob("*.json")]
    assert len(files) == 3
    for path in files:
        values = read_sealed(path)
        assert (values["format"], values["version"]) == (FORMAT, __version__)


@pytest.mark.parametrize("name", ["manifest.json", "shards/000001.json"])
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed as here", "sealed in another way"])
def test_a_newer_format_is_said_to_be_newer_and_is_never_touched(tmp_path: Path, name: str, sealed: bool) -> None:
    home = tmp_path / "run"
    run(str(home), spec=spec(limit=8))
    values = {**read_sealed(home / name), "format": FORMAT + 1, "version": "9.8.7", "more": [1]}
    write_sealed(home / name, values)
    if not sealed:
        text = json.loads((home / name).read_text())
        (home / name).write_text(json.dumps({**text, "seal": "made in another way"}))
    before = contents(home)
    for attempt in (
        lambda: open_evidence(home).counts(),
        lambda: run(str(home), spec=spec(limit=8)),
        lambda: run(str(home), spec=spec(limit=8), repair=True),
    ):
        with pytest.raises(NewerFormat, match=rf"newer version \(format {FORMAT + 1}, buckler 9\.8\.7\)") as caught:
            attempt()
        assert "damaged" not in str(caught.value)
        assert not isinstance(caught.value, DamagedEvidence)
    assert contents(home) == before


def test_a_newer_shard_is_left_where_it_does_not_belong(tmp_path: Path) -> None:
    home = tmp_path / "run"
    run(str(home), spec=spec(limit=8))
    write_sealed(home / "shards" / "000099.json", {"format": FORMAT + 1, "version": "9.8.7"})
    before = contents(home)
    with pytest.raises(NewerFormat):
        run(str(home), spec=spec(limit=8), repair=True)
    assert contents(home) == before


def test_a_later_version_with_one_more_field_reads_todays_evidence(golden: Path) -> None:
    """Two fields are taken out of the specification, as if they had come later."""
    manifest = read_sealed(golden / "manifest.json")
    del manifest["spec"]["compile"], manifest["spec"]["every"]
    manifest["owner"]["spec"] = hash_of(manifest["spec"])
    write_sealed(golden / "manifest.json", manifest)
    for path in (golden / "shards").glob("*.json"):
        write_sealed(path, {**read_sealed(path), "owner": manifest["owner"]})
    evidence = open_evidence(golden)
    assert evidence.spec.hash() != manifest["owner"]["spec"]
    assert evidence.counts()[0].values.sum() == 60
    with open_golden(golden, evidence.spec) as writer:
        assert writer.missing() == []


def test_unknown_fields_beside_the_specification_mean_nothing(golden: Path) -> None:
    for path in [golden / "manifest.json", *(golden / "shards").glob("*.json")]:
        write_sealed(path, {**read_sealed(path), "weather": "fine"})
    assert open_evidence(golden).counts()[0].values.sum() == 60


def test_nothing_is_certified_from_a_specification_with_a_field_that_is_not_known(golden: Path) -> None:
    manifest = read_sealed(golden / "manifest.json")
    manifest["spec"]["weather"] = "fine"
    manifest["owner"]["spec"] = hash_of(manifest["spec"])
    write_sealed(golden / "manifest.json", {**manifest, "version": "9.8.7"})
    with pytest.raises(NewerFormat, match=r"newer version \(the specification says 'weather', buckler 9\.8\.7\)"):
        open_evidence(golden)


def test_nothing_is_certified_from_draws_of_a_law_that_is_not_known(golden: Path) -> None:
    manifest = read_sealed(golden / "manifest.json")
    manifest["spec"]["law"] = "lognormal"
    manifest["owner"]["spec"] = hash_of(manifest["spec"])
    write_sealed(golden / "manifest.json", {**manifest, "version": "9.8.7"})
    with pytest.raises(NewerFormat, match=r"newer version \(its law is 'lognormal', buckler 9\.8\.7\)"):
        open_evidence(golden)


def test_a_specification_that_is_not_the_one_hashed_is_damage(golden: Path) -> None:
    manifest = read_sealed(golden / "manifest.json")
    manifest["spec"]["sigma"] = 0.25
    write_sealed(golden / "manifest.json", manifest)
    with pytest.raises(DamagedEvidence, match="another hash"):
        open_evidence(golden)


def test_a_size_of_shards_that_was_asked_for_is_exact(golden: Path) -> None:
    asked = replace(open_evidence(golden).spec, shard_inputs=1)
    with pytest.raises(StoreError, match="shard_inputs: 2 in the folder, 1 asked for"), open_golden(golden, asked):
        pass


def test_what_the_system_says_is_one_line_without_its_number() -> None:
    for problem, said in ((OSError(28, "No space left on device"), "No space left on device"), (OSError("odd"), "odd")):
        with pytest.raises(StoreError) as raised, writing("write 'a'"):
            raise problem
        assert str(raised.value) == f"cannot write 'a': {said}; what was finished is kept"
