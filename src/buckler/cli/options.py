"""Options of commands: how they are declared, the groups that several commands share, and checks before any work.

A group is a dataclass (a record) whose fields are options: a command with a parameter of that type takes all of them,
and its function gets one record.
"""

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, cast, get_type_hints

import typer
from typer.models import ArgumentInfo

from buckler.errors import InvalidInput, show
from buckler.files import check_plain
from buckler.runs.certify import CertifyKeywords
from buckler.runs.open_run import ExecutorOptions, settings_from
from buckler.runs.spec import values
from buckler.types import Noise

MODEL_GROUP, NOISE_GROUP, DRAWS_GROUP, INPUTS_GROUP = "Model and data", "Noise", "Draws", "Which inputs"
DEVICE_GROUP, RESUME_GROUP, CLUSTER_GROUP, OUTPUT_GROUP = "Device", "Stop and resume", "Cluster (Ray)", "Output"
RADII_GROUP, CERTIFICATE_GROUP = "Radii to decide", "Certificates"
"""Headings of the help under which options stand."""

MOST_RADII = 10_000
"""Largest number of radii that ``FIRST:LAST`` may stand for: more is taken for a typing error."""


def argument(text: str, default: Any = ...) -> Any:
    """Return Typer's declaration of a command's argument with the help ``text``; without a default it must be given."""
    return typer.Argument(default, help=text)


def option(text: str, default: Any = None, shown: str | None = None, *, name: str = "", group: str = "Options") -> Any:
    """Return Typer's declaration of a command's option with the help ``text``, under the heading ``group``.

    ``shown`` is the default in words. Without a ``name`` the option is called like the parameter; with ``...`` for a
    default it must be given.
    """
    names = name.split()
    return typer.Option(
        default, *names, help=text, show_default=True if shown is None else shown, rich_help_panel=group
    )


def flat(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command's function with the fields of its records of options as parameters, as Typer needs it."""
    hints, records, found = get_type_hints(function), dict[str, Any](), dict[str, tuple[Any, Any]]()
    for name, parameter in signature(function).parameters.items():
        if is_dataclass(record := hints[name]):
            records[name], types = record, get_type_hints(record)
            found |= {field.name: (types[field.name], field.default) for field in fields(record)}
        else:
            found[name] = hints[name], parameter.default
    for name, (kind, declared) in found.items():
        if isinstance(declared, ArgumentInfo):
            declared.metavar = name.upper()
        if kind is bool and not declared.param_decls:
            declared.param_decls = (f"--{name.replace('_', '-')}",)  # a flag without its --no- twin

    def call(**given: Any) -> None:
        made = {
            name: record(**{field.name: given.pop(field.name) for field in fields(record)})
            for name, record in records.items()
        }
        function(**made, **given)

    call.__doc__, call.__annotations__ = function.__doc__, {name: kind for name, (kind, _) in found.items()}
    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=k, default=d) for name, (k, d) in found.items()]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


JSON_OPTION = option("Print the results as JSON.", False, name="--json", group=OUTPUT_GROUP)
QUIET_OPTION = option("Print nothing.", False, group=OUTPUT_GROUP)
OTHER_MODEL_OPTION = option(
    "Go on with another model, versions or device; the run records it.", False, group=RESUME_GROUP
)
BATCH_OPTION = option("Rows in a batch.", None, "512, or 2048 on cuda", group=DEVICE_GROUP)
CLASS_OPTION = option(
    "Class to certify: winner, selection or label (the true one).",
    None,
    "selection, if there are selection draws, else winner",
    name="--class",
    group=CERTIFICATE_GROUP,
)
MARGIN_OPTION = option(
    "quantile or probability.", None, "quantile, or what the noise certifies", group=CERTIFICATE_GROUP
)
CLASSES_OPTION = option("Number of classes, if the model does not tell.", None, "from the model", group=MODEL_GROUP)
RADII_OPTION = option(
    "Rising radii, chosen beforehand: 0.5, or 0.25,0.5,1, or 0.25:1.5 for steps of 0.25.", group=RADII_GROUP
)
TSV_OPTION = option(
    "Also write a tab-separated log as locuslab/smoothing does (idx label predict radius correct time), radii rounded "
    "down.",
    group=OUTPUT_GROUP,
)


@dataclass(frozen=True)
class DrawOptions:
    """Options of ``sample``, ``decide`` and ``plan``: settings of a run, and the file ``spec`` that may hold others."""

    model: str | None = option(
        "module:factory, FILE.onnx, resnet110:WEIGHTS, hf:FOLDER or buckler:NAME.", group=MODEL_GROUP
    )
    data: str | None = option(
        "digits, digits32 (the test images of train digits), FILE.npy, FILE.npz, a folder of images, or CIFAR-10 "
        "(cifar-10-batches-bin).",
        group=MODEL_GROUP,
    )
    spec: Path | None = option(
        "TOML file with these settings; an option on the command line replaces its value.", group=MODEL_GROUP
    )
    denoiser: str | None = option(
        "Put before the model: buckler:NAME, unet:WEIGHTS, diffusers:FOLDER or module:factory.", group=MODEL_GROUP
    )
    num_classes: int | None = CLASSES_OPTION
    mean: str | None = option(
        "Mean of each channel, subtracted inside of the model: 0.49,0.48,0.45.", group=MODEL_GROUP
    )
    std: str | None = option("Standard deviation of each channel, likewise.", group=MODEL_GROUP)
    labels: str | None = option("An .npy file of labels, for data without.", group=MODEL_GROUP)
    resize: int | None = option("For a folder of images: scale the shorter side.", None, "as it is", group=MODEL_GROUP)
    crop: int | None = option("For a folder of images: cut out the centre.", None, "whole", group=MODEL_GROUP)
    value_range: str | None = option(
        "For arrays: the range of the values; bytes are spread over it.", None, "0,1", group=MODEL_GROUP
    )
    sigma: float | None = option("Standard deviation of Gaussian noise, in the units of the input.", group=NOISE_GROUP)
    noise: str | None = option(
        "Other noise, as NAME:KEY=VALUE: grid, uniform, splitting (splitting:lam=2.5), derandomized-splitting or "
        "ablation; see docs/noise.md.",
        None,
        "Gaussian, with --sigma",
        group=NOISE_GROUP,
    )
    n0: int | None = option("Separate draws that select the class; 0: the winner.", None, "0", group=DRAWS_GROUP)
    every: int | None = option("Take every k-th input.", None, "1", group=INPUTS_GROUP)
    limit: int | None = option("Take at most this many inputs.", None, "all", group=INPUTS_GROUP)
    ids: str | None = option("Take these inputs: 7,20,35.", None, "all", group=INPUTS_GROUP)
    device: str | None = option("Device of a torch model.", None, "cpu", group=DEVICE_GROUP)
    dtype: str | None = option("Of a torch model: float32, bfloat16 or float16.", None, "float32", group=DEVICE_GROUP)
    channels_last: bool | None = option(
        "Store images channels last, for a torch model.", None, "no", group=DEVICE_GROUP
    )
    compile: bool | None = option("Compile a torch model.", None, "no", group=DEVICE_GROUP)

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of the ``spec`` file, if any; options that were given, and ``more``, replace them.

        Lists, given as ``a,b,c``, become tuples.
        """
        given: dict[str, Any] = {**vars(self), "spec": None}
        for name, kind in {"mean": float, "std": float, "value_range": float, "ids": str}.items():
            given[name] = values(name, given[name], kind) or None
        return settings_from(self.spec, {**given, **more})


@dataclass(frozen=True)
class RunOptions(DrawOptions):
    """Options of ``sample`` and ``decide``: settings of a run."""

    seed: int | None = option("Seed of the noise.", None, "0", group=NOISE_GROUP)
    fresh_seed: bool = option(
        "Take a seed from the operating system, once the model is loaded.", False, group=NOISE_GROUP
    )
    batch_size: int | None = BATCH_OPTION

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of the ``spec`` file, if any; options that were given, and ``more``, replace them."""
        return super().settings(fresh_seed=self.fresh_seed or None, **more)


@dataclass(frozen=True)
class ClusterOptions(ExecutorOptions):
    """Options that say where a run is computed: in this process, or on a Ray cluster."""

    executor: str = option("process, or ray for the workers of a cluster.", "process", group=CLUSTER_GROUP)
    address: str | None = option(
        "auto, HOST:PORT or ray://...", None, "a cluster of its own, on loopback", group=CLUSTER_GROUP
    )
    workers: int | None = option("Number of workers.", None, "as many as there is room for", group=CLUSTER_GROUP)
    gpus_per_worker: float | None = option(
        "GPUs of a worker, 0.5 for two on one.", None, "1 on cuda", group=CLUSTER_GROUP
    )


@dataclass(frozen=True)
class CertifyOptions:
    """Options that say how the votes or scores of a run are certified."""

    alpha: float | None = option("Error probability of each certificate.", None, "0.001", group=CERTIFICATE_GROUP)
    margin: str | None = MARGIN_OPTION
    n: int | None = option(
        "Use only the first n draws: one of the run's checkpoints.", None, "all", group=CERTIFICATE_GROUP
    )
    certified_class: str | None = CLASS_OPTION
    map: str | None = option("For stored logits: softmax or sparsemax.", None, "softmax", group=CERTIFICATE_GROUP)
    temperature: float | None = option(
        "For stored logits: temperature of the softmax.", None, "1", group=CERTIFICATE_GROUP
    )

    def keywords(self) -> CertifyKeywords:
        """Return these options as keywords of ``certify_evidence``, which checks them."""
        return cast(CertifyKeywords, dict(vars(self)))


@dataclass(frozen=True)
class OutputOptions:
    """Options that say what a command prints."""

    as_json: bool = JSON_OPTION
    quiet: bool = QUIET_OPTION

    @property
    def bare(self) -> bool:
        """Whether --json or --quiet is given, so that no progress and no table is printed."""
        return self.as_json or self.quiet


def chosen(given: DrawOptions) -> set[str]:
    """Return the names of the settings that options on the command line give."""
    return {name for name, value in vars(given).items() if value is not None and value is not False and name != "spec"}


def check_given(settings: Mapping[str, Any], *names: str) -> None:
    """Raise InvalidInput unless ``settings`` hold all of ``names``, and ``sigma`` or ``noise``."""
    for name in (*names, *(() if "noise" in settings else ("sigma",))):
        if name not in settings:
            raise InvalidInput(f"--{name} must be given, as an option or in the file of --spec")


def refuse_others(ctx: typer.Context, allowed: Set[str], reason: str) -> None:
    """Raise InvalidInput, with ``reason``, if an option is given on the command line that is not in ``allowed``."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(str(parameter.name))
        if source is not None and source.name != "DEFAULT" and parameter.name not in allowed:
            raise InvalidInput(f"{reason}; {max(parameter.opts, key=len)} does not go with it")


def check_outputs(**paths: Path | None) -> None:
    """Raise InvalidInput, naming the option, if one of these output paths is something else than a plain file."""
    for name, path in paths.items():
        if path is not None:
            try:
                check_plain(path)
            except OSError as problem:
                raise InvalidInput(f"--{name}: cannot write {str(path)!r}: {problem.strerror or problem}") from None


def check_folder(path: Path | None, name: str = "--out") -> None:
    """Raise InvalidInput, naming the option, for an output folder in whose place there is a file."""
    if path is not None and path.exists() and not path.is_dir():
        raise InvalidInput(f"{name} must be a folder; got {str(path)!r}, which is a file")


def check_tsv(path: Path | None, noise: Noise, labels: Any) -> None:
    """Raise InvalidInput if --tsv is given (``path``) and the data have no labels, or the noise no l2 radii."""
    if path is not None and labels is None:
        raise InvalidInput("--tsv needs labels, and this data has none")
    if path is not None and noise.norm != "l2":
        raise InvalidInput(f"--tsv is for l2 radii; got {noise.norm} ones under {noise.describe()}")


def radii_from(text: str | None) -> tuple[float, ...]:
    """Return the radii that --radii gives as ``0.25,0.5`` or ``FIRST:LAST`` (in steps of FIRST); () for None.

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
