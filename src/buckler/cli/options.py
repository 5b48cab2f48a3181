"""Options that several commands share, and checks of what was given that come before any work."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from buckler.errors import InvalidInput, check_positive, show
from buckler.files import check_plain
from buckler.runs.open_run import read_settings


def option(text: str, default: str | None = None, *, name: str | None = None) -> Any:
    """Return an option with its help, and the default to show where that is not its value."""
    names = () if name is None else (name,)
    return typer.Option(*names, help=text, show_default=True if default is None else default)


IN_SPEC = "that of --spec"
MANY = 10_000
"""Steps of radii at most: more is a slip of the pen."""

FirstDraws = Annotated[int | None, option("Use the first n draws alone: a checkpoint of the run.", "n drawn")]
CertifiedClass = Annotated[
    str | None, option("label (the true one) or selection.", "selection if drawn", name="--class")
]
Map = Annotated[str | None, option("For stored logits: softmax or sparsemax.", "softmax")]
Temperature = Annotated[float | None, option("For stored logits: temperature of the softmax.", "1")]
Tsv = Annotated[
    Path | None, option("Write the field's usual log: idx label predict radius correct time; rounded down.", "none")
]
LawOption = Annotated[
    str | None,
    option(
        "NAME:KEY=VALUE,... as in splitting:lam=2.5; others are grid, uniform, derandomized-splitting and ablation, "
        "see docs/noise.md.",
        "gaussian",
        name="--law",
    ),
]
Denoiser = Annotated[
    str | None, option("Before the model: buckler:NAME, unet:WEIGHTS, diffusers:FOLDER or module:factory.", "none")
]
FreshSeed = Annotated[
    bool, option("Draw the seed from the operating system once the model is loaded.", name="--fresh-seed")
]
NumClasses = Annotated[int | None, option("Classes, where the model does not tell.", "what the model tells")]
BatchSize = Annotated[int | None, option("Rows of a batch.", "512, or 2048 on cuda")]
AllowOtherModel = Annotated[
    bool, option("Go on with another model, versions or device; it is recorded.", name="--allow-other-model")
]
Executor = Annotated[str, option("process, or ray for the workers of a cluster.", name="--executor")]
Address = Annotated[str | None, option("With ray: auto, HOST:PORT or ray://...", "a cluster of its own, on loopback")]
Workers = Annotated[int | None, option("With ray: workers.", "as many as there is room for")]
Gpus = Annotated[float | None, option("With ray: GPUs of each, 0.5 say.", "1 on cuda", name="--gpus-per-worker")]
TargetRadius = Annotated[float | None, option("One radius to decide, fixed beforehand.", "none")]
Radii = Annotated[str | None, option("Rising radii to decide, as in 0.25,0.5,0.75.", "none")]
RadiiTo = Annotated[float | None, option("Radii in even steps up to this one: with --step.", "none")]
Step = Annotated[float | None, option("The step of --radii-to, and its first radius.", "none")]
Quiet = Annotated[bool, option("Print nothing.", name="--quiet")]


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


def radii_from(
    target_radius: float | None, radii: str | None, radii_to: float | None, step: float | None
) -> tuple[float, ...]:
    """Return the radii that options ask for, none if there are none; two ways at once are refused."""
    if (radii_to is None) != (step is None):
        raise InvalidInput("--radii-to and --step go together: radii at step, 2 step, ..., up to the last")
    ways = {"--target-radius": target_radius, "--radii": radii, "--radii-to": radii_to}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"{given[0]} and {given[1]} are two ways to give radii; give one")
    if target_radius is not None:
        return (target_radius,)
    if radii is not None:
        try:
            return tuple(float(part) for part in radii.split(","))
        except ValueError:
            raise InvalidInput(f"--radii must be numbers separated by commas; got {show(radii)}") from None
    if radii_to is None or step is None:
        return ()
    # In decimals: 0.1, 0.2, 0.3 are then the numbers that these digits stand for.
    last, size = Decimal(str(check_positive("radii_to", radii_to))), Decimal(str(check_positive("step", step)))
    if not size <= last <= MANY * size:
        raise InvalidInput(
            f"--step must fit into --radii-to at least once and at most {MANY:,} times; got {show(step)}"
        )
    return tuple(float(size * k) for k in range(1, int(last / size) + 1))


def defaults_from(path: Path, commands: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the defaults that a file gives to the options of each command, by parameter.

    ``[certify]`` with ``alpha = 0.01`` is ``certify --alpha 0.01`` unless the option is given; a list is what the
    command line separates by commas.
    """
    found: dict[str, dict[str, Any]] = {}
    for command, table in read_settings(path, "settings").items():
        if command not in commands or not isinstance(table, dict):
            raise InvalidInput(f"--settings must hold tables named like commands; got {show(command)}")
        flags = [(flag, parameter) for parameter in commands[command].params for flag in parameter.opts]
        known = {flag.removeprefix("--"): parameter for flag, parameter in flags if flag.startswith("--")}
        found[command] = {}
        for key, value in table.items():
            parameter = known.get(key.replace("_", "-"))
            if parameter is None:
                raise InvalidInput(f"{command} has no option --{key.replace('_', '-')}, which {path} sets")
            joined = isinstance(value, list) and not parameter.multiple
            found[command][parameter.name] = ",".join(map(str, value)) if joined else value
    return found
