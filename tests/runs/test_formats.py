"""Sealed files: one format, its number in every file; another number is refused, and its files are left alone."""

import json
from pathlib import Path

import pytest

from buckler import __version__
from buckler.errors import DamagedEvidence, StoreError
from buckler.runs.spec import hash_of
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.sealed import SEALED_FORMAT, read_sealed, write_sealed, writing
from tests.runs.victim import run, spec

SECOND = "000004-000007"


def contents(home: Path) -> dict[str, bytes]:
    return {p.relative_to(home).as_posix(): p.read_bytes() for p in sorted(home.rglob("*")) if p.is_file()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    run(str(tmp_path / "run"), spec=spec(limit=8))
    return tmp_path / "run"


def test_format_and_version_are_in_the_manifest_and_in_every_seal(home: Path) -> None:
    files = [home / "manifest.json", *(home / "shards").glob("*.json")]
    assert len(files) == 3
    for path in files:
        values = read_sealed(path)
        assert (values["format"], values["version"]) == (SEALED_FORMAT, __version__)


@pytest.mark.parametrize("name", ["manifest.json", f"shards/{SECOND}.json"])
@pytest.mark.parametrize("number", [SEALED_FORMAT - 1, SEALED_FORMAT + 1])
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed as here", "sealed in another way"])
def test_another_format_is_refused_and_never_touched(home: Path, name: str, number: int, sealed: bool) -> None:
    values = {**read_sealed(home / name), "format": number, "version": "9.8.7", "more": [1]}
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
        with pytest.raises(StoreError, match=rf"format {number}, written by buckler '9\.8\.7'") as caught:
            attempt()
        assert not isinstance(caught.value, DamagedEvidence)
    assert contents(home) == before


def test_a_seal_of_another_format_is_left_where_it_does_not_belong(home: Path) -> None:
    write_sealed(home / "shards" / "000099-000100.json", {"format": SEALED_FORMAT + 1, "version": "9.8.7"})
    before = contents(home)
    with pytest.raises(StoreError, match=f"format {SEALED_FORMAT + 1}"):
        run(str(home), spec=spec(limit=8), repair=True)
    assert contents(home) == before


@pytest.mark.parametrize("change", [{"weather": "fine"}, {"noise": "lognormal"}])
def test_a_specification_with_something_unknown_is_damage(home: Path, change: dict[str, str]) -> None:
    manifest = read_sealed(home / "manifest.json")
    manifest["spec"] |= change
    manifest["owner"]["spec"] = hash_of(manifest["spec"])
    write_sealed(home / "manifest.json", manifest)
    with pytest.raises(DamagedEvidence, match=r"manifest\.json.*(weather|noise)"):
        open_evidence(home)


def test_a_specification_that_is_not_the_one_hashed_is_damage(home: Path) -> None:
    manifest = read_sealed(home / "manifest.json")
    manifest["spec"]["sigma"] = 0.5
    write_sealed(home / "manifest.json", manifest)
    with pytest.raises(DamagedEvidence, match="another hash"):
        open_evidence(home)


def test_the_size_of_shards_is_that_of_the_run(home: Path) -> None:
    assert run(str(home), spec=spec(limit=8, shard_inputs=None)).complete
    with pytest.raises(StoreError, match="shard_inputs: 4 in the folder, 1 asked for"):
        run(str(home), spec=spec(limit=8, shard_inputs=1))


def test_an_error_of_the_system_is_one_line_without_its_number() -> None:
    for problem, said in ((OSError(28, "No space left on device"), "No space left on device"), (OSError("odd"), "odd")):
        with pytest.raises(StoreError) as raised, writing("write 'a'"):
            raise problem
        assert str(raised.value) == f"cannot write 'a': {said}; what was finished is kept"
