"""Certificates as a file: what is read is recomputed, whoever wrote it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import buckler
from buckler.records import Certificate
from buckler.runs.store.certificates import SCHEMA, read_certificates, write_certificates

COUNTS = np.array([[900, 60, 40], [700, 200, 100], [350, 350, 300]])


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, list[Certificate]]:
    made: list[Certificate] = []
    for margin in ("quantile", "probability"):
        found = buckler.certify_counts(COUNTS, sigma=0.3, label=[0, 0, 0], method="top_class", margin=margin)
        assert isinstance(found, list)
        made += found
    write_certificates(tmp_path / "c.parquet", made)
    return tmp_path / "c.parquet", made


def test_what_is_written_is_read_back(written: tuple[Path, list[Certificate]]) -> None:
    path, made = written
    assert read_certificates(path) == made
    assert pq.read_schema(path).names == SCHEMA.names


def column(name: str, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), table.field(name), change(table[name]))

    return changed


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (column("radius", lambda values: pc.multiply(values, 100.0)), "radius must be what margin"),
        (column("radius", lambda values: pc.multiply(values, 1.0 + 1e-14)), "radius must be what margin"),
        (column("sigma", lambda values: pc.multiply(values, 2.0)), "sigma must be that of the law"),
        (column("margin", lambda values: pc.divide(values, 2.0)), "radius must be what margin"),
        (column("method", lambda values: pa.array(["wald"] * len(values))), "cannot issue a certificate"),
        (column("method", lambda values: pa.array(["Published"] * len(values))), "cannot issue a certificate"),
        (column("sound", pc.invert), "cannot issue a certificate"),
    ],
    ids=["radius", "radius by a hair", "sigma", "margin", "method", "case", "sound"],
)
def test_a_file_that_was_changed_is_refused(
    written: tuple[Path, list[Certificate]], change: Callable[[pa.Table], pa.Table], text: str
) -> None:
    path, _ = written
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(buckler.InvalidInput, match=text):
        read_certificates(path)
