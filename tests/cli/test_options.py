"""Every option of every command changes something that can be seen, and is refused by name where it would not.

``TABLE`` has a row for each option, and an option without one fails here. A row says which arguments ``change`` what
the command does, to be seen in one ``part`` of what comes of it: its exit code, what it prints, the files it writes,
the votes and scores in them, or, where the work would take long, the arguments of the call that it makes. And it says
beside which arguments the option does not apply: there the command must end in one line that names it.
"""

import contextlib
import hashlib
import io
import re
import shlex
import shutil
from dataclasses import dataclass, replace
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

BASE = {
    "": "audit top_class --n 8 --m 3 --points 4",
    "demo": "demo --images 12 --epochs 1 --n 20",
    "sample": "sample run --model models_for_options:linear --data digits --sigma 0.25 --n 20 --n0 10 --num-classes 10 "
    "--ids 0,1,2,3",
    "certify": "certify one --method top_class",
    "decide": "decide --radii 0.05 --model models_for_options:linear --data digits --sigma 0.25 "
    "--num-classes 10 --limit 4 --max-n 500",
    "refute": "refute one --model models_for_options:twin --limit 2 --attack decoupled:searches=1,steps=6,draws=8 "
    "--max-n 300 --json",
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


@dataclass(frozen=True)
class Row:
    """What an option changes, ``given`` other arguments; in which part that is seen; and beside what it is refused.

    ``base`` is a whole command in the place of the usual one; so is what is refused if it begins with a ``=``.
    """

    change: str
    part: str = "out"
    given: str = ""
    base: str = ""
    refused: tuple[str, ...] = ()


OUTPUT = {"--json": Row("--json", refused=("--json --quiet",)), "--quiet": Row("--quiet", refused=("--quiet --json",))}
SCORED = "--model models_for_options:linear --scores softmax"
MEASURED = (
    "plan --model models_for_options:linear --data digits --sigma 0.25 --num-classes 10 --limit 6 --n 300 --rate 1000"
)
NO_RADII = "decide --model models_for_options:linear --data digits --sigma 0.25 --num-classes 10 --limit 2 --max-n 300"
TORCH = "--model models_for_options:network"
RAY = "--executor ray"
CLUSTER = {
    "--executor": Row(RAY, "call:ray", refused=("--executor thread",)),
    "--address": Row("--address auto", "call:ray", given=RAY, refused=("--address auto",)),
    "--workers": Row("--workers 9", "call:ray", given=RAY, refused=("--workers 9",)),
    "--gpus-per-worker": Row("--gpus-per-worker 0.5", "call:ray", given=RAY, refused=("--gpus-per-worker 0.5",)),
}
LOGITS = "--method pairwise/hoeffding"
MADE = "=report c.parquet"
WRONG = (
    "refute wrong.parquet --model models_for_options:twin --data digits "
    "--attack decoupled:searches=1,steps=6,draws=8 --max-n 300"
)
DENOISER = "train digits --denoiser --sigma 1 --smallest-sigma 0.1 --classifier clean.safetensors"

TABLE: dict[str, dict[str, Row]] = {
    "board": {
        "--out": Row("--out elsewhere", "files", refused=("--out c.parquet",)),
        "--check": Row("--check", "files"),
        "--alpha": Row("--alpha 1e-100", given="--json", refused=("--alpha 0",)),
        "--method": Row("--method bonferroni", "files", refused=("--method published", "--method pairwise/star")),
        **OUTPUT,
    },
    "": {
        "--version": Row("--version"),
    },
    "demo": {
        "--out": Row("--out elsewhere", "files"),
        "--sigma": Row("--sigma 0.3"),
        "--n": Row("--n 30"),
        "--images": Row("--images 13", "evidence"),
        "--epochs": Row("--epochs 2", "evidence"),
        **OUTPUT,
    },
    "sample": {
        "--spec": Row("--spec run.toml", "evidence", refused=("--spec nowhere.toml",)),
        "--model": Row(TORCH, "evidence"),
        "--data": Row("--data floats.npy", "evidence"),
        "--sigma": Row("--sigma 0.5", "evidence", refused=("--sigma 0.25 --noise grid:sigma=0.25",)),
        "--noise": Row(
            "--noise grid:step=1/16", "evidence", refused=("--noise grid:lam=1", "--noise lognormal"),
        ),
        "--denoiser": Row(
            "--denoiser models_for_options:half", "evidence", given=TORCH,
            refused=("--denoiser models_for_options:half", f"{TORCH} --denoiser here"),
        ),
        "--n": Row("--n 30", "evidence"),
        "--n0": Row("--n0 15", "evidence"),
        "--seed": Row("--seed 1", "evidence"),
        "--fresh-seed": Row("--fresh-seed", "evidence", refused=("--seed 1 --fresh-seed",)),
        "--num-classes": Row("--num-classes 11", "err", refused=(f"{TORCH} --num-classes 1",)),
        "--scores": Row("--scores logits", "evidence"),
        "--temperature": Row(
            "--temperature 2", "evidence", given=SCORED,
            refused=("--temperature 2", "--scores logits --temperature 2", "--scores sparsemax --temperature 2"),
        ),
        "--runner-ups": Row(
            "--runner-ups 2", "evidence", given=SCORED,
            refused=("--runner-ups 2", "--scores logits --runner-ups 2", f"{SCORED} --n0 0 --runner-ups 2"),
        ),
        "--score-draws": Row("--score-draws 5", "evidence", given=SCORED, refused=("--score-draws 5",)),
        "--score-dtype": Row("--score-dtype float16", "evidence", given=SCORED, refused=("--score-dtype float16",)),
        "--batch-size": Row("--batch-size 7", given="--json"),
        "--shard-inputs": Row("--shard-inputs 2", "files"),
        "--device": Row("--device cuda:99", "err", given=TORCH, refused=("--device cuda",)),
        "--dtype": Row("--dtype bfloat16", "evidence", given=f"{TORCH} --scores logits", refused=("--dtype bfloat16",)),
        "--channels-last": Row("--channels-last", "call:model", given=TORCH, refused=("--channels-last",)),
        "--compile": Row("--compile", "call:model", given=TORCH, refused=("--compile",)),
        "--mean": Row("--mean 0.5", "evidence", given="--mean 0 --std 1", refused=("--mean 0.5",)),
        "--std": Row("--std 2", "evidence", given="--mean 0 --std 1 --scores logits", refused=("--std 2",)),
        "--labels": Row(
            "--labels labels.npy", "evidence", given="--data floats.npy",
            refused=("--labels labels.npy", "--data own.npz --labels labels.npy", "--data images --labels labels.npy"),
        ),
        "--resize": Row(
            "--resize 6", "evidence", given="--data images --ids a/0.png,b/0.png --limit 2",
            refused=("--resize 6", "--data floats.npy --resize 6", "--data cifar --resize 6"),
        ),
        "--crop": Row(
            "--crop 7", "evidence", given="--data images --ids a/0.png,b/0.png --limit 2",
            refused=("--crop 7", "--data floats.npy --crop 7", "--data cifar --crop 7"),
        ),
        "--value-range": Row(
            "--value-range 0,0.5", "err", given="--data floats.npy",
            refused=(
                "--value-range 0,2", "--data images --value-range 0,2",
                "--data cifar --value-range 0,2",
            ),
        ),
        "--every": Row("--every 2", "evidence"),
        "--limit": Row("--limit 2", "evidence"),
        "--ids": Row("--ids 0,1", "evidence", refused=("--ids 0,nobody",)),
        "--max-seconds": Row("--max-seconds 1e-9", "code"),
        "--max-samples": Row("--max-samples 1", "code"),
        "--repair": Row("--repair", "call:sample"),
        "--allow-other-model": Row("--allow-other-model", "call:sample"),
        **CLUSTER,
        **OUTPUT,
    },
    "certify": {
        "--radii": Row("--radii 0.05,0.1", refused=("--radii a",)),
        "--alpha": Row("--alpha 0.05"),
        "--method": Row("--method bonferroni", refused=("--method best", "=certify bare --method pairwise/star")),
        "--margin": Row("--margin probability", refused=("--margin wide",)),
        "--n": Row("--n 50", refused=("--n 33",)),
        "--class": Row("--class label", "files", given="--out made.parquet", refused=("--class lable",)),
        "--map": Row(
            "--map sparsemax", given=LOGITS, refused=("--map softmax", f"=certify two {LOGITS} --map sparsemax")
        ),
        "--temperature": Row(
            "--temperature 0.1", given=LOGITS,
            refused=(
                "--temperature 2", f"=certify two {LOGITS} --temperature 2",
                f"{LOGITS} --map sparsemax --temperature 2",
            ),
        ),
        "--out": Row("--out made.parquet", "files", refused=("--out made.tsv",)),
        "--tsv": Row("--tsv made.tsv", "files", refused=("=certify bare --tsv made.tsv",)),
        **OUTPUT,
    },
    "decide": {
        "--radii": Row(
            "--radii 0.05:0.2", base=f"{NO_RADII} --radii 0.05,0.1",
            refused=tuple(f"--radii {text}" for text in ("0.1,0.05", "0.2:0.1", "0:1", "1e-9:1", "1:2:3", "a")),
        ),
        "--precision": Row("--precision 0.3", base=f"{NO_RADII} --precision 0.6", refused=("--precision 0.5",)),
        "--margin": Row("--margin probability", "files", given="--out made.parquet", refused=("--margin wide",)),
        "--max-seconds": Row("--max-seconds 1000", "call:decide", refused=("--max-seconds 0",)),
        "--alpha": Row("--alpha 0.05"),
        "--max-n": Row("--max-n 20"),
        "--n0": Row("--n0 7", "files", given="--out made.parquet", refused=("--class label --n0 7",)),
        "--class": Row("--class label", "files", given="--out made.parquet", refused=("--class lable",)),
        "--spec": Row("--spec run.toml", refused=("--spec nowhere.toml",)),
        "--model": Row(f"{TORCH}"),
        "--data": Row("--data floats.npy"),
        "--sigma": Row("--sigma 0.5"),
        "--noise": Row("--noise grid:step=1/16", refused=("--noise lognormal",)),
        "--denoiser": Row(
            "--denoiser models_for_options:half", given=TORCH, refused=("--denoiser models_for_options:half",)
        ),
        "--seed": Row("--seed 1"),
        "--fresh-seed": Row("--fresh-seed", refused=("--seed 1 --fresh-seed",)),
        "--every": Row("--every 2"),
        "--limit": Row("--limit 2"),
        "--device": Row("--device cuda:99", "err", given=TORCH, refused=("--device cuda",)),
        "--num-classes": Row("--num-classes 11", "err"),
        "--batch-size": Row("--batch-size 7", "call:decide"),
        "--out": Row("--out made.parquet", "files", refused=("--out made.csv",)),
        "--tsv": Row("--tsv made.tsv", "files", refused=("--data floats.npy --tsv made.tsv",)),
        "--allow-other-model": Row(
            "--allow-other-model", "call:decide", given="--out made.parquet", refused=("--allow-other-model",)
        ),
        **CLUSTER,
        **OUTPUT,
    },
    "refute": {
        "--model": Row(TORCH, refused=("--model nothing",)),
        "--data": Row("--data floats.npy", "err", refused=("--data nowhere.npz",)),
        "--denoiser": Row(
            "--denoiser models_for_options:half",
            refused=("--denoiser here", "--model models_for_options:linear --denoiser models_for_options:half"),
        ),
        "--method": Row("--method top_class", refused=("--method best",)),
        "--alpha": Row("--alpha 0.05", refused=("--alpha 0",)),
        "--max-radius": Row("--max-radius 0.001", refused=("--max-radius 0",)),
        "--within": Row("--within 0.001", refused=("--within 0", "--within 1 --max-radius 1")),
        "--max-n": Row("--max-n 64", refused=("--max-n 0",)),
        "--attack": Row("--attack pgd:steps=8,draws=8", refused=("--attack fgsm", "--attack pgd:3")),
        "--limit": Row("--limit 1", refused=("--limit 0",)),
        "--device": Row("--device cuda:99", "err", refused=("--model models_for_options:linear --device cuda",)),
        "--num-classes": Row("--num-classes 11", "err", refused=("--num-classes 1",)),
        "--batch-size": Row("--batch-size 7", "call:refute", refused=("--batch-size 0",)),
        "--out": Row("--out made.parquet", "files"),
        "--figure": Row("--figure made.png", "files", refused=("--figure made.gif", f"={WRONG} --figure made.png")),
        "--strict": Row("--strict", "code", base=WRONG),
        "--delta": Row("--delta 1e-12", "err", base=WRONG),
        **CLUSTER,
        "--json": Row("--json", base=f"{WRONG} --limit 1", refused=("--json --quiet",)),
        "--quiet": Row("--quiet", base=f"{WRONG} --limit 1", refused=("--quiet --json",)),
    },
    "sweep": {
        "--out": Row("--out other.parquet", "files"),
        "--spec": Row("--spec sweep.toml", refused=("--spec nowhere.toml",)),
        "--n": Row("--n 50", refused=("--n 33",)),
        "--alpha": Row("--alpha 0.05"),
        "--method": Row("--method bonferroni", refused=("--method best",)),
        "--margin": Row("--margin probability", refused=("--margin wide",)),
        "--map": Row(
            "--map sparsemax", given=LOGITS,
            refused=("--map softmax", f"=sweep two {LOGITS} --map sparsemax", f"{LOGITS} --map hardmax"),
        ),
        "--temperature": Row(
            "--temperature 0.1", given=LOGITS,
            refused=(
                "--temperature 2", f"=sweep two {LOGITS} --temperature 2", f"{LOGITS} --map sparsemax --temperature 2",
            ),
        ),
        "--class": Row("--class label", refused=("--class lable",)),
        "--radii": Row("--radii 0,0.1", refused=("--radii 0.1 --quiet",)),
        "--baseline": Row(
            "--baseline top_class", given="--method top_class,bonferroni",
            refused=(
                "--baseline top_class", "--baseline exact",
                "--method top_class,bonferroni --baseline top_class --quiet",
            ),
        ),
        "--table": Row("--table t.md", "files", refused=("--table t.docx",)),
        "--plots": Row("--plots figures", "files"),
        **OUTPUT,
    },
    "report": {
        "--refutations": Row(
            "--refutations r.parquet", "files",
            refused=("--refutations c.parquet", "=report one two --refutations r.parquet"),
        ),
        "--out": Row("--out other.html", "files", refused=("--out one",)),
        "--alpha": Row("--alpha 0.05", "files", refused=(f"{MADE} --alpha 0.05",)),
        "--method": Row("--method bonferroni", "files", refused=("--method best",)),
        "--margin": Row("--margin probability", "files", refused=("--margin wide", f"{MADE} --margin quantile")),
        "--n": Row("--n 50", "files", refused=("--n 33", f"{MADE} --n 50")),
        "--class": Row("--class label", "files", refused=("--class lable", f"{MADE} --class label")),
        "--map": Row("--map sparsemax", "files", given=LOGITS, refused=("--map softmax", f"{MADE} --map softmax")),
        "--temperature": Row(
            "--temperature 0.1", "files", given=LOGITS,
            refused=(
                "--temperature 2", f"{MADE} --temperature 2", f"{LOGITS} --map sparsemax --temperature 2",
                f"=report two {LOGITS} --temperature 2",
            ),
        ),
        "--delta": Row("--delta 0.5", "files", refused=("--delta 1.5",)),
        "--data": Row("--data digits", "files", refused=("--data floats.npy",)),
        "--classes": Row("--classes names.txt", "files", refused=("--classes nowhere.txt", "--classes few.txt")),
        "--title": Row("--title Mine", "files"),
        **OUTPUT,
    },
    "train": {
        "--sigma": Row("--sigma 0.5", "call:train", refused=("--sigma 0 --lam 2",)),
        "--lam": Row(
            "--lam 2", "call:train", base="train digits --lam 2.5",
            refused=("--lam 2", "=train digits --lam 0.3", f"={DENOISER.replace('--sigma', '--lam')}"),
        ),
        "--data": Row("--data images.npz", "call:train"),
        "--out": Row("--out elsewhere", "call:train"),
        "--arch": Row("--arch resnet20", "call:train", refused=("--arch unet", f"={DENOISER} --arch resnet20")),
        "--denoiser": Row(
            "--denoiser --smallest-sigma 0.1 --classifier clean.safetensors", "call:train",
            base="train digits --sigma 1", refused=("--denoiser",),
        ),
        "--smallest-sigma": Row(
            "--smallest-sigma 0.2", "call:train", base=DENOISER,
            refused=("--smallest-sigma 0.1", f"={DENOISER} --smallest-sigma 2"),
        ),
        "--classifier": Row(
            "--classifier other.safetensors", "call:train", base=DENOISER,
            refused=("--classifier clean.safetensors", f"={DENOISER} --classifier nowhere.safetensors"),
        ),
        "--recognition": Row("--recognition 0", "call:train", base=DENOISER, refused=("--recognition 0",)),
        "--consistency": Row("--consistency 10", "call:train", refused=("--sigma 0 --consistency 10",)),
        "--adversary": Row("--adversary 0.5", "call:train", refused=(f"={DENOISER} --adversary 0.5",)),
        "--attack-steps": Row(
            "--attack-steps 2", "call:train", base="train digits --sigma 0.25 --adversary 0.5",
            refused=("--attack-steps 2",),
        ),
        "--epochs": Row("--epochs 3", "call:train"),
        "--batch-size": Row("--batch-size 32", "call:train"),
        "--lr": Row("--lr 0.1", "call:train"),
        "--weight-decay": Row("--weight-decay 0.1", "call:train"),
        "--label-smoothing": Row(
            "--label-smoothing 0.1", "call:train", refused=(f"={DENOISER} --label-smoothing 0",)
        ),
        "--flip": Row("--flip", "call:train"),
        "--seed": Row("--seed 7", "call:train"),
        "--device": Row("--device cpu", "call:train"),
        "--compile": Row("--compile", "call:train", refused=("--device cpu --compile",)),
        "--max-seconds": Row("--max-seconds 9", "call:train"),
        "--resume": Row("--resume", "call:train"),
        **OUTPUT,
    },
    "audit": {
        "--noise": Row(
            "--noise ablation:keep=1,pixels=3", base="audit --noise ablation:keep=2,pixels=3",
            refused=("--noise ablation", "=audit --noise gaussian:sigma=1", "=audit --noise splitting:lam=0.5 --n 3"),
        ),
        "--m": Row("--m 4", refused=("--m 1",)),
        "--n": Row("--n 9"),
        "--alpha": Row("--alpha 0.1"),
        "--margin": Row("--margin probability"),
        "--points": Row("--points 6"),
        "--power": Row("--power", refused=("--power --quiet",)),
        "--truth": Row("--truth 0.6,0.3,0.1", given="--power", refused=("--truth 0.6,0.3,0.1", "--power --truth 1,x")),
        "--fail": Row("--fail", "code", base="audit bounds_for_options:high --n 8 --points 4"),
        **OUTPUT,
    },
    "import": {
        "--out": Row("--out imported", "files", given="--n 100000 --alpha 0.01"),
        "--sigma": Row("--sigma 1", refused=("=import ours.tsv --sigma 1",)),
        "--n": Row("--n 200000", refused=("=import ours.tsv --n 7",)),
        "--alpha": Row("--alpha 0.05", refused=("=import ours.tsv --alpha 0.5",)),
        "--n0": Row("--n0 50", "evidence", given="--n 100000 --alpha 0.01 --out imported", refused=("--n0 50",)),
        **OUTPUT,
    },
    "models": {
        "--folder": Row("--folder images", refused=("--folder nowhere",)),
        "--json": Row("--json"),
    },
    "accuracy": {
        "--radii": Row("--radii 0.05", refused=("--radii x", "--radii -1")),
        "--delta": Row("--delta 0.1", refused=("--delta 2",)),
        "--n": Row("--n 50", refused=("--n 7",)),
        "--list": Row("--list"),
        "--seed": Row("--seed 7", given="--json --delta 0.5", refused=("--seed -1",)),
        "--json": Row("--json"),
    },
    "conformal": {
        "--radius": Row("--radius 0.2", refused=("--radius -1",)),
        "--alpha": Row("--alpha 0.3", refused=("--alpha 0",)),
        "--n": Row("--n 50", refused=("--n 7",)),
        "--scores": Row("--scores", refused=("=conformal known bare --radius 0.1 --scores",)),
        "--by-label": Row("--by-label", given="--alpha 0.3"),
        "--seed": Row("--seed 7", given="--scores --alpha 0.3", refused=("--seed -1",)),
        "--json": Row("--json"),
    },
    "plan": {
        "--inputs": Row("--inputs 200"),
        "--classes": Row("--classes 100"),
        "--n": Row("--n 2000"),
        "--rate": Row("--rate 10"),
        "--n0": Row("--n0 1000"),
        "--gpus": Row("--gpus 4", refused=("--gpus 0",)),
        "--sigma": Row("--sigma 0.25"),
        "--noise": Row("--noise splitting:lam=2.5", refused=("--noise splitting:lam=2.5 --sigma 0.5",)),
        "--radii": Row("--radii 0.25,0.5,1", refused=("--radii 1,0.5",)),
        "--alpha": Row("--alpha 0.05"),
        "--like": Row("--like run", refused=("--like nowhere",)),
        "--accuracy": Row(
            "--accuracy 0.2", base="plan --like known --radii 0.05 --accuracy 0.3",
            refused=(
                "--accuracy 0.2", "=plan --like known --accuracy 0.2", "=plan --radii 0.1 --accuracy 0.2",
                "=plan --like known --radii 0.1 --accuracy 0.2 --n 100",
            ),
        ),
        "--model": Row(f"{TORCH}", "call:model", base=MEASURED),
        "--data": Row("--data floats.npy", base=MEASURED.replace("--limit 6 ", "")),
        "--spec": Row("--spec run.toml", base=MEASURED.replace("--n 300 ", ""), refused=("--spec nowhere.toml",)),
        "--num-classes": Row("--num-classes 11", base=MEASURED),
        "--denoiser": Row("--denoiser models_for_options:half", "call:model", base=MEASURED),
        "--every": Row("--every 900", base=MEASURED),
        "--limit": Row("--limit 3", base=MEASURED),
        "--device": Row("--device meta", "call:model", base=MEASURED),
        "--json": Row("--json"),
    },
}  # fmt: skip


@cache
def commands() -> dict[str, Any]:
    """Return the commands by name, the program itself under the empty one."""
    return {"": typer.main.get_command(app), **{name: load(name) for name in COMMANDS}}


def options_of(command: Any) -> set[str]:
    names = {max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}
    return names - {"--help", "--install-completion", "--show-completion"}  # which are not ours


def test_every_option_has_a_row() -> None:
    found = {name: options_of(command) for name, command in commands().items() if name not in ELSEWHERE}
    assert {name: set(rows) for name, rows in TABLE.items()} == found


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the commands read: runs, data, files of settings, logs."""
    home: Path = tmp_path_factory.mktemp("things")
    (home / "models_for_options.py").write_text(MODELS)
    (home / "bounds_for_options.py").write_text(BOUNDS)
    (home / "run.toml").write_text(SPEC)
    (home / "sweep.toml").write_text("alpha = [0.01, 0.05]\n")
    (home / "names.txt").write_text("\n".join(f"digit {i}" for i in range(10)))
    (home / "few.txt").write_text("zero\none\n")
    for name in ("clean", "other"):
        (home / f"{name}.safetensors").write_text(
            name
        )  # known by its checksum; the call that would read it is not made
    card = 'model = "m"\ndata = "d"\nnoise = "gaussian:sigma=0.25"\nsource = "s"\nlicence = "MIT"\n'
    (home / "entries" / "one").mkdir(parents=True)
    (home / "entries" / "one" / "card.toml").write_text(f'{card}evidence = "../../known"\nclaims = [[0.01, 0.0]]\n')
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


ROWS = [(command, option) for command, rows in TABLE.items() for option in rows]


def _joined(command: str, base: str, *arguments: str) -> str:
    return " ".join((*arguments, base) if command == "" else (base, *arguments))


@pytest.mark.parametrize(("command", "option"), ROWS)
def test_an_option_changes_something(command: str, option: str, watch: Watch) -> None:
    row = TABLE[command][option]
    assert option in row.change
    base = _joined(command, row.base or BASE[command], row.given)
    before, after = watch.twice(base, row.part), watch.once(_joined(command, base, row.change), row.part)
    assert before["code"] in {0, 1}, before["err"]
    assert before[_name(row.part)] != after[_name(row.part)]


@pytest.mark.parametrize(
    ("command", "option", "arguments"),
    [(command, option, arguments) for command, option in ROWS for arguments in TABLE[command][option].refused],
)
def test_an_option_that_does_not_apply_is_refused_by_name(
    command: str, option: str, arguments: str, watch: Watch
) -> None:
    line = arguments[1:] if arguments.startswith("=") else _joined(command, BASE[command], arguments)
    assert option in line
    seen = watch.once(line)
    assert seen["code"] == 2, seen
    assert seen["err"].count("\n") == 1
    name = option.removeprefix("--")
    assert option in seen["err"] or re.search(rf"\b{name.replace('-', '_')}\b", seen["err"]), seen["err"]
    assert seen["files"].keys() <= {"run/.lock"}


def test_a_row_that_tests_nothing_is_found(watch: Watch) -> None:
    base = BASE["plan"]
    assert watch.twice(base, "out")["out"] == watch.once(f"{base} --alpha 0.001")["out"]  # the default, so no change
