"""What is asked about every input before the first draw: radii, alpha, the class's rule, and settings that fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from buckler.certify.ladder import Ladder, check_precision, check_radii, radii_for
from buckler.errors import InvalidInput, check_alpha, check_choice
from buckler.noise import NOISES, default_margin, parse
from buckler.runs.spec import RunSpec, from_dict, noise_in
from buckler.types import MarginKind, Noise

ClassRule = Literal["winner", "selection", "label"]

MAX_N = 100_000
"""Draws for each input at most, unless told: what the field's usual tool always draws."""

FOR_EVIDENCE = ("scores", "temperature", "runner_ups", "score_draws", "score_dtype", "checkpoints", "shard_inputs")
"""Settings that say what a run keeps on disk; drawing until decided keeps votes alone."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about every input, fixed before the first draw: rising radii or a precision, and one alpha.

    With a ``precision`` in place of radii, as much is certified as there is: the radii are those of a fine ladder, and
    drawing ends where the certified one is that close to the estimated one. The class is the one with the most votes,
    tested to be the winner; or the top one of ``n0`` separate selection draws; or the true label.
    """

    radii: tuple[float, ...] = ()
    alpha: float = 1e-3
    certified_class: ClassRule = "winner"
    margin: MarginKind = "quantile"
    precision: float | None = None

    def __post_init__(self) -> None:
        """Check what does not need a specification."""
        check_choice("class", self.certified_class, get_args(ClassRule))
        check_alpha(self.alpha)
        if self.precision is None:
            object.__setattr__(self, "radii", check_radii(self.radii))
        elif self.radii:
            raise InvalidInput("radii do not go with a precision, which has a ladder of its own")
        else:
            check_precision(self.precision)

    def ladder(self, spec: RunSpec, final_n: int = 0) -> Ladder:
        """Return the ladder of radii under the noise of a specification, with at most its ``n`` draws."""
        noise, winner = spec.noise, self.certified_class == "winner"
        radii = self.radii if self.precision is None else radii_for(noise, self.precision, self.margin)
        return Ladder(radii, noise, self.alpha, spec.n, self.margin, final_n, self.precision, winner)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON, under the names of the command's options."""
        return {
            "radii": list(self.radii), "alpha": self.alpha, "class": self.certified_class, "margin": self.margin,
            "precision": self.precision,
        }  # fmt: skip


def settings_to_decide(settings: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the settings of a run that decides ``target``: what does not apply is refused, what is missing filled in.

    ``n`` is the number of draws for each input at most; ``n0`` is 0 unless the class is selected.
    """
    fit = {name: value for name, value in settings.items() if name not in FOR_EVIDENCE}
    if "noise" in fit and noise_in(fit).total is not None:
        raise InvalidInput(f"noise {fit['noise']} leaves nothing to decide: sample and certify give its one answer")
    # A specification that was written out holds values that say nothing: what would be filled in anyway.
    noise = {} if "noise" in fit else {"sigma": 1.0}
    filled = from_dict({"model": "-", "data": "-", **noise, "num_classes": 2, "n": MAX_N, **fit}).as_dict()
    unfit = [name for name in FOR_EVIDENCE if name in settings and settings[name] != filled.get(name)]
    if unfit:
        raise InvalidInput(f"{unfit[0]} is for evidence that is kept; drawing until decided does not take it")
    if target.certified_class != "selection" and settings.get("n0", 0) != 0:
        raise InvalidInput(f"n0 must be 0 for class {target.certified_class!r}; got {settings['n0']}")
    return {"n": MAX_N, **fit}


def margin_for(settings: Mapping[str, Any], wanted: str | None) -> MarginKind:
    """Return the margin to test: as wanted, else the first of the noise in the settings."""
    if wanted is not None:
        return cast(MarginKind, check_choice("margin", wanted, get_args(MarginKind)))
    name = check_choice("noise", parse(settings.get("noise", "gaussian"))[0], tuple(NOISES))
    return default_margin(cast(Noise, NOISES[name]))
