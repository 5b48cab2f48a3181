"""Certificates as a file: what is read is recomputed, whoever wrote it."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import buckler
from buckler.certificate import Certificate
from buckler.noise import Gaussian
from buckler.runs.store.tables import SCHEMA, largest_margin, read_certificates, write_certificates
from buckler.types import MarginKind
from tests.runs.forging import rewrite

COUNTS = np.array([[900, 60, 40], [700, 200, 100], [350, 350, 300]])


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, list[Certificate]]:
    made: list[Certificate] = []
    for margin in ("quantile", "probability"):
        found = buckler.certify_votes(COUNTS, sigma=0.3, labels=[0, 0, 0], method="top_class", margin=margin)
        made += found
    write_certificates(tmp_path / "c.parquet", made)
    return tmp_path / "c.parquet", made


def test_what_is_written_is_read_back(written: tuple[Path, list[Certificate]]) -> None:
    path, made = written
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
    written: tuple[Path, list[Certificate]], change: Callable[[pa.Table], pa.Table], text: str
) -> None:
    path, _ = written
    rewrite(path, change(pq.read_table(path)))
    with pytest.raises(buckler.InvalidInput, match=text):
        read_certificates(path)
