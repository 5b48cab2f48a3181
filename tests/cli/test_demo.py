"""The demo, small: real training, real draws, real files."""

from pathlib import Path

import numpy as np
import pytest

from buckler.certify.methods import sound_methods
from buckler.cli.app import run
from buckler.cli.terminal import DONE
from buckler.runs.store.tables import read_certificates


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--images", "40", "--n", "200", "--epochs", "8", "--out", str(tmp_path / "d")]
    assert run(["demo", *options]) == DONE
    shown = capsys.readouterr().out
    names = [method.name for method in sound_methods()]
    assert all(name in shown for name in names)
    assert (tmp_path / "d" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    certificates = read_certificates(tmp_path / "d" / "certificates.parquet")
    assert len(certificates) == 40 * len(names)
    assert run(["certify", str(tmp_path / "d" / "evidence"), "--out", str(tmp_path / "again.parquet")]) == DONE
    again = read_certificates(tmp_path / "again.parquet")
    assert again == certificates[:40]
    assert {(c.n, c.n0) for c in again} == {(200, 0)}
    assert np.mean([c.predicted is not None for c in again]) > 0.5
    # The same again: nothing is drawn anew, and the same comes out.
    assert run(["demo", *options]) == DONE
    assert read_certificates(tmp_path / "d" / "certificates.parquet") == certificates
