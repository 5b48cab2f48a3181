"""Every option of every command changes something that can be seen, and is refused by name where it would not.

``CHANGES`` has a row for each option, and an option without one fails here: which arguments change what the command
does, to be seen in one part of what comes of it: its exit code, what it prints, the files it writes, the votes and
scores in them, or, where the work would take long, the arguments of the call that it makes.
"""

import contextlib
import hashlib
import io
import re
import shlex
import shutil
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image

from buckler.certificate import Bracket, PairTest, Refutation
from buckler.cli.app import COMMANDS, app, load, run
from buckler.cli.terminal import FAILED
from buckler.runs.sample import sample as write_run
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import read_certificates, write_certificates, write_refutations
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from tests.runs.victim import linear, spec
from tests.runs.victim import run as sample

MODELS = """
import numpy as np
W = np.random.default_rng(0).normal(size=(64, 10)).astype("f4")
def linear():
    return lambda batch: batch.reshape(len(batch), -1)[:, :64] @ W
def network():
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
def twin():
    import torch
    layer = torch.nn.Linear(64, 10, bias=False)
    layer.weight = torch.nn.Parameter(torch.tensor(W.T.copy()))
    return torch.nn.Sequential(torch.nn.Flatten(), layer)
def half():
    import torch
    return torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Threshold(0.5, 0.0))
"""
BOUNDS = """
import numpy as np
def low(counts, alpha):
    return np.full(len(counts), -9.0 - alpha)
def high(counts, alpha):
    return np.full(len(counts), 9.0)
"""
SPEC = (
    'model = "models_for_options:linear"\ndata = "digits"\nsigma = 0.5\nn = 20\nlimit = 2\nnum_classes = 10\nseed = 3\n'
)

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"reproduce"}
"""Commands whose rows are not here: reproduce has tests of its own."""

LINEAR, TORCH, TWIN, HALF = (f"--model models_for_options:{name}" for name in ("linear", "network", "twin", "half"))
HALF = HALF.replace("--model", "--denoiser")
DRAWN = f"{LINEAR} --data digits --sigma 0.25 --num-classes 10"
USUAL = {
    "": "audit top_class --n 8 --m 3 --points 4",
    "demo": "demo --images 12 --epochs 1 --n 20",
    "sample": f"sample run {DRAWN} --n 20 --n0 10 --ids 0,1,2,3",
    "certify": "certify one --method top_class",
    "decide": f"decide --radii 0.05 {DRAWN} --limit 4 --max-n 500",
    "refute": f"refute one {TWIN} --limit 2 --attack decoupled:searches=1,steps=6,draws=8 --max-n 300 --json",
    "sweep": "sweep one --method top_class",
    "report": "report one --method top_class",
    "train": "train digits --sigma 0.25 --arch small_conv --epochs 1",
    "audit": "audit top_class --n 8 --m 3 --points 4",
    "import": "import log.tsv --sigma 0.5",
    "board": "board entries --method top_class",
    "models": f"models --folder {ROOT / 'models'}",
    "accuracy": "accuracy known --radii 0.05,0.1",
    "conformal": "conformal known new --radius 0.1 --n 20",
    "plan": "plan --inputs 100 --classes 10 --n 1000 --rate 1000",
}
CALLS = {
    "call:model": "buckler.runs.open_run.resolve_model",
    "call:ray": "buckler.runs.open_run.open_ray",
    "call:sample": "buckler.runs.sample.sample",
    "call:decide": "buckler.runs.decide.decide",
    "call:refute": "buckler.runs.refute.refute",
    "call:train": "buckler.training.train.train_classifier buckler.training.train.train_denoiser",
}
"""Calls that stand for work which is not done here; where there are two, the command makes one of them."""

SCORED = f"{LINEAR} --scores softmax"
LOGITS = "--method pairwise/hoeffding"
NO_RADII = f"decide {DRAWN} --limit 2 --max-n 300"
WRONG = f"refute wrong.parquet {TWIN} --data digits --attack decoupled:searches=1,steps=6,draws=8 --max-n 300"
MEASURED = f"plan {DRAWN} --limit 6 --n 300 --rate 1000"
DENOISER = "train digits --denoiser --sigma 1 --smallest-sigma 0.1 --classifier clean.safetensors"
SMALL_PICTURES = "--data images --limit 2 --radii 1e-3"
PICTURES = "--data images --ids a/0.png,b/0.png --limit 2"
RAY = "--executor ray"
CLUSTER = [RAY, f"--address auto + {RAY}", f"--workers 9 + {RAY}", f"--gpus-per-worker 0.5 + {RAY}"]
OUTPUT = ["--json", "--quiet"]

CHANGES: dict[str, dict[str, list[str]]] = {
    "": {"out": ["--version"]},
    "demo": {
        "out": ["--sigma 0.3", "--n 30", *OUTPUT],
        "files": ["--out elsewhere"],
        "evidence": ["--images 13", "--epochs 2"],
    },
    "models": {"out": ["--folder images", "--json"]},
    "sample": {
        "out": ["--batch-size 7 + --json", *OUTPUT],
        "evidence": [
            "--spec run.toml", TORCH, "--data floats.npy", "--sigma 0.5", "--noise grid:step=1/16", f"{HALF} + {TORCH}",
            "--n 30", "--n0 15", "--seed 1", "--fresh-seed", "--scores logits", f"--temperature 2 + {SCORED}",
            f"--runner-ups 2 + {SCORED}", f"--score-draws 5 + {SCORED}", f"--score-dtype float16 + {SCORED}",
            f"--dtype bfloat16 + {TORCH} --scores logits", "--mean 0.5 + --mean 0 --std 1",
            "--std 2 + --mean 0 --std 1 --scores logits", "--labels labels.npy + --data floats.npy",
            f"--resize 6 + {PICTURES}", f"--crop 7 + {PICTURES}", "--every 2", "--limit 2", "--ids 0,1",
        ],
        "files": ["--shard-inputs 2"],
        "code": ["--max-seconds 1e-9", "--max-samples 1"],
        "err": ["--num-classes 11", f"--device cuda:99 + {TORCH}", "--value-range 0,0.5 + --data floats.npy"],
        "call:model": [f"--channels-last + {TORCH}", f"--compile + {TORCH}"],
        "call:sample": ["--repair", "--allow-other-model"],
        "call:ray": CLUSTER,
    },
    "certify": {
        "out": [
            "--radii 0.05,0.1", "--alpha 0.05", "--method bonferroni", "--margin probability", "--n 50",
            f"--map sparsemax + {LOGITS}", f"--temperature 0.1 + {LOGITS}", *OUTPUT,
        ],
        "files": ["--class label + --out made.parquet", "--out made.parquet", "--tsv made.tsv"],
    },
    "decide": {
        "out": [
            f"--radii 0.05:0.2 @ {NO_RADII} --radii 0.05,0.1", f"--precision 0.3 @ {NO_RADII} --precision 0.6",
            "--alpha 0.05", "--max-n 20", "--spec run.toml", TORCH, "--data floats.npy", "--sigma 0.5",
            "--noise grid:step=1/16", f"{HALF} + {TORCH}", "--seed 1", "--fresh-seed", "--every 2", "--limit 2",
            "--ids 0,1", "--labels labels.npy + --data floats.npy", "--mean 0.5 + --mean 0 --std 1",
            f"--std 9 + --mean 0 --std 1 {TORCH}", f"--resize 6 + {SMALL_PICTURES}", f"--crop 7 + {SMALL_PICTURES}",
            *OUTPUT,
        ],
        "files": [
            "--margin probability + --out made.parquet", "--n0 7 + --out made.parquet",
            "--class label + --out made.parquet", "--out made.parquet", "--tsv made.tsv",
        ],
        "err": [f"--device cuda:99 + {TORCH}", "--num-classes 11", "--value-range 0,0.5 + --data floats.npy"],
        "call:model": [f"--channels-last + {TORCH}", f"--compile + {TORCH}", f"--dtype bfloat16 + {TORCH}"],
        "call:decide": ["--max-seconds 1000", "--batch-size 7", "--allow-other-model + --out made.parquet"],
        "call:ray": CLUSTER,
    },
    "refute": {
        "out": [
            TORCH, HALF, "--method top_class", "--alpha 0.05", "--max-radius 0.001", "--within 0.001", "--max-n 64",
            "--attack pgd:steps=8,draws=8", "--limit 1", f"--json @ {WRONG} --limit 1", f"--quiet @ {WRONG} --limit 1",
        ],
        "files": ["--out made.parquet", "--figure made.png"],
        "code": [f"--strict @ {WRONG}"],
        "err": ["--data floats.npy", "--device cuda:99", "--num-classes 11", f"--delta 1e-12 @ {WRONG}"],
        "call:refute": ["--batch-size 7"],
        "call:ray": CLUSTER,
    },
    "sweep": {
        "out": [
            "--spec sweep.toml", "--n 50", "--alpha 0.05", "--method bonferroni", "--margin probability",
            f"--map sparsemax + {LOGITS}", f"--temperature 0.1 + {LOGITS}", "--class label", "--radii 0,0.1",
            "--baseline top_class + --method top_class,bonferroni", *OUTPUT,
        ],
        "files": ["--out other.parquet", "--table t.md", "--plots figures"],
    },
    "report": {
        "files": [
            "--refutations r.parquet", "--out other.html", "--alpha 0.05", "--method bonferroni",
            "--margin probability", "--n 50", "--class label", f"--map sparsemax + {LOGITS}",
            f"--temperature 0.1 + {LOGITS}", "--delta 0.5", "--data digits", "--classes names.txt", "--title Mine",
        ],
        "out": OUTPUT,
    },
    "board": {
        "files": ["--out elsewhere", "--check", "--method bonferroni"],
        "out": ["--alpha 1e-100 + --json", *OUTPUT],
    },
    "train": {
        "call:train": [
            "--sigma 0.5", "--lam 2 @ train digits --lam 2.5", "--data images.npz", "--out elsewhere",
            "--arch resnet20",
            "--denoiser --smallest-sigma 0.1 --classifier clean.safetensors @ train digits --sigma 1",
            f"--smallest-sigma 0.2 @ {DENOISER}", f"--classifier other.safetensors @ {DENOISER}",
            f"--recognition 0 @ {DENOISER}", "--consistency 10", "--adversary 0.5",
            "--attack-steps 2 @ train digits --sigma 0.25 --adversary 0.5", "--epochs 3", "--batch-size 32", "--lr 0.1",
            "--weight-decay 0.1", "--label-smoothing 0.1", "--flip", "--seed 7", "--device cpu", "--compile",
            "--max-seconds 9", "--resume",
        ],
        "out": OUTPUT,
    },
    "audit": {
        "out": [
            "--noise ablation:keep=1,pixels=3 @ audit --noise ablation:keep=2,pixels=3", "--m 4", "--n 9",
            "--alpha 0.1", "--margin probability", "--points 6", "--power", "--truth 0.6,0.3,0.1 + --power", *OUTPUT,
        ],
        "code": ["--fail @ audit bounds_for_options:high --n 8 --points 4"],
    },
    "import": {
        "out": ["--sigma 0.75 @ import log.tsv --sigma 1", "--n 200000", "--alpha 0.01 + --sigma 1", *OUTPUT],
        "files": ["--out imported + --n 100000 --alpha 0.01"],
    },
    "accuracy": {
        "out": ["--radii 0.05", "--delta 0.1", "--n 50", "--list", "--seed 7 + --json --delta 0.5", "--json"],
    },
    "conformal": {
        "out": [
            "--radius 0.2", "--alpha 0.3", "--n 50", "--scores", "--by-label + --alpha 0.3",
            "--seed 7 + --scores --alpha 0.3", "--json",
        ],
    },
    "plan": {
        "out": [
            "--inputs 200", "--classes 100", "--n 2000", "--rate 10", "--n0 1000", "--gpus 4", "--sigma 0.25",
            "--noise splitting:lam=2.5", "--radii 0.25,0.5,1", "--alpha 0.05", "--like run",
            "--accuracy 0.2 @ plan --like known --radii 0.05 --accuracy 0.3",
            f"--data floats.npy @ {MEASURED.replace('--limit 6 ', '')}",
            f"--spec run.toml @ {MEASURED.replace('--n 300 ', '')}", f"--num-classes 11 @ {MEASURED}",
            f"--every 900 @ {MEASURED}", f"--limit 3 @ {MEASURED}", f"--ids 0,1 @ {MEASURED}", "--json",
        ],
        "err": [
            f"--value-range 0,0.5 @ {MEASURED.replace('digits', 'floats.npy')}", f"--labels labels.npy @ {MEASURED}",
            f"--resize 6 @ {MEASURED}", f"--crop 7 @ {MEASURED}",
        ],
        "call:model": [
            f"{TORCH} @ {MEASURED}", f"{HALF} @ {MEASURED}", f"--device meta @ {MEASURED}",
            f"--mean 0.5 @ {MEASURED} --mean 0 --std 1", f"--std 2 @ {MEASURED} --mean 0 --std 1",
            f"--dtype bfloat16 @ {MEASURED}", f"--channels-last @ {MEASURED}", f"--compile @ {MEASURED}",
        ],
    },
}  # fmt: skip
"""Command -> part of what comes of it -> what changes that part, the option first.

Behind a ``+`` stand arguments that are given before and after, behind an ``@`` a whole command in the place of the
usual one.
"""

REFUSED: dict[str, list[str]] = {
    "models": ["--folder nowhere"],
    "demo": ["--images 0", "--out c.parquet"],
    "sample": [
        "--sigma 1e300", "--ids 0,1,0", "--spec nowhere.toml",
        "--sigma 0.25 --noise grid:sigma=0.25", "--sigma -1", "--noise grid:lam=1",
        "--noise lognormal", HALF, f"--denoiser here {TORCH}", "--fresh-seed --seed 1", f"--num-classes 1 {TORCH}",
        "--temperature 2", "--temperature 2 --scores logits", "--temperature 2 --scores sparsemax", "--runner-ups 2",
        "--runner-ups 2 --scores logits", f"--runner-ups 2 {SCORED} --n0 0", "--score-draws 5",
        "--score-dtype float16", "--device cuda", "--dtype bfloat16", "--channels-last", "--compile", "--mean 0.5",
        "--mean a,b", "--std 2", "--labels labels.npy", "--labels labels.npy --data own.npz",
        "--labels labels.npy --data images", "--resize 6", "--resize 6 --data floats.npy", "--resize 6 --data cifar",
        "--crop 7", "--crop 7 --data floats.npy", "--crop 7 --data cifar", "--value-range 0,2",
        "--value-range 0,2 --data images", "--value-range 0,2 --data cifar", "--ids 0,nobody", "--data nowhere.npz",
        "--model nothing", "--scores everything", "--n many", "--max-seconds 0", "--executor thread", "--address auto",
        "--workers 9", "--gpus-per-worker 0.5",
    ],
    "certify": [
        "--radii a", "--radii 0.1 --json", "--radii 0.1 --quiet",
        "--method best", "--method pairwise/star @ certify bare", "--margin wide", "--n 33",
        "--class lable", "--class label @ certify bare", "--class selection @ certify known", "--map softmax",
        f"--map sparsemax @ certify two {LOGITS}", "--temperature 2", f"--temperature 2 @ certify two {LOGITS}",
        f"--temperature 2 {LOGITS} --map sparsemax", "--out made.tsv", "--tsv made.tsv @ certify bare",
        *(f"{option} 2" for option in ("--sigma", "--max-n", "--model", "--limit", "--n0", "--spec", "--seed")),
    ],
    "decide": [
        *(f"--radii {text}" for text in ("0.1,0.05", "0.2:0.1", "0:1", "1e-9:1", "1:2:3", "a", "-1")),
        "--precision 0.5", "--margin wide", "--max-seconds 0", "--n0 7 --class label", "--class lable",
        "--spec nowhere.toml", "--noise lognormal", HALF, "--fresh-seed --seed 1", "--device cuda", "--out made.csv",
        "--tsv made.tsv --data floats.npy --out made.parquet", "--allow-other-model", "--n 10", "--method exact",
        "--map softmax", "--limit 0", "--every 0", "--sigma 0", "--alpha 1", "--workers 9", "--value-range 0,2",
        "--dtype bfloat16", "--channels-last", "--compile", "--mean 0.5", "--std 2", "--labels labels.npy",
        "--resize 6", "--crop 7", "--ids 0,nobody",
    ],
    "refute": [
        "--model nothing", "--data nowhere.npz", "--denoiser here", f"{HALF} {LINEAR}", "--method best", "--alpha 0",
        "--max-radius 0", "--within 0", "--within 1 --max-radius 1", "--max-n 0", "--attack fgsm", "--attack pgd:3",
        "--limit 0", f"--device cuda {LINEAR}", "--num-classes 1", "--batch-size 0", "--figure made.gif",
        f"--figure made.png @ {WRONG}", "--workers 9", "--delta 2", "--out made.txt",
    ],
    "sweep": [
        "--spec nowhere.toml", "--spec odd.toml @ sweep", "--n 33", "--n many", "--alpha 2", "--alpha 0.1,x",
        "--alpha 0.1,0.1", "--method best", "--margin wide", "--map softmax", f"--map sparsemax @ sweep two {LOGITS}",
        f"--map hardmax {LOGITS}", "--temperature 2", f"--temperature 2 @ sweep two {LOGITS}",
        f"--temperature 2 {LOGITS} --map sparsemax", "--class lable", "--radii -1", "--radii 0.1 --quiet",
        "--baseline top_class", "--baseline bonferroni --method exact,top_class",
        "--baseline top_class --method top_class,bonferroni --quiet", "--table t.docx", "--quiet --json",
        "--out made.csv", "--plots c.parquet",
    ],
    "report": [
        "--refutations c.parquet", "--refutations r.parquet @ report one two", "--out one", "--method best", "--n 33",
        "--margin wide", "--class lable", "--map softmax", "--temperature 2", f"--temperature 2 @ report two {LOGITS}",
        "--delta 1.5", "--data floats.npy", "--classes nowhere.txt",
        "--classes few.txt", "--quiet --json",
        *(f"{set_by_the_file} @ report c.parquet" for set_by_the_file in
          ("--alpha 0.05", "--margin quantile", "--n 50", "--class label", "--map softmax", "--temperature 2")),
    ],
    "board": [
        "--out c.parquet", "--check --out elsewhere", "--alpha 0", "--method published", "--method pairwise/star",
    ],
    "train": [
        "--sigma 0 --lam 2", "--lam 2", "--lam 0.3 @ train digits", f"--lam 1 @ {DENOISER.replace('--sigma 1', '')}",
        "--arch unet", f"--arch resnet20 @ {DENOISER}", "--denoiser", "--smallest-sigma 0.1",
        f"--smallest-sigma 2 @ {DENOISER}", "--classifier clean.safetensors",
        f"--classifier nowhere.safetensors @ {DENOISER}", "--recognition 0", "--consistency 10 --sigma 0",
        f"--adversary 0.5 @ {DENOISER}", "--attack-steps 2", f"--label-smoothing 0 @ {DENOISER}",
        "--compile --device cpu", "--out c.parquet",
    ],
    "audit": [
        "--noise ablation", "--noise gaussian:sigma=1 @ audit", "--noise splitting:lam=0.5 --n 3 @ audit", "--m 1",
        "--n 0", "--alpha 1", "--margin third", "--points 1", "--power --quiet", "--truth 0.6,0.3,0.1",
        "--truth 1,x --power", "--quiet --json",
    ],
    "import": [
        "--sigma 1 @ import ours.tsv", "--sigma 0", "--n 7 @ import ours.tsv", "--n 0", "--alpha 0.5 @ import ours.tsv",
        "--alpha 2", "--out c.parquet --n 100000 --alpha 0.01",
    ],
    "accuracy": ["--radii x", "--radii -1", "--delta 2", "--n 7", "--seed -1"],
    "conformal": [
        "--radius -1", "--alpha 0", "--n 0", "--n 7", "--scores @ conformal known bare --radius 0.1", "--seed -1",
    ],
    "plan": [
        "--data digits", "--denoiser here", "--num-classes 9", "--every 2", "--limit 2", "--device cpu",
        "--value-range 0,1", "--mean 0.5", "--std 0.5", "--labels labels.npy", "--resize 6", "--crop 6", "--ids 0",
        "--dtype float16", "--channels-last", "--compile",
        "--n 0", "--classes 1", f"--inputs 0 @ {MEASURED}", "--accuracy 2 @ plan --like known --radii 0.1",
        "--gpus 0", "--rate 0", "--noise splitting:lam=2.5 --sigma 0.5", "--radii 1,0.5", "--like nowhere",
        "--accuracy 0.2", "--accuracy 0.2 @ plan --like known", "--accuracy 0.2 @ plan --radii 0.1",
        "--accuracy 0.2 --n 100 @ plan --like known --radii 0.1", "--spec nowhere.toml",
    ],
}  # fmt: skip
"""Command -> arguments beside which its first option does not apply: it ends in one line that names the option."""


@cache
def commands() -> dict[str, Any]:
    """Return the commands by name, the program itself under the empty one."""
    return {"": typer.main.get_command(app), **{name: load(name) for name in COMMANDS}}


def options_of(command: Any) -> set[str]:
    names = {max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}
    return names - {"--help", "--install-completion", "--show-completion"}  # which are not ours


def test_every_option_has_a_row() -> None:
    found = {name: sorted(options_of(command)) for name, command in commands().items() if name not in ELSEWHERE}
    listed = {name: [row.split()[0] for rows in parts.values() for row in rows] for name, parts in CHANGES.items()}
    assert {name: sorted(rows) for name, rows in listed.items()} == found


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the commands read: runs, data, files of settings, logs."""
    home: Path = tmp_path_factory.mktemp("things")
    (home / "models_for_options.py").write_text(MODELS)
    (home / "bounds_for_options.py").write_text(BOUNDS)
    (home / "run.toml").write_text(SPEC)
    (home / "sweep.toml").write_text("alpha = [0.01, 0.05]\n")
    (home / "odd.toml").write_text('runs = ["one"]\nspec = "red"\n')
    (home / "names.txt").write_text("\n".join(f"digit {i}" for i in range(10)))
    (home / "few.txt").write_text("zero\none\n")
    for name in ("clean", "other"):
        (home / f"{name}.safetensors").write_text(
            name
        )  # known by its checksum; the call that would read it is not made
    card = 'model = "m"\ndata = "d"\nnoise = "gaussian:sigma=0.25"\nsource = "s"\nlicence = "MIT"\n'
    (home / "entries").mkdir()
    (home / "entries" / "one.toml").write_text(f'[one]\n{card}evidence = "../known"\nclaims = [[0.01, 0.0]]\n')
    rng = np.random.default_rng(0)
    x = rng.random((6, 1, 8, 8)).astype(np.float32)
    np.save(home / "floats.npy", x)
    np.save(home / "bytes.npy", (255 * x).astype(np.uint8))
    np.save(home / "labels.npy", np.arange(6))
    np.savez(home / "own.npz", x=x, y=np.arange(6))
    (home / "cifar").mkdir()
    (home / "cifar" / "test_batch.bin").write_bytes(bytes(4 * 3073))
    colours = rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    for name, picture in zip(("a/0", "b/0"), colours, strict=False):
        (home / "images" / name).parent.mkdir(parents=True)
        Image.fromarray(picture).resize((9, 12)).save(home / "images" / f"{name}.png")
    labels = np.array([0, 1, 0, 1])
    np.savez(home / "images.npz", x_train=colours, y_train=labels, x_test=colours, y_test=labels)
    logits = {"scores": "logits", "runner_ups": None, "limit": 4, "n": 100, "n0": 20}
    sample(str(home / "one"), spec=spec(**logits))
    sample(str(home / "two"), spec=spec(**{**logits, "scores": "softmax"}))
    unlabelled = spec(scores="none", runner_ups=None, limit=4, n=100, n0=20, data="x")
    write_run(unlabelled, as_classifier(linear, num_classes=10), from_arrays(x[:4]), home / "bare")
    many = rng.random((60, 1, 8, 8)).astype(np.float32)
    for seed, name, ids in ((0, "known", slice(0, 40)), (1, "new", slice(40, 60))):
        part = from_arrays(many[ids], linear(many[ids]).argmax(axis=1))
        write_run(
            spec(**{**logits, "limit": None, "n0": 0, "data": "x", "seed": seed}),
            as_classifier(linear, num_classes=10),
            part,
            home / name,
        )
    with contextlib.chdir(home), contextlib.redirect_stdout(io.StringIO()):
        made = ["certify", "one", "--method", "top_class", "--out", "c.parquet", "--quiet"]
        assert run([*made, "--alpha", "0.01", "--tsv", "ours.tsv"]) == 0
    write_certificates(home / "c.parquet", read_certificates(home / "c.parquet"))
    # A margin that these votes did not show, and that a million unanimous ones would.
    wrong = [
        replace(c, predicted=c.predicted or 0, n=10**6, margin=8.0, radius=c.noise.radius(8.0, "quantile"))
        for c in read_certificates(home / "c.parquet")
    ]
    write_certificates(home / "wrong.parquet", wrong)
    tried = (PairTest(0.5, 1, 100, 90, 10, refuted=True),)
    point = np.zeros((1, 8, 8), dtype=np.float32)
    found = Refutation(wrong[0].id, 0, 0.5, 1, point, 1e-3, wrong[0].noise, tried)
    write_refutations(home / "r.parquet", [Bracket(found, 0.1, 1e-3)], {})
    golden = Path(__file__).parents[1] / "golden" / "usual_log.tsv"
    (home / "log.tsv").write_text("\n".join(golden.read_text().splitlines()[:40]) + "\n")
    return home


class CalledError(Exception):
    """Stands for the call that a command would have made."""


Observation = dict[str, Any]


class Watch:
    """Runs commands, each in a folder of its own with everything they read, and keeps what came of them."""

    def __init__(self, things: Path, home: Path) -> None:
        self._things, self._home = things, home
        self._seen: dict[tuple[str, str], Observation] = {}
        self._repeated: set[tuple[str, str]] = set()

    def twice(self, line: str, part: str) -> Observation:
        """Return what comes of a command, after looking, once a command and part, whether it comes again."""
        if (line, part) not in self._seen:
            self._seen[line, part] = self.once(line, part)
            if (kind := (line.split(maxsplit=1)[0], part)) not in self._repeated:
                self._repeated.add(kind)
                again, name = self.once(line, part), _name(part)
                assert again[name] == self._seen[line, part][name], "two runs differ, so nothing can be compared"
        return self._seen[line, part]

    def once(self, line: str, part: str = "out") -> Observation:
        """Return what comes of a command, by part."""
        home = self._home / f"{len(list(self._home.iterdir()))}"
        shutil.copytree(self._things, home)
        before = {path.relative_to(home) for path in home.rglob("*")}
        calls: list[str] = []

        def record(name: str, *arguments: Any, **options: Any) -> Any:
            calls.append(re.sub(r" at 0x[0-9a-f]+", "", repr((name, arguments, sorted(options.items())))))
            raise CalledError

        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(home)
            patch.setenv("COLUMNS", "200")
            patch.setenv("NO_COLOR", "1")
            patch.syspath_prepend(str(self._things))
            if part in CALLS:
                for name in CALLS[part].split():
                    patch.setattr(name, partial(record, name))
            code = run(shlex.split(line))
        assert bool(calls) == (part in CALLS and code == FAILED), err.getvalue()
        files = [path for path in sorted(home.rglob("*")) if path.is_file() and path.relative_to(home) not in before]
        return {
            "code": code,
            "out": re.sub(r"draws, [\d,]+ a second|\"(seconds|spec_hash)\": [^,}]+", "", out.getvalue()),
            "err": "" if calls else re.sub(r"buckler: compiling .*\n", "", err.getvalue()),
            "files": {str(path.relative_to(home)): _digest(path) for path in files},
            "evidence": [_evidence(path.parent) for path in files if path.name == "manifest.json"],
            "call": calls,
        }


def _name(part: str) -> str:
    return "call" if part in CALLS else part


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".html":  # the page repeats its own command: what counts is what else has changed
        content = re.sub(rb"buckler report .*", b"", content)
    return hashlib.sha256(content).hexdigest()


def _evidence(folder: Path) -> str:
    """Return the votes and scores of a run, and nothing of its specification."""
    evidence = open_evidence(folder)
    shards = list(evidence.read_shards())
    arrays: list[Any] = [a for one in shards for a in (one.ids, one.labels, one.selection, one.counts, one.columns)]
    if evidence.spec.scores != "none":
        arrays += [one.values for pair in evidence.scores() for one in pair[:2] if one is not None]
    return repr([None if array is None else np.asarray(array).tolist() for array in arrays])


@pytest.fixture(scope="module")
def watch(things: Path, tmp_path_factory: pytest.TempPathFactory) -> Watch:
    return Watch(things, tmp_path_factory.mktemp("watch"))


def _line(command: str, row: str) -> tuple[str, str]:
    """Return the command before an option is given, and with it."""
    row, _, base = row.partition(" @ ")
    change, _, given = row.partition(" + ")
    before = " ".join(filter(None, (base or USUAL[command], given)))
    return before, f"{before} {change}" if command else f"{change} {before}"


@pytest.mark.parametrize("command", CHANGES)
def test_every_option_changes_something(command: str, watch: Watch) -> None:
    for part, rows in CHANGES[command].items():
        for row in rows:
            line, changed = _line(command, row)
            before, after = watch.twice(line, part), watch.once(changed, part)
            assert before["code"] in {0, 1}, (line, before["err"])
            assert before[_name(part)] != after[_name(part)], f"{row!r} changes nothing"


@pytest.mark.parametrize("command", REFUSED)
def test_an_option_that_does_not_apply_is_refused_by_name(command: str, watch: Watch) -> None:
    for row in REFUSED[command]:
        seen = watch.once(_line(command, row)[1])
        assert (seen["code"], seen["err"].count("\n")) == (2, 1), (row, seen)
        option = row.split()[0]
        name = option.removeprefix("--").replace("-", "_")
        assert option in seen["err"] or re.search(rf"\b{name}\b", seen["err"]), (row, seen["err"])
        assert seen["files"].keys() <= {"run/.lock"}, row


def test_a_row_that_tests_nothing_is_found(watch: Watch) -> None:
    base = USUAL["plan"]
    assert watch.twice(base, "out")["out"] == watch.once(f"{base} --alpha 0.001")["out"]  # the default, so no change
