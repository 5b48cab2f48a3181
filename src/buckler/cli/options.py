"""Options that several commands share, and checks of what was given that come before any work."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from buckler.errors import InvalidInput
from buckler.files import check_plain

FirstDraws = Annotated[
    int | None, typer.Option(help="Use the first n draws alone: a checkpoint of the run.", show_default="n drawn")
]
CertifiedClass = Annotated[
    str | None, typer.Option("--class", help="label (the true one) or selection.", show_default="selection if drawn")
]
Map = Annotated[str | None, typer.Option(help="For stored logits: softmax or sparsemax.", show_default="softmax")]
Temperature = Annotated[
    float | None, typer.Option(help="For stored logits: temperature of the softmax.", show_default="1")
]
Tsv = Annotated[
    Path | None,
    typer.Option(
        help="Write the field's usual log: idx label predict radius correct time; rounded down.", show_default="none"
    ),
]
LawOption = Annotated[
    str | None,
    typer.Option(
        "--law",
        help="NAME:KEY=VALUE,... as in splitting:lam=2.5; others are grid, uniform, derandomized-splitting and "
        "ablation, see docs/laws.md.",
        show_default="gaussian",
    ),
]
Denoiser = Annotated[
    str | None,
    typer.Option(
        help="Before the model: buckler:NAME, unet:WEIGHTS, diffusers:FOLDER or module:factory.",
        show_default="none",
    ),
]
FreshSeed = Annotated[
    bool, typer.Option("--fresh-seed", help="Draw the seed from the operating system once the model is loaded.")
]
NumClasses = Annotated[
    int | None, typer.Option(help="Classes, where the model does not tell.", show_default="what the model tells")
]
BatchSize = Annotated[int | None, typer.Option(help="Rows of a batch.", show_default="512, or 2048 on cuda")]
AnyEnvironment = Annotated[
    bool, typer.Option("--any-environment", help="Go on although versions or the device differ.")
]
AnotherModel = Annotated[
    bool, typer.Option("--another-model", help="Go on although the model answers otherwise; it is recorded.")
]
Executor = Annotated[str, typer.Option("--executor", help="process, or ray for the workers of a cluster.")]
Address = Annotated[
    str | None,
    typer.Option(help="With ray: auto, HOST:PORT or ray://...", show_default="a cluster of its own, on loopback"),
]
Workers = Annotated[int | None, typer.Option(help="With ray: workers.", show_default="as many as there is room for")]
Gpus = Annotated[
    float | None, typer.Option("--gpus-per-worker", help="With ray: GPUs of each, 0.5 say.", show_default="1 on cuda")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing.")]


def check_given(settings: Mapping[str, Any], *names: str) -> None:
    """Refuse settings of a drawing command that lack one of these, or say nothing of the noise."""
    for name in (*names, *(() if "law" in settings else ("sigma",))):
        if name not in settings:
            raise InvalidInput(f"--{name} must be given, as an option or in the file of --spec")


def check_outputs(**paths: Path | None) -> None:
    """Refuse outputs that are there and are not files, by the names of their options."""
    for name, path in paths.items():
        if path is not None:
            try:
                check_plain(path)
            except OSError as problem:
                raise InvalidInput(f"--{name}: cannot write {str(path)!r}: {problem.strerror or problem}") from None
