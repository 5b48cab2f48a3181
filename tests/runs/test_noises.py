"""Laws of other norms from the command line: sampled, certified, swept, decided and reported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.cli.app import run
from buckler.errors import InvalidInput
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, Splitting, Uniform, as_noise
from buckler.runs.logs import write_log
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import read_certificates

MODEL = """
import numpy as np
W = np.random.default_rng(0).normal(size=(64, 4)).astype("f4")
def linear():
    return lambda batch: batch.reshape(len(batch), -1)[:, :64] @ W
"""
FROM = ["--model", "noise_model:linear", "--data", "bytes.npz", "--num-classes", "4"]
LAWS = {
    "splitting:lam=0.5": Splitting(0.5),
    "uniform:lam=0.5": Uniform(0.5),
    "ablation:keep=4,pixels=64": Ablation(4, 64),
    "derandomized-splitting:lam=0.5,template=2": DerandomizedSplitting(0.5, 2),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "noise_model.py").write_text(MODEL)
    x = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "bytes.npz", x=x, y=np.arange(3))
    np.savez(tmp_path / "floats.npz", x=x / 254.0 * 0.9, y=np.arange(3))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("text", LAWS)
def test_a_law_goes_through_every_command(text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    law: Any = LAWS[text]
    drawn = [] if law.total else ["--n", "300"]
    assert run(["sample", "run", *FROM, "--noise", text, *drawn, "--quiet"]) == 0
    spec = open_evidence(here / "run").spec
    assert spec.noise == law
    assert (spec.sigma, spec.n) == (None, law.total or 300)
    assert run(["certify", "run", "--out", "c.parquet", "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    made = read_certificates(here / "c.parquet")
    assert made[0].noise == law
    assert first["radius"] == made[0].radius == law.radius(made[0].margin, law.norm) > 0.0
    assert {c.alpha for c in made} == ({0.0} if law.total else {0.001})
    assert as_noise(None, text) == law
    with pytest.raises(InvalidInput, match=f"a log is of l2 radii; got {law.norm} ones"):
        write_log(here / "log.tsv", made, [0] * len(made))
    deciding = ["decide", *FROM, "--noise", text, "--radii", "0.01", "--max-n", "300"]
    for command in (["certify", "run"], deciding)[: 1 if law.total else 2]:
        assert run([*command, "--out", "none.parquet", "--tsv", "log.tsv"]) == 2
        assert f"--tsv is for l2 radii; got {law.norm} ones under {law.describe()}" in capsys.readouterr().err
        assert not {here / "log.tsv", here / "none.parquet"} & set(here.iterdir())
    assert run(["sweep", "run", "--out", "s.parquet", "--plots", "figures"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"radius r ({law.norm}), noise {text}, n" in shown
    assert run(["certify", "run"]) == 0
    assert f"certified to radius r ({law.norm})" in " ".join(capsys.readouterr().out.split())
    assert run(["sweep", "run", "--out", "s.parquet", "--quiet"]) == 0
    for what in ("run", "c.parquet"):
        assert run(["report", what, "--out", "page.html", "--quiet"]) == 0
        assert f"radius r ({law.norm})" in (here / "page.html").read_text(encoding="utf-8")
        assert run(["refute", what]) == 2
        assert (
            f"searched in l2, under gaussian or grid noise of one sigma; got {law.describe()}"
            in capsys.readouterr().err
        )
    code = run(["decide", *FROM, "--noise", text, "--radii", "0.01,0.02", "--max-n", "300"])
    told = capsys.readouterr()
    if law.total:
        assert code == 2
        assert "leaves nothing to decide" in told.err
    else:
        assert code == 0
        assert "certified to radius 0.02" in told.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noise", "derandomized-splitting:lam=0.5", "--n", "100"], "n must be 255"),
        (["--noise", "derandomized-splitting:lam=0.5", "--n0", "5"], "n0 must be 0"),
        (["--noise", "derandomized-splitting:lam=0.5", "--seed", "1"], "seed must be 0"),
        (["--noise", "derandomized-splitting:lam=0.5", "--scores", "softmax"], "scores must be none"),
        (["--noise", "splitting", "--n", "9"], "needs the parameter lam; got none"),
        (["--noise", "ablation:keep=4", "--n", "9"], "needs the parameter pixels; got keep"),
        (["--noise", "splitting:lam=abc", "--n", "9"], "must be numbers; got {'lam': 'abc'}"),
        (["--noise", "splitting:lam=0.5,keep=3", "--n", "9"], "takes the parameters lam; got 'keep'"),
        (["--noise", "splitting:lam=0.5", "--sigma", "0.5", "--n", "9"], "takes the parameters lam; got 'sigma'"),
        (["--noise", "splitting:lam=0.5001", "--n", "9"], "510 lam a whole number"),
        (["--noise", "ablation:keep=4,pixels=65", "--n", "9"], "65 values"),
        (["--noise", "splitting:lam=0.5", "--data", "floats.npz", "--n", "9"], "step 1/255"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_does_not_fit_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sample", "run", *FROM, *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("here")
def test_norms_do_not_share_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    for name, law in (("one", "splitting:lam=0.5"), ("two", "ablation:keep=4,pixels=64")):
        assert run(["sample", name, *FROM, "--noise", law, "--n", "50", "--quiet"]) == 0
    for command, out in (("report", "made.html"), ("sweep", "made.parquet")):
        assert run([command, "one", "two", "--out", out]) == 2
        assert "one norm" in capsys.readouterr().err


def test_a_scale_is_kept_in_the_specification(here: Path) -> None:
    (here / "spec.toml").write_text(
        'noise = "gaussian"\nnoise_parameters = {scale = [[[0.5]]]}\nmodel = "noise_model:linear"\ndata = "bytes.npz"\n'
    )
    assert run(["sample", "run", "--spec", "spec.toml", "--num-classes", "4", "--n", "100", "--quiet"]) == 0
    assert run(["certify", "run", "--out", "c.parquet", "--quiet"]) == 0
    assert read_certificates(here / "c.parquet")[0].noise == Gaussian(1.0, scale=[[[0.5]]])
    assert open_evidence(here / "run").spec.noise == Gaussian(scale=[[[0.5]]])


@pytest.mark.usefixtures("here")
def test_two_laws_of_one_sigma_are_told_apart_in_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    for name, law in (("plain", []), ("grid", ["--noise", "grid"])):
        assert run(["sample", name, *FROM, "--sigma", "0.5", *law, "--n", "50", "--quiet"]) == 0
    assert run(["sweep", "plain", "grid", "--json", "--out", "s.parquet"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["run"], row["noise"], row["sigma"]) for row in rows] == [
        ("plain", "gaussian", 0.5),
        ("grid", "grid", 0.5),
    ]


@pytest.mark.parametrize("text", ["grid:sigma=0.5", *LAWS])
def test_a_program_names_a_law_as_a_command_does(text: str) -> None:
    law = as_noise(None, text)
    smoothed = buckler.Smoothed(lambda x: x.reshape(len(x), -1)[:, :2], noise=text, num_classes=2)
    assert smoothed.noise == law
    pixels = np.random.default_rng(0).integers(0, 256, (1, 1, 8, 8), dtype=np.uint8)
    if law.norm == "l0":  # no grid: the units of bytes are open
        with pytest.raises(InvalidInput, match="x must hold floats"):
            smoothed.certify(pixels)
    else:
        assert smoothed.certify(pixels) == smoothed.certify((pixels / 255).astype(np.float32))


def test_what_is_no_law_is_refused_before_drawing() -> None:
    for no_law in (Splitting, 0.25, object()):
        with pytest.raises(InvalidInput, match="noise must be a noise such as"):
            buckler.Smoothed(np.asarray, noise=no_law, num_classes=2)  # type: ignore[arg-type]
