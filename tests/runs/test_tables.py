"""Parquet files of the store: what is too large or lacks a value, certificates recomputed, the first draws' scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import buckler
from buckler.certificate import Bracket, Certificate, PairTest, Refutation
from buckler.certify.scores import certify_scores
from buckler.errors import DamagedEvidence, InvalidInput
from buckler.noise import Gaussian
from buckler.runs.certify import certify_evidence
from buckler.runs.store import parquet, shard
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.folder import _foreign
from buckler.runs.store.parquet import number_of_values
from buckler.runs.store.shard import ScoreFile, ScoreWriter
from buckler.runs.store.tables import (
    BESIDE,
    LABEL,
    REFUTATION_COLUMNS,
    SCHEMA,
    Drawing,
    largest_margin,
    read_certificates,
    read_decisions,
    read_refutations,
    write_certificates,
    write_decisions,
    write_refutations,
)
from buckler.runs.sweep import Grid, sweep_runs
from buckler.types import AnyArray, MarginKind
from tests.runs.victim import rewrite, run, spec


def written(path: Path, rows: int = 50) -> pq.FileMetaData:
    pq.write_table(pa.table({"x": np.arange(float(rows)), "y": np.arange(rows)}), path)
    return pq.read_metadata(path)


def test_rows_from_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    written(path)
    assert parquet.open_table(path, rows=50, row_bytes=1).metadata.num_rows == 50
    with pytest.raises(ValueError, match="it has 50 rows, and must have 1 to 49"):
        parquet.open_table(path, rows=49, row_bytes=1)
    written(path, 0)
    with pytest.raises(ValueError, match="it has 0 rows"):
        parquet.open_table(path, rows=50, row_bytes=1)


def test_bytes_from_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    found = written(path)
    unfolded = sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))
    monkeypatch.setattr(parquet, "BYTES_OF_ANY_TABLE", unfolded - 3 * 50)
    parquet.open_table(path, rows=50, row_bytes=3)
    monkeypatch.setattr(parquet, "BYTES_OF_ANY_TABLE", unfolded - 3 * 50 - 1)
    with pytest.raises(ValueError, match=f"it unfolds to {max(unfolded, 800)} bytes, too many for 50 rows"):
        parquet.open_table(path, rows=50, row_bytes=3)


def test_numbers_from_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that repeats one value has few bytes and as many numbers as any other: eight bytes each are counted."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": pa.array(np.zeros(50_000)), "y": pa.array(np.zeros(50_000))}), path)
    monkeypatch.setattr(parquet, "BYTES_OF_ANY_TABLE", 20_000)
    monkeypatch.setattr(parquet, "NUMBER_BYTES_OF_ANY_TABLE", 800_000)
    parquet.open_table(path, rows=50_000, row_bytes=0)
    monkeypatch.setattr(parquet, "NUMBER_BYTES_OF_ANY_TABLE", 799_999)
    with pytest.raises(ValueError, match="it unfolds to 800000 bytes, too many for 50000 rows"):
        parquet.open_table(path, rows=50_000, row_bytes=0)
    parquet.open_table(path, rows=50_000, row_bytes=16)


def test_values_are_counted_from_the_footer(tmp_path: Path) -> None:
    """Flat, repeated and nested columns, in several row groups, with statistics and metadata."""
    path, rows = tmp_path / "t.parquet", 1000
    table = pa.table(
        {
            "x": np.arange(float(rows)), "name": [str(i) for i in range(rows)], "flag": [True, None] * (rows // 2),
            "list": [[1, 2, 3], []] * (rows // 2),
            "votes": pa.array([[(1, 2)], None] * (rows // 2), pa.map_(pa.int64(), pa.int64())),
        }
    )  # fmt: skip
    pq.write_table(table.replace_schema_metadata({"a": "b" * 5000}), path, row_group_size=300)
    found = pq.read_metadata(path)
    groups = [found.row_group(i) for i in range(found.num_row_groups)]
    expected = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    assert (number_of_values(path), len(groups)) == (expected, 4)


def footer(path: Path, data: bytes, length: int | None = None) -> Path:
    path.write_bytes(b"PAR1" + data + (len(data) if length is None else length).to_bytes(4, "little") + b"PAR1")
    return path


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x15",  # a number without its digits
        b"\x19\xfc\xff\xff\xff\xff\x0f",  # a list of billions of structures
        b"\x18\xff\xff\x03x",  # a text longer than the footer
        b"\x15" + b"\xff" * 12,  # a number without an end
        b"\x1c" * 1000,  # structures inside of one another
        b"\x1b\x00",  # a map, which no field of Parquet is
        b"\x49\x1c\x19\x1c\x00\x00\x00",  # a column without metadata
        b"\x49\x1c\x19\x1c\x3c\x56\x01\x00\x00\x00\x00",  # a negative number of values
        b"\x49\x15\x02\x00",  # row groups that are numbers
    ],
)
def test_broken_footers_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"footer|negative|does not end"):
        number_of_values(footer(tmp_path / "t.parquet", data))


def test_a_footer_must_fit_its_file(tmp_path: Path) -> None:
    path = footer(tmp_path / "t.parquet", b"\x49\x1c\x19\x1c\x3c\x56\x0e\x00\x00\x00\x00")
    assert number_of_values(path) == 7
    for length in (0, 16, 2**31):
        with pytest.raises(ValueError, match="does not end"):
            number_of_values(footer(path, b"\x00" * 8, length))
    for short in (b"", b"PAR1", b"PAR1\x01\x00\x00\x00PAR2"):
        path.write_bytes(short)
        with pytest.raises(ValueError, match="does not end"):
            number_of_values(path)


def test_likely_rows_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"x" * 1000)
    assert parquet.likely_rows(path) == parquet.ROWS_OF_ANY_TABLE + 1000
    assert parquet.likely_rows(tmp_path / "nothing") == parquet.ROWS_OF_ANY_TABLE


def rows_of(inputs: int, draws: int, columns: int, seed: int) -> AnyArray:
    return np.random.default_rng(seed).normal(size=(inputs * draws, columns)).astype(np.float32)


@pytest.mark.parametrize("numbers", [1, 7 * 3, 100 * 3, 10**6])
def test_scores_in_groups_of_any_size_are_read_back(
    tmp_path: Path, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However rows come and however they are grouped: each input's are those that were written for it."""
    monkeypatch.setattr(shard, "NUMBERS_IN_A_GROUP", numbers)
    path, of = tmp_path / "s.parquet", spec(scores="logits", runner_ups=None, n=60, n0=25)
    written_rows = {"selection": rows_of(4, 25, 3, 0), "estimation": rows_of(4, 60, 3, 1)}
    writer = ScoreWriter(path, ["a", "b", "c", "d"], of)
    for stream, rows in written_rows.items():
        writer.begin(stream)
        for part in np.array_split(rows, 7):
            writer.add(part)
    writer.close()
    sizes = [pq.read_metadata(path).row_group(i).num_rows for i in range(pq.read_metadata(path).num_row_groups)]
    if numbers < 10**6:  # full groups, and one at the end of each stream that may be smaller
        size = max(1, numbers // 3)
        assert sizes == [size] * (100 // size) + [100 % size] * (100 % size > 0) + [size] * (240 // size) + (
            [240 % size] * (240 % size > 0)
        )
    table = pq.read_table(path)
    assert table["id"].to_pylist() == [name for draws in (25, 60) for name in "abcd" for _ in range(draws)]
    assert table["draw"].to_pylist() == [k for draws in (25, 60) for _ in range(4) for k in range(draws)]
    file = ScoreFile(path, of, 4)
    for stream, draws in (("estimation", 60), ("selection", 25)):
        for i in (2, 0, 3, 1):
            expected = written_rows[stream][i * draws : (i + 1) * draws]
            np.testing.assert_array_equal(file.of(stream, i, draws), expected)
            np.testing.assert_array_equal(file.of(stream, i, 10), expected[:10])
        np.testing.assert_array_equal(np.concatenate(list(file.rows(stream, 1, 4))), written_rows[stream][draws:])
        assert len(file._held) <= shard.HELD
    with pytest.raises(DamagedEvidence, match=r"340 rows of scores, and there should be 425|must have 1 to"):
        ScoreFile(path, of, 5)


def test_a_group_without_rows_is_damage(tmp_path: Path) -> None:
    of = spec(scores="logits", runner_ups=None, n=3, n0=0)
    table = pa.table({"scores": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(9, dtype=np.float32)), 3)})
    with pq.ParquetWriter(tmp_path / "s.parquet", table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table.slice(0, 0))
    groups = pq.read_metadata(tmp_path / "s.parquet")
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [3, 0]
    with pytest.raises(DamagedEvidence, match="3 rows of scores, and there should be 3"):
        ScoreFile(tmp_path / "s.parquet", of, 1)


def test_a_run_of_one_input_is_a_run(tmp_path: Path) -> None:
    from buckler.runs.store.evidence import open_evidence
    from tests.runs.victim import run

    run(str(tmp_path / "run"), spec=spec(limit=1, n=20, n0=5))
    assert (open_evidence(tmp_path / "run").inputs, open_evidence(tmp_path / "run").complete) == (1, True)


def test_half_precision_is_cut_at_its_ends_and_single_is_not(tmp_path: Path) -> None:
    huge = np.array([[1e6, -1e6, 0.5]], dtype=np.float32)
    for dtype, expected in (("float16", [65504.0, -65504.0, 0.5]), (None, [1e6, -1e6, 0.5])):
        of = spec(scores="logits", runner_ups=None, n=1, n0=0, score_dtype=dtype)
        writer = ScoreWriter(tmp_path / f"{dtype}.parquet", ["a"], of)
        writer.begin("estimation")
        writer.add(huge)
        writer.close()
        assert ScoreFile(tmp_path / f"{dtype}.parquet", of, 1).of("estimation", 0, 1).tolist() == [expected]


def without(path: Path, name: str, row: int) -> None:
    """Write a table again with one value less."""
    table = pq.read_table(path)
    values = table[name].to_pylist()
    values[row] = None
    at = table.column_names.index(name)
    changed = table.set_column(at, pa.field(name, table.field(name).type), pa.array(values, table.field(name).type))
    rewrite(path, changed)


def test_a_decision_that_lacks_a_value_is_refused(tmp_path: Path) -> None:
    from buckler.certify.ladder import Ladder
    from buckler.certify.sequential import AnytimeTest

    test = AnytimeTest(Ladder((0.1,), Gaussian(0.5)), [0, 0], 3)
    test.update([0, 1], [[60, 1, 0], [30, 40, 5]])
    decided = [test.decided(i, f"input {i}") for i in range(2)]
    path = tmp_path / "d.parquet"

    def write(*drawn_by: int) -> None:
        model = {"answers": "a", "weights": {}, "environment": {}}
        write_decisions(path, decided, [Drawing("hash", k) for k in drawn_by], {"drawn_by": [model, model]})

    write(0, 1)
    assert read_decisions(path).decided == decided
    assert [drawing.drawn_by for drawing in read_decisions(path).drawings] == [0, 1]
    schema = pq.read_schema(path)
    assert not any(schema.field(name).nullable for name in BESIDE.names)
    for drawn_by in ((0, 2), (-1, 0)):
        write(*drawn_by)
        with pytest.raises(InvalidInput, match="drawn_by must be below 2, the number"):
            read_decisions(path)
    for name in BESIDE.names:
        write(0, 1)
        without(path, name, 1)
        with pytest.raises(InvalidInput, match="decisions must be a table of buckler decide"):
            read_decisions(path)


def test_a_certificate_that_lacks_a_value_is_refused(tmp_path: Path) -> None:
    made = buckler.certify_votes([[90, 5, 5], [80, 15, 5]], sigma=0.5, labels=[0, 0])
    path = tmp_path / "c.parquet"
    for name in ("id", "radius", "alpha", "method", "sound", "n", LABEL):
        write_certificates(path, made, {}, np.array([0, 1]))
        assert read_certificates(path) == list(made)
        schema = pq.read_schema(path)
        assert name == LABEL or not schema.field(name).nullable
        without(path, name, 1)
        with pytest.raises(InvalidInput, match=r"must have a value in every row|Parquet table|label must hold"):
            read_certificates(path)


def test_what_killed_writers_leave_is_not_foreign(tmp_path: Path) -> None:
    for name in (".lock", "begun-000012.json", "shards", ".tmp-manifest.json"):
        (tmp_path / name).touch()
        assert _foreign(tmp_path) is None
    (tmp_path / "thesis.tex").touch()
    (tmp_path / "a.tex").touch()
    assert _foreign(tmp_path) == "a.tex"


def test_a_refutation_that_lacks_a_value_or_its_record_is_refused(tmp_path: Path) -> None:
    noise, path, origin = Gaussian(0.5), tmp_path / "r.parquet", {"alpha": 0.01}
    lost, won = PairTest(0.6, 1, 100, 40, 40, refuted=False), PairTest(0.7, 1, 100, 80, 10, refuted=True)
    point = np.linspace(0.0, 1.0, 6, dtype=np.float32).reshape(2, 3)
    nothing = Refutation("a", 0, None, None, None, 0.01, noise, (lost,))
    found = Refutation("b", 0, 0.7, 1, point, 0.01, noise, (won, lost))
    given = [Bracket(nothing, 0.25, 1e-3, None), Bracket(found, 0.5, 1e-3, 0)]
    write_refutations(path, given, origin)
    back, said = read_refutations(path)
    assert said == origin
    for wrote, read in zip(given, back, strict=True):
        one, other = wrote.refutation, read.refutation
        assert (other.id, other.label, other.radius, other.rival, other.alpha, other.noise, other.tried) == (
            one.id, one.label, one.radius, one.rival, one.alpha, one.noise, one.tried,
        )  # fmt: skip
        assert (read.certified, read.certified_alpha, read.truth) == (
            wrote.certified, wrote.certified_alpha, wrote.truth,
        )  # fmt: skip
        np.testing.assert_array_equal(other.point, one.point)
    may_lack = {"radius", "rival", "label", "point", "shape"}
    assert {field.name for field in pq.read_schema(path) if field.nullable} == may_lack
    for name in set(REFUTATION_COLUMNS.names) - may_lack:
        write_refutations(path, given, origin)
        without(path, name, 1)
        with pytest.raises(InvalidInput, match="refutations must"):
            read_refutations(path)
    write_refutations(path, given, origin)
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    with pytest.raises(InvalidInput, match="lack our record"):
        read_refutations(path)


COUNTS = np.array([[900, 60, 40], [700, 200, 100], [350, 350, 300]])


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, list[Certificate]]:
    made: list[Certificate] = []
    for margin in ("quantile", "probability"):
        found = buckler.certify_votes(COUNTS, sigma=0.3, labels=[0, 0, 0], method="top_class", margin=margin)
        made += found
    write_certificates(tmp_path / "c.parquet", made)
    return tmp_path / "c.parquet", made


def test_what_is_saved_is_read_back(saved: tuple[Path, list[Certificate]]) -> None:
    path, made = saved
    assert read_certificates(path) == made
    assert pq.read_schema(path).names == SCHEMA.names


@pytest.mark.filterwarnings("ignore:n = ")
def test_margins_beyond_unanimous_votes_are_refused(tmp_path: Path) -> None:
    """A certificate whose fields agree with one another, and that no votes can give."""
    path, noise = tmp_path / "c.parquet", Gaussian(0.5)

    def written(n: int, alpha: float, margin: float, kind: MarginKind) -> None:
        radius = noise.radius(margin, kind)
        made = Certificate("a", 0, radius, kind, margin, alpha, n, 0, noise, "hardmax", None, "exact")
        write_certificates(path, [made])

    written(1, 1e-9, 4000.0, "quantile")
    with pytest.raises(buckler.InvalidInput, match="margin must be at most"):
        read_certificates(path)
    written(1, 0.5, 1.0, "probability")
    with pytest.raises(buckler.InvalidInput, match="margin must be at most"):
        read_certificates(path)
    for kind in get_args(MarginKind):
        for method in ("exact", "top_class", "bonferroni"):
            for n, alpha in ((1, 0.5), (10, 0.05), (1000, 1e-3), (100_000, 1e-9)):
                made = buckler.certify_votes([[n, 0]], sigma=0.5, labels=[0], alpha=alpha, margin=kind, method=method)
                write_certificates(path, made)
                assert read_certificates(path) == list(made)


def test_the_largest_margin_is_that_of_the_exact_method() -> None:
    for kind in get_args(MarginKind):
        for n, alpha in ((5, 0.05), (100, 1e-3), (100_000, 1e-9)):
            made = buckler.certify_votes([[n, 0]], sigma=0.5, labels=[0], alpha=alpha, margin=kind)
            assert made[0].margin == pytest.approx(largest_margin(kind, alpha, n), rel=1e-8)


def test_unanimous_scores_of_a_randomised_method_are_kept(tmp_path: Path) -> None:
    scores, ids = np.tile([1.0, 0.0], (60, 20, 1)), [str(i) for i in range(60)]
    for kind in get_args(MarginKind):
        for alpha in (0.01, 0.2):
            made = buckler.certify_scores(scores, sigma=0.5, labels=[0] * 60, alpha=alpha, margin=kind, seed=1, ids=ids)
            most = largest_margin(kind, alpha, 20)
            assert max(c.margin for c in made) > most
            write_certificates(tmp_path / "c.parquet", made)
            assert read_certificates(tmp_path / "c.parquet") == list(made)


def column(name: str, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), table.field(name), change(table[name]))

    return changed


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (column("radius", lambda values: pc.multiply(values, 100.0)), "radius must be what margin"),
        (column("radius", lambda values: pc.multiply(values, 1.0 + 1e-14)), "radius must be what margin"),
        (column("sigma", lambda values: pc.multiply(values, 2.0)), "sigma must be that of the noise"),
        (column("margin", lambda values: pc.divide(values, 2.0)), "radius must be what margin"),
        (column("method", lambda values: pa.array(["wald"] * len(values))), "cannot issue a certificate"),
        (column("method", lambda values: pa.array(["Published"] * len(values))), "cannot issue a certificate"),
        (column("sound", pc.invert), "cannot issue a certificate"),
    ],
    ids=["radius", "radius by a hair", "sigma", "margin", "method", "case", "sound"],
)
def test_a_file_that_was_changed_is_refused(
    saved: tuple[Path, list[Certificate]], change: Callable[[pa.Table], pa.Table], text: str
) -> None:
    path, _ = saved
    rewrite(path, change(pq.read_table(path)))
    with pytest.raises(buckler.InvalidInput, match=text):
        read_certificates(path)


BASE: dict[str, Any] = {"scores": "logits", "runner_ups": None, "limit": 6, "n": 400, "n0": 50}


def made(home: Path, **changes: Any) -> Evidence:
    run(str(home), spec=spec(**{**BASE, **changes}))
    return open_evidence(home)


def rows(evidence: Evidence, n: int) -> AnyArray:
    return np.concatenate([scores.values for scores, _, _ in evidence.scores(n, temperature=1.0)])


def test_first_draws_are_those_of_a_run_that_keeps_all(tmp_path: Path) -> None:
    whole, part = made(tmp_path / "whole"), made(tmp_path / "part", score_draws=150)
    assert part.spec.kept_draws == 150
    for n in (10, 100, 400):
        assert (whole.counts(n).values == part.counts(n).values).all()
    assert np.abs(rows(whole, 150) - rows(part, 150)).max() < 1e-5
    for (_, a, label), (_, b, other) in zip(whole.scores(), part.scores(), strict=True):
        assert label == other
        assert a is not None
        assert b is not None
        assert b.n == 50
        assert np.abs(a.values - b.values).max() < 1e-5
    assert next(iter(part.scores()))[0].n == 150
    with pytest.raises(InvalidInput, match="from 1 to 150"):
        next(iter(part.scores(151)))
    certificates = certify_evidence(part, method="pairwise/star", certified_class="label")
    assert {c.n for c in certificates} == {150}
    randomised = certify_evidence(part, method="pairwise/randomised_star", certified_class="label")
    assert {(c.method, c.seed) for c in randomised} == {("pairwise/randomised_star", part.spec.seed)}
    given, ids = rows(part, 150), [c.id for c in randomised]
    again = certify_scores(given, sigma=part.spec.sigma, labels=randomised.labels, seed=part.spec.seed, ids=ids)
    np.testing.assert_array_equal([c.radius for c in randomised], again.radii)


def test_half_precision_is_half_the_bytes_and_close(tmp_path: Path) -> None:
    full, half = made(tmp_path / "full"), made(tmp_path / "half", score_dtype="float16")
    sizes = [sum(p.stat().st_size for p in e.root.rglob("*.scores.parquet")) for e in (full, half)]
    assert sizes[1] < 0.6 * sizes[0]
    assert (full.counts().values == half.counts().values).all()
    assert 0.0 < np.abs(rows(full, 400) - rows(half, 400)).max() < 5e-3


def test_the_largest_logit_stays_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.runs import victim

    monkeypatch.setattr(victim, "WEIGHTS", victim.WEIGHTS * np.float32(1e5))
    evidence = made(tmp_path / "huge", score_dtype="float16", limit=2)
    assert np.isfinite(rows(evidence, 400)).all()


def test_a_sweep_stops_where_the_scores_do(tmp_path: Path) -> None:
    made(tmp_path / "run", score_draws=150, limit=2)
    cells = sweep_runs([tmp_path / "run"], Grid(method=("exact", "pairwise/star"), n=None), tmp_path / "s.parquet")
    found = [(cell.certificates.first.method, cell.certificates.first.n) for cell in cells]
    assert [n for method, n in found if method == "exact"] == [10, 20, 50, 100, 200, 400]
    assert [n for method, n in found if method != "exact"] == [10, 20, 50, 100, 150]
    with pytest.raises(InvalidInput, match="from 1 to 150"):
        sweep_runs([tmp_path / "run"], Grid(method=("pairwise/star",), n=(200,)), tmp_path / "s.parquet")


def test_the_specification_is_as_before_unless_asked() -> None:
    assert not {"score_draws", "score_dtype"} & spec(**BASE).as_dict().keys()
    for wrong in ({"score_draws": 401}, {"score_dtype": "int8"}, {"scores": "none", "score_draws": 5}):
        with pytest.raises(InvalidInput, match="score_d"):
            spec(**{**BASE, **wrong})
