"""``buckler sample``, ``decide`` and ``certify`` of a composition: a router and a classifier for each noise level."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.certificate import Certificate
from buckler.certify.budget import routed_level
from buckler.cli.app import run
from buckler.runs.store.evidence import open_evidence

MODELS = """
import numpy as np
def far():
    return lambda batch: np.stack([0 * batch[:, 0], batch[:, 0]], axis=1)
def wide():
    return lambda batch: np.eye(4)[[1] * len(batch)]
def right():
    return lambda batch: np.stack([0 * batch[:, 1], batch[:, 1], batch[:, 0] - 9], axis=1)
"""
SPEC = """
data = "points.npz"
n = 500
batch_size = 256
value_range = [-4, 4]
num_classes = 3

[router]
model = "models_of_levels:far"
sigma = 0.5

[[experts]]
model = "models_of_levels:right"
sigma = 1.0

[[experts]]
model = "models_of_levels:right"
sigma = 0.25
"""
X = np.array([[3.0, 2.0], [0.3, 2.0], [-3.0, 0.4], [0.0, 2.0], [3.0, 0.0], [-2.0, -1.0]], dtype=np.float32)
LABELS = [1, 1, 1, 1, 2, 0]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models_of_levels.py").write_text(MODELS)
    (tmp_path / "spec.toml").write_text(SPEC)
    np.savez(tmp_path / "points.npz", x=X, y=np.array(LABELS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_python() -> buckler.Routed:
    models: dict[str, Any] = {}
    exec(compile(MODELS, "models", "exec"), models)  # noqa: S102  (the text above)
    router = buckler.Smoothed(models["far"](), sigma=0.5, num_classes=2, value_range=(-4, 4), batch_size=256)
    return buckler.Routed(router, {0.25: models["right"](), 1.0: models["right"]()}, num_classes=3)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_commands_certify_what_routed_does_in_python(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sample", "routed", "--spec", "spec.toml"]) == 0
    assert "6 of 6 inputs in routed/router" in capsys.readouterr().out
    assert [open_evidence(here / "routed" / f"level{k}").spec.sigma for k in (0, 1)] == [0.25, 1.0]
    assert run(["certify", "routed", "--radii", "0.2", "--out", "made.csv", "--tsv", "made.tsv"]) == 0
    said = capsys.readouterr().out
    assert "Certified accuracy, router sigma 0.5, levels sigma 0.25, sigma 1, n 500, alpha 0.001" in said
    made, wanted = rows(here / "made.csv"), in_python().certify(X, n=500, ids=[str(i) for i in range(6)])
    assert [one["id"] for one in made] == list("012345")
    assert [float(one["radius"]) for one in made] == wanted.radii.tolist()
    assert [one["predicted"] for one in made] == ["" if k < 0 else str(k) for k in wanted.predicted.tolist()]
    assert [float(one["sigma"]) for one in made] == [one.sigma for one in wanted]
    assert all(json.loads(one["router"])["alpha"] == routed_level(1e-3) for one in made)
    assert len((here / "made.tsv").read_text().splitlines()) == 7
    assert run(["certify", "routed", "--class", "label", "--json"]) == 0
    by_label = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["predicted"] for one in by_label] == [1, 1, 1, None, None, 0]


def test_a_radius_is_decided_where_router_and_expert_have_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decide = ["decide", "--radii", "0.1,0.2,1", "--spec", "spec.toml", "--max-n", "20000", "--out", "decided"]
    assert run([*decide, "--json"]) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = in_python().certify_until(X, radii=[0.1, 0.2, 1.0], max_n=20_000, ids=[str(i) for i in range(6)])
    assert [one["radius"] for one in made] == wanted.radii.tolist() == [1.0, 0.2, 0.2, 0.0, 0.0, 0.2]
    assert {one["alpha"] for one in made} == {1e-3}
    assert {one["router"]["alpha"] for one in made} == {routed_level(1e-3)}
    assert [one["decision"] for one in made] == ["certified", *["given up"] * 5]
    before = {path.name: path.read_bytes() for path in (here / "decided").iterdir()}
    assert sorted(before) == ["level0.parquet", "level1.parquet", "router.parquet"]
    (here / "decided" / "level1.parquet").unlink()
    assert run([*decide, "--max-seconds", "1e-9"]) == 3
    cut = capsys.readouterr()
    assert "time is up; 3 inputs are decided and kept in decided. Go on with: buckler decide" in cut.err
    assert "2 certified to radius 0.100, 2 certified to radius 0.200, 0 certified to radius 1.000" in cut.out
    assert "1 not, 3 undecided so far" in cut.out
    assert run(decide) == 0
    assert {path.name: path.read_bytes() for path in (here / "decided").iterdir()} == before
    said = capsys.readouterr().out
    assert "6 inputs: 4 certified to radius 0.100, 4 certified to radius 0.200, 1 certified to radius 1.000" in said
    assert run(["decide", "--radii", "0.1", "--spec", "spec.toml"]) == 2
    assert "--out must be given for a router and its experts" in capsys.readouterr().err


def test_sampling_stops_between_parts_and_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = ["sample", "routed", "--spec", "spec.toml", "--quiet"]
    assert run([*sample, "--max-samples", "3000"]) == 3
    assert "stopped at the limit before routed/level0. Go on with: buckler sample" in capsys.readouterr().err
    assert run(["certify", "routed"]) == 2
    assert "'routed' holds no finished input yet" in capsys.readouterr().err
    assert run([*sample, "--max-samples", "1000"]) == 3
    assert run(["certify", "routed"]) == 0
    assert "the run is not finished: 2 of 6 inputs" in capsys.readouterr().err
    assert run([*sample[:-1], "--json"]) == 0
    assert [json.loads(line)["part"] for line in capsys.readouterr().out.splitlines()] == ["router", "level0", "level1"]
    assert run(["certify", "routed", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    del here


def test_an_input_whose_level_changes_with_n_is_an_abstention(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the classifier of the level with the most votes has drawn for an input; no other may stand in for it."""
    assert run(["sample", "routed", "--spec", "spec.toml", "--quiet"]) == 0
    (here / "routed" / "level1").rename(here / "level0")
    (here / "routed" / "level0").rename(here / "routed" / "level1")
    assert run(["certify", "routed", "--quiet", "--out", "made.csv"]) == 0
    assert {float(one["radius"]) for one in rows(here / "made.csv")} == {0.0}
    (here / "level0").rename(here / "routed" / "level0")
    assert run(["certify", "routed", "--quiet"]) == 2
    assert "sigma must rise with the level" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[router]\n", "sigma = 1.0\n[router]\n", "sigma is a setting of the router and of each expert"),
        ("[router]\n", 'scores = "logits"\n[router]\n', "scores is not for a composition"),
        ("sigma = 0.25", 'sigma = 0.25\ndata = "digits"', "an expert has the setting 'data', which must be the same"),
        ("sigma = 0.25", 'sigma = 0.25\nnoise = "grid"', "an expert has the setting 'noise', which is not for it"),
        ("sigma = 0.25", "sigma = 0.25\nsigmas = 1", "an expert has an unknown setting 'sigmas'"),
        ("sigma = 0.25", "sigma = 1", "experts must have different sigmas"),
        ("sigma = 0.25", "sigma = -1", "sigma of an expert must be"),
        ("sigma = 0.25", 'sigma = 0.25\ndtype = "float99"', "dtype must be"),
        ("sigma = 0.25", "", "an expert must be a table with a model and a sigma"),
        ("sigma = 0.5", "sigma = 0.5\nnum_classes = 3", "num_classes of the router must be that of its experts, 2"),
        ("[router]", "[other]", "a composition must have a table [router] and at least two tables [[experts]]"),
    ],
)
def test_a_wrong_setting_of_a_composition_is_named(
    here: Path, old: str, new: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "spec.toml").write_text(SPEC.replace(old, new, 1))
    for command in (["sample", "routed"], ["decide", "--radii", "0.1", "--out", "routed"]):
        assert run([*command, "--spec", "spec.toml", "--quiet"]) == 2
        assert named in capsys.readouterr().err
    assert not (here / "routed").exists()


def test_other_commands_say_what_reads_a_composition(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sample", "routed", "--spec", "spec.toml", "--quiet"]) == 0
    for command in (["sweep"], ["accuracy", "--radii", "0.1"], ["report"]):
        assert run([*command, "routed"]) == 2
        assert "it is a composition, which buckler certify reads" in capsys.readouterr().err
    assert run(["certify", "routed", "--out", "made.parquet"]) == 2
    assert "--out of a composition must be a file that ends in .csv" in capsys.readouterr().err
    assert run(["certify", "routed", "--temperature", "1"]) == 2
    assert "a composition certifies votes" in capsys.readouterr().err
    assert run(["plan", "--spec", "spec.toml"]) == 2
    assert "a composition cannot be planned as one" in capsys.readouterr().err
    assert run(["sample", "routed/level0", "--spec", "spec.toml"]) == 2
    assert "the folder of a composition must be one of its own; got 'routed/level0'" in capsys.readouterr().err
    del here


def test_what_a_part_has_for_itself_is_no_option_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "spec.toml").write_text(SPEC.replace("[router]", "[router]\nn = 1000"))
    for command in (["sample", "routed", "--n", "100"], ["decide", "--radii", "0.1", "--out", "d", "--max-n", "100"]):
        assert run([*command, "--spec", "spec.toml", "--quiet"]) == 2
        assert "n is given as an option and in a table of the file" in capsys.readouterr().err
    assert run(["sample", "routed", "--spec", "spec.toml", "--seed", "3", "--quiet"]) == 0
    assert open_evidence(here / "routed" / "router").spec.n == 1000
    assert {open_evidence(here / "routed" / name).spec.seed for name in ("router", "level0", "level1")} == {3}


def test_a_composition_is_decided_within_one_budget(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decide = ["decide", "--radii", "0.1", "--spec", "spec.toml", "--out", "decided", "--quiet", "--max-n"]
    assert run([*decide, "500"]) == 0
    before = {path.name: path.read_bytes() for path in (here / "decided").iterdir()}
    assert run([*decide, "2000"]) == 2
    assert "max_n of a composition must stay what it was, 500; got 2000" in capsys.readouterr().err
    assert run([*decide, "500"]) == 0
    assert {path.name: path.read_bytes() for path in (here / "decided").iterdir()} == before
    np.save(here / "bare.npy", X)
    assert run([*decide[:-3], "other", "--max-n", "500", "--data", "bare.npy", "--class", "label"]) == 2
    assert "class 'label' needs labels" in capsys.readouterr().err
    assert not (here / "other").exists()


def test_experts_of_other_classes_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SPEC.replace("num_classes = 3\n", "").replace("sigma = 0.25", "sigma = 0.25\nnum_classes = 3")
    (here / "spec.toml").write_text(
        text.replace(
            'model = "models_of_levels:right"\nsigma = 1.0',
            'model = "models_of_levels:wide"\nsigma = 1.0\nnum_classes = 4',
        )
    )
    assert run(["sample", "routed", "--spec", "spec.toml", "--quiet"]) == 0
    assert run(["certify", "routed"]) == 2
    assert "experts must have the same number of classes" in capsys.readouterr().err


def test_parts_of_other_inputs_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sample", "routed", "--spec", "spec.toml", "--quiet"]) == 0
    np.savez(here / "points.npz", x=X + np.float32(0.25), y=np.array(LABELS))
    assert run(["sample", "other", "--spec", "spec.toml", "--quiet"]) == 0
    (here / "routed" / "router").rename(here / "old")
    (here / "other" / "router").rename(here / "routed" / "router")
    assert run(["certify", "routed"]) == 2
    assert "must hold inputs of the router, and holds others" in capsys.readouterr().err


def test_certificates_say_which_router_they_rest_on(here: Path) -> None:
    from buckler.runs.routing import certify_composition

    assert run(["sample", "routed", "--spec", "spec.toml", "--quiet"]) == 0
    made = certify_composition(here / "routed", alpha=0.01)
    assert made.parts[0].inputs == 6
    assert isinstance(made.certificates[0], Certificate)
    assert made.certificates[0].router is not None
    assert made.certificates.first.alpha == 0.01


def test_parts_under_other_noise_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sample", "routed", "--spec", "spec.toml", "--quiet"]) == 0
    (here / "routed" / "router").rename(here / "old")
    router = ["--model", "models_of_levels:far", "--num-classes", "2", "--data", "points.npz", "--n", "50"]
    np.savez(here / "points.npz", x=np.round(255 * X) / 255, y=np.array(LABELS) // 2)
    noise = ["--noise", "uniform:lam=0.5", "--value-range=-4,4"]
    assert run(["sample", "routed/router", *router, *noise, "--quiet"]) == 0
    assert run(["certify", "routed"]) == 2
    assert "'routed/router' must be drawn under Gaussian noise; got uniform" in capsys.readouterr().err
