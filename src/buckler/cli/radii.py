"""Radii as options: one, a list, or even steps; the same for every command that takes them."""

from decimal import Decimal
from typing import Annotated

import typer

from buckler.errors import InvalidInput, check_positive, show

MANY = 10_000
"""Steps at most: more is a slip of the pen."""

TargetOption = Annotated[
    float | None, typer.Option(help="One radius to decide, fixed beforehand.", show_default="none")
]
RadiiOption = Annotated[
    str | None, typer.Option(help="Rising radii to decide, as in 0.25,0.5,0.75.", show_default="none")
]
RadiiToOption = Annotated[
    float | None, typer.Option(help="Radii in even steps up to this one: with --step.", show_default="none")
]
StepOption = Annotated[
    float | None, typer.Option(help="The step of --radii-to, and its first radius.", show_default="none")
]


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
