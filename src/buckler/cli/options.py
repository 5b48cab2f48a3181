"""Options that several commands share, and checks of the options that are made before any work."""

import re
from collections.abc import Mapping, Set
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer

from buckler.errors import InvalidInput, show
from buckler.files import check_plain

MODEL_GROUP, NOISE_GROUP, DRAWS_GROUP, INPUTS_GROUP, SCORES_GROUP = (
    "Model and data",
    "Noise",
    "Draws",
    "Which inputs",
    "Scores",
)
DEVICE_GROUP, RESUME_GROUP, CLUSTER_GROUP, OUTPUT_GROUP = "Device", "Stop and resume", "Cluster (Ray)", "Output"
RADII_GROUP, CERTIFICATE_GROUP = "Radii to decide", "Certificates"
"""Headings under which options stand in the help."""

MOST_RADII = 10_000
"""Largest number of radii that ``first:last`` may stand for: more is taken for a typing error."""


def option(text: str, default: str | None = None, *, name: str | None = None, group: str = "Options") -> Any:
    """Return a Typer option: its help ``text``, ``default`` in words (None: its value), name and heading ``group``."""
    names = () if name is None else (name,)
    shown = True if default is None else default
    return typer.Option(*names, help=text, show_default=shown, rich_help_panel=group)


Spec = Annotated[
    Path | None,
    option("TOML file with these settings; an option on the command line replaces its value.", group=MODEL_GROUP),
]
Model = Annotated[
    str | None, option("module:factory, FILE.onnx, resnet110:WEIGHTS, hf:FOLDER or buckler:NAME.", group=MODEL_GROUP)
]
Data = Annotated[
    str | None,
    option("digits, FILE.npy, FILE.npz, a folder of images, or CIFAR-10 (cifar-10-batches-bin).", group=MODEL_GROUP),
]
Denoiser = Annotated[
    str | None,
    option("Put before the model: buckler:NAME, unet:WEIGHTS, diffusers:FOLDER or module:factory.", group=MODEL_GROUP),
]
NumClasses = Annotated[
    int | None, option("Number of classes, if the model does not tell.", "from the model", group=MODEL_GROUP)
]
Sigma = Annotated[
    float | None, option("Standard deviation of Gaussian noise, in the units of the input.", group=NOISE_GROUP)
]
NoiseOption = Annotated[
    str | None,
    option(
        "Other noise, as NAME:KEY=VALUE: grid, uniform, splitting (splitting:lam=2.5), derandomized-splitting or "
        "ablation; see docs/noise.md.",
        "Gaussian, with --sigma",
        name="--noise",
        group=NOISE_GROUP,
    ),
]
Seed = Annotated[int | None, option("Seed of the noise.", "0", group=NOISE_GROUP)]
FreshSeed = Annotated[
    bool,
    option("Take a seed from the operating system, once the model is loaded.", name="--fresh-seed", group=NOISE_GROUP),
]
SelectionDraws = Annotated[
    int | None, option("Separate draws that select the class; 0: the winner.", "0", group=DRAWS_GROUP)
]
BatchSize = Annotated[int | None, option("Rows in a batch.", "512, or 2048 on cuda", group=DEVICE_GROUP)]
Every = Annotated[int | None, option("Take every k-th input.", "1", group=INPUTS_GROUP)]
LimitOption = Annotated[int | None, option("Take at most this many inputs.", "all", group=INPUTS_GROUP)]
Device = Annotated[str | None, option("Device of a torch model.", "cpu", group=DEVICE_GROUP)]
AllowOtherModel = Annotated[
    bool,
    option(
        "Go on with another model, versions or device; the run records it.",
        name="--allow-other-model",
        group=RESUME_GROUP,
    ),
]
ExecutorOption = Annotated[
    str, option("process, or ray for the workers of a cluster.", name="--executor", group=CLUSTER_GROUP)
]
AddressOption = Annotated[
    str | None, option("auto, HOST:PORT or ray://...", "a cluster of its own, on loopback", group=CLUSTER_GROUP)
]
Workers = Annotated[int | None, option("Number of workers.", "as many as there is room for", group=CLUSTER_GROUP)]
Gpus = Annotated[
    float | None,
    option("GPUs of a worker, 0.5 for two on one.", "1 on cuda", name="--gpus-per-worker", group=CLUSTER_GROUP),
]
Alpha = Annotated[float, option("Error probability of each certificate.", group=CERTIFICATE_GROUP)]
Margin = Annotated[
    str | None, option("quantile or probability.", "quantile, or what the noise certifies", group=CERTIFICATE_GROUP)
]
FirstDraws = Annotated[
    int | None, option("Use only the first n draws: one of the run's checkpoints.", "all", group=CERTIFICATE_GROUP)
]
ClassOption = Annotated[
    str | None,
    option(
        "Class to certify: winner, selection or label (the true one).",
        "selection, if there are selection draws, else winner",
        name="--class",
        group=CERTIFICATE_GROUP,
    ),
]
Map = Annotated[str | None, option("For stored logits: softmax or sparsemax.", "softmax", group=CERTIFICATE_GROUP)]
Temperature = Annotated[
    float | None, option("For stored logits: temperature of the softmax.", "1", group=CERTIFICATE_GROUP)
]
Radii = Annotated[
    str | None,
    option("Rising radii, chosen beforehand: 0.5, or 0.25,0.5,1, or 0.25:1.5 for steps of 0.25.", group=RADII_GROUP),
]
Tsv = Annotated[
    Path | None,
    option(
        "Also write a tab-separated log as locuslab/smoothing does (idx label predict radius correct time), radii "
        "rounded down.",
        group=OUTPUT_GROUP,
    ),
]
Quiet = Annotated[bool, option("Print nothing.", name="--quiet", group=OUTPUT_GROUP)]


def as_json_option(text: str) -> Any:
    """Return the option --json of a command, with what it prints."""
    return option(text, name="--json", group=OUTPUT_GROUP)


def check_given(settings: Mapping[str, Any], *names: str) -> None:
    """Raise InvalidInput unless the settings of a drawing command hold all of ``names``, and ``noise`` or ``sigma``."""
    for name in (*names, *(() if "noise" in settings else ("sigma",))):
        if name not in settings:
            raise InvalidInput(f"--{name} must be given, as an option or in the file of --spec")


def refuse_others(ctx: typer.Context, allowed: Set[str], reason: str) -> None:
    """Raise InvalidInput for the first argument given on the command line that is none of those allowed."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(str(parameter.name))
        if source is not None and source.name != "DEFAULT" and parameter.name not in allowed:
            raise InvalidInput(f"{reason}; {max(parameter.opts, key=len)} does not go with it")


def check_outputs(**paths: Path | None) -> None:
    """Raise InvalidInput, naming the option, for an output path at which there is something else than a file."""
    for name, path in paths.items():
        if path is not None:
            try:
                check_plain(path)
            except OSError as problem:
                raise InvalidInput(f"--{name}: cannot write {str(path)!r}: {problem.strerror or problem}") from None


def radii_from(text: str | None) -> tuple[float, ...]:
    """Return the radii of --radii, () if it is not given; ``first:last`` stands for first, 2 first, ..., up to last.

    >>> radii_from("0.1:0.35"), radii_from("0.5,2")
    ((0.1, 0.2, 0.3), (0.5, 2.0))
    """
    if text is None:
        return ()
    allowed = f"--radii must be numbers as 0.25,0.5, or FIRST:LAST with at most {MOST_RADII:,} steps; got {show(text)}"
    try:
        # Decimal arithmetic: 3 times 0.1 is then 0.3, as typed.
        parts = [Decimal(part) for part in re.split("[,:]", text)]
    except InvalidOperation:
        raise InvalidInput(allowed) from None
    if ":" not in text:
        return tuple(map(float, parts))
    first, last = parts[0], parts[-1]
    finite = len(parts) == 2 and first.is_finite() and last.is_finite()
    if not finite or not 0 < first <= last <= MOST_RADII * first:
        raise InvalidInput(allowed)
    return tuple(float(first * k) for k in range(1, int(last / first) + 1))
