"""Parquet tables of the store by themselves: what is too large, what lacks a value, and scores in several groups."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import buckler
from buckler.certificate import Bracket, PairTest, Refutation
from buckler.errors import DamagedEvidence, InvalidInput
from buckler.noise import Gaussian
from buckler.runs.store import parquet, shard
from buckler.runs.store.parquet import number_of_values
from buckler.runs.store.shard import ScoreFile, ScoreWriter
from buckler.runs.store.tables import (
    BESIDE,
    LABEL,
    REFUTATION_COLUMNS,
    Drawing,
    read_decisions,
    read_labelled,
    read_refutations,
    write_certificates,
    write_decisions,
    write_refutations,
)
from buckler.runs.store.writer import _foreign
from buckler.types import AnyArray
from tests.runs.forging import rewrite
from tests.runs.victim import spec


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
    assert parquet.likely_rows(path, per_byte=8) == parquet.ROWS_OF_ANY_TABLE + 8000
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
        with pytest.raises(InvalidInput, match="drawn_by must be below 2"):
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
        assert read_labelled(path)[0] == list(made)
        schema = pq.read_schema(path)
        assert name == LABEL or not schema.field(name).nullable
        without(path, name, 1)
        with pytest.raises(InvalidInput, match=r"must have a value in every row|Parquet table|label must hold"):
            read_labelled(path)


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
    with pytest.raises(InvalidInput, match="no record"):
        read_refutations(path)
