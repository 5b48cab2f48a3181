"""The demo, small: real training, real draws, real files."""

from pathlib import Path

import numpy as np
import pytest

from buckler.certify.methods import certify_counts, sound_methods
from buckler.cli.app import DONE, run
from buckler.runs.store.certificates import read_certificates
from buckler.runs.store.counts import read_counts


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--images", "40", "--n", "200", "--n0", "20", "--epochs", "8", "--out", str(tmp_path / "d")]
    assert run(["demo", *options]) == DONE
    shown = capsys.readouterr().out
    names = [method.name for method in sound_methods()]
    assert all(name in shown for name in names)
    assert (tmp_path / "d" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    certificates = read_certificates(tmp_path / "d" / "certificates.parquet")
    assert len(certificates) == 40 * len(names)
    selection, estimation = read_counts(tmp_path / "d" / "evidence.parquet")
    assert (selection.n == 20).all()
    assert (estimation.n == 200).all()
    again = certify_counts(
        estimation.values, sigma=0.4, selection=selection.values, method=names[0], ids=estimation.ids
    )
    assert again == certificates[:40]
    assert np.mean([c.predicted is not None for c in again]) > 0.5
