"""The specification of a run: a frozen record, written as TOML and read back, with a hash of its content.

Two runs with the same specification, model and data, on the same kind of hardware, give the same bytes: every setting
that the bytes depend on is a field, down to the batch size and the noise generator.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

import tomli_w

from buckler.errors import InvalidInput, check_choice, check_positive, check_whole, show
from buckler.noise import Gaussian, as_noise
from buckler.sampling.classifiers import Classifier, Dtype
from buckler.sampling.engine import Engine
from buckler.sampling.streams import GeneratorKind
from buckler.types import LARGEST_SEED, Noise, ScoreDtype

ScoreKind = Literal["none", "logits", "softmax", "sparsemax"]

CertifiedClass = Literal["winner", "selection", "label"]
"""How the certified class is chosen: ``winner``, the class with the most votes, tested to be the winner;
``selection``, the top class of the selection draws; or ``label``, the true one."""

FULL_BATCHES = {"philox": 2, "cuda": 32}
"""About how many batches a group of inputs that are drawn together fills. Few on a processor, where a batch can take
seconds and a file holds at least one group; more on a device, where a part of a batch costs as much as a full
one."""

MOST_TOGETHER = 1000
"""Largest number of inputs in a group that is drawn together, and so held in memory."""

IMPORTED = "an imported log"
"""Name of the model in a run whose votes were recovered from a log of radii: lower limits of votes, not the votes."""

NO_RIVALS = "a log of radii tells nothing of the rivals' votes, so no method certifies more from it than top_class"

NAMES = frozenset({"model", "denoiser", "data", "labels"})
"""Fields of a ``RunSpec`` that only name the model or the data, which are compared themselves (``runs.identity``)."""

FOR_EVIDENCE = ("scores", "temperature", "runner_ups", "score_draws", "score_dtype", "checkpoints", "shard_inputs")
"""Fields of a ``RunSpec`` that say what ``sample`` keeps on disk; other commands do not take them."""

MOST_CLASSES = 10**6
MOST_VOTES = 1 << 28
"""Largest number of votes of a group at all checkpoints: a file holds whole groups, and is read at once."""


def geometric(n: int) -> tuple[int, ...]:
    """Return the default checkpoints for ``n`` draws: 10, 20, 50, 100, 200, 500, ... below n, and n.

    >>> geometric(1000)
    (10, 20, 50, 100, 200, 500, 1000)
    """
    steps = [digit * 10**power for power in range(1, 19) for digit in (1, 2, 5)]
    return (*(step for step in steps if step < n), n)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All settings that the evidence of a run depends on, beside the model and the data themselves.

    ``n`` draws are made for each input, and ``n0`` more to select its class; votes are kept at the ``checkpoints``,
    numbers of first draws. The noise is Gaussian of standard deviation ``sigma``, or ``noise``; ``generator`` draws it.
    ``fresh_seed`` says that the operating system drew the seed after the model was loaded, so that no model can have
    been fitted to it.
    """

    model: str
    data: str
    sigma: float | None = None
    num_classes: int
    n: int
    n0: int = 0
    seed: int = 0
    scores: ScoreKind = "none"
    temperature: float | None = None
    runner_ups: int | None = None
    score_draws: int | None = None
    score_dtype: ScoreDtype | None = None
    checkpoints: tuple[int, ...] = ()
    batch_size: int = 512
    shard_inputs: int | None = None
    generator: GeneratorKind = "philox"
    device: str = "cpu"
    dtype: Dtype = "float32"
    channels_last: bool = False
    compile: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    denoiser: str | None = None
    labels: str | None = None
    resize: int | None = None
    crop: int | None = None
    value_range: tuple[float, float] = (0.0, 1.0)
    every: int = 1
    limit: int | None = None
    ids: tuple[str, ...] | None = None
    noise: Noise = cast(Noise, None)  # noqa: RUF009  (filled in from sigma)
    fresh_seed: bool = False

    def __post_init__(self) -> None:
        """Check every field, and fill in ``noise`` and the checkpoints if they are left out."""
        for name in ("model", "data", "device", "denoiser"):
            text = getattr(self, name)
            if (name != "denoiser" or text is not None) and not (isinstance(text, str) and text):
                raise InvalidInput(f"{name} must be a text of at least one character; got {show(text)}")
        put = object.__setattr__
        self._settle_noise()
        put(self, "num_classes", check_whole("num_classes", self.num_classes, 2, MOST_CLASSES))
        for name, low in (("n", 1), ("n0", 0), ("batch_size", 1), ("every", 1)):
            put(self, name, check_whole(name, getattr(self, name), low, 10**12))
        for name in ("limit", "resize", "crop", "runner_ups", "shard_inputs"):
            if getattr(self, name) is not None:
                most = 10**6 if name == "shard_inputs" else 10**12
                put(self, name, check_whole(name, getattr(self, name), 1, most))
        put(self, "seed", check_whole("seed", self.seed, 0, LARGEST_SEED))
        check_choice("scores", self.scores, get_args(ScoreKind))
        check_choice("generator", self.generator, get_args(GeneratorKind))
        check_choice("dtype", self.dtype, get_args(Dtype))
        self._check_scores()
        for name in ("channels_last", "compile", "fresh_seed"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} must be true or false; got {show(getattr(self, name))}")
        for name in ("mean", "std", "value_range", "checkpoints", "ids"):
            if getattr(self, name) is not None or name in {"value_range", "checkpoints"}:
                put(self, name, _tuple(name, getattr(self, name), str if name == "ids" else float))
        if (self.mean is None) != (self.std is None):
            raise InvalidInput("mean and std must be given together")
        if len(self.value_range) != 2 or not self.value_range[0] < self.value_range[1]:
            raise InvalidInput(f"value_range must be two numbers, the lower first; got {show(self.value_range)}")
        points = tuple(check_whole("checkpoints", c, 1, self.n) for c in self.checkpoints) or geometric(self.n)
        if list(points) != sorted(set(points)) or points[-1] != self.n:
            raise InvalidInput(f"checkpoints must rise to n = {self.n}; got {show(self.checkpoints)}")
        put(self, "checkpoints", points)
        votes = self.drawn_together * (len(points) + 1) * self.num_classes
        if votes > MOST_VOTES:
            raise InvalidInput(f"a shard must hold at most {MOST_VOTES:,} votes; got {votes:,}: lower shard_inputs")

    def _settle_noise(self) -> None:
        given = as_noise(self.sigma, None) if self.noise is None else self.noise
        own = given.parameters.get("sigma")
        if self.sigma not in {None, own}:
            raise InvalidInput(f"sigma must be that of the noise, {given.describe()}; got {show(self.sigma)}")
        object.__setattr__(self, "noise", given)
        object.__setattr__(self, "sigma", own)
        self._check_draws(given)
        if given.total is not None:
            object.__setattr__(self, "checkpoints", (given.total,))

    def _check_draws(self, noise: Noise) -> None:
        """Refuse settings for random draws under noise whose values are enumerated."""
        fixed = {"n": noise.total, "n0": 0, "seed": 0, "scores": "none", "checkpoints": (noise.total,)}
        for name, value in fixed.items() if noise.total is not None else ():
            given = getattr(self, name)
            if name == "checkpoints":
                given = tuple(given) or value
            if given != value:
                raise InvalidInput(f"{name} must be {value} for {noise.describe()}; got {show(given)}")

    @property
    def default_method(self) -> str:
        """The method that certifies votes by default: ``exact``; ``top_class`` for logs, which lack rivals' votes."""
        return "top_class" if self.model == IMPORTED else "exact"

    def engine(
        self, classifier: Classifier, threads: int | None = None, generator: GeneratorKind | None = None
    ) -> Engine:
        """Return the engine that draws for a classifier; ``threads`` make noise, by default one for each processor."""
        return Engine(
            classifier,
            noise=self.noise,
            num_classes=self.num_classes,
            seed=self.seed,
            batch_size=self.batch_size,
            generator=generator or self.generator,
            workers=threads,
        )

    @property
    def drawn_together(self) -> int:
        """The number of inputs in a group whose draws share batches; a file of the run holds whole groups.

        It depends on the specification alone, so that the draws of an input do not depend on where files end: kernels
        may round differently for another batch.
        """
        on_device = self.generator == "cuda" or (self.device.startswith("cuda") and self.noise.draws != "gaussian")
        fitting = FULL_BATCHES["cuda" if on_device else "philox"] * self.batch_size // (self.n + self.n0)
        return self.shard_inputs or max(1, min(MOST_TOGETHER, fitting))

    @property
    def kept_draws(self) -> int:
        """How many of the ``n`` draws have their scores kept: the first ``score_draws``, or all; 0 without scores."""
        return 0 if self.scores == "none" else self.n if self.score_draws is None else self.score_draws

    def _check_scores(self) -> None:
        if self.score_draws is not None:
            object.__setattr__(self, "score_draws", check_whole("score_draws", self.score_draws, 1, self.n))
        if self.score_dtype is not None:
            check_choice("score_dtype", self.score_dtype, get_args(ScoreDtype))
        if self.scores == "none" and (self.score_draws, self.score_dtype) != (None, None):
            raise InvalidInput("score_draws and score_dtype are for runs that keep scores; got scores 'none'")
        if self.temperature is not None:
            object.__setattr__(self, "temperature", check_positive("temperature", self.temperature))
            if self.scores != "softmax":
                raise InvalidInput(f"temperature is for softmax scores; got scores {self.scores!r}")
        if self.runner_ups is not None and self.scores not in {"softmax", "sparsemax"}:
            raise InvalidInput(f"runner_ups is for softmax or sparsemax scores; got scores {self.scores!r}")
        if self.runner_ups is not None and self.n0 == 0:
            raise InvalidInput("n0 must be above 0 with runner_ups, which are chosen on the selection draws; got 0")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, in order, as JSON can hold them; ``fresh_seed`` only if true.

        ``noise`` is there by name, with ``noise_parameters`` other than sigma, and only if sigma does not say it all.
        """
        said = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "noise"}
        rest = {key: value for key, value in self.noise.parameters.items() if key != "sigma"}
        if rest or self.noise.name != Gaussian.name:
            said |= {"noise": self.noise.name, "noise_parameters": rest or None}
        said = {k: v for k, v in said.items() if v is not None and (k != "fresh_seed" or v)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in said.items()}

    def hash(self) -> str:
        """Return the hash of all fields, in hexadecimal digits."""
        return hash_of(self.as_dict())

    def to_toml(self) -> str:
        """Return the specification as a TOML text, which ``read_toml`` and ``from_dict`` read back."""
        return tomli_w.dumps(self.as_dict())


FIELDS = frozenset({*(field.name for field in fields(RunSpec)), "noise_parameters"})
"""Names of all settings: the fields of ``RunSpec``, and ``noise_parameters``, which a file holds apart."""


def hash_of(values: Mapping[str, Any]) -> str:
    """Return the hash of a specification, given as ``RunSpec.as_dict`` returns it."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"buckler-spec-1").hexdigest()


def from_dict(values: Mapping[str, Any]) -> RunSpec:
    """Return the ``RunSpec`` with these fields by name; InvalidInput for an unknown or missing one."""
    if not isinstance(values, Mapping):
        raise InvalidInput(f"the specification must be a table of fields; got {show(values)}")
    unknown = sorted(str(k) for k in values.keys() - FIELDS)
    if unknown:
        raise InvalidInput(f"the specification has no field {unknown[0]!r}; it has {', '.join(sorted(FIELDS))}")
    values = with_draws(values)
    needed = ("model", "data", *(() if "noise" in values else ("sigma",)), "num_classes", "n")
    missing = [k for k in needed if k not in values]
    if missing:
        raise InvalidInput(f"the specification must say {missing[0]}")
    noise = noise_in(values)
    rest = {key: value for key, value in values.items() if not key.startswith("noise")}
    return RunSpec(**{**rest, "noise": noise, "sigma": None})


def noise_in(settings: Mapping[str, Any]) -> Noise:
    """Return the noise that settings name by ``sigma``, or by ``noise`` and ``noise_parameters``."""
    return as_noise(settings.get("sigma"), settings.get("noise"), settings.get("noise_parameters"))


def with_draws(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with ``n`` and ``n0`` filled in if their noise enumerates its copies, whose number is n."""
    total = noise_in(settings).total if "noise" in settings else None
    return dict(settings) if total is None else {"n": total, "n0": 0, **settings}


def read_toml(text: str) -> dict[str, Any]:
    """Return the fields in a TOML text by name."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as problem:
        raise InvalidInput(f"not TOML: {show(str(problem), 120)}") from None


def values(name: str, given: Any, kind: type) -> tuple[Any, ...]:
    """Return the values of the setting ``name`` as a tuple of ``kind``, given as a text ``a,b,c``, a list or one value.

    >>> values("n", "100, 200", int), values("alpha", [0.1, 1], float), values("n", None, int)
    ((100, 200), (0.1, 1.0), ())
    """
    if given is None:
        return ()
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
    try:
        return tuple(kind(part.strip() if isinstance(part, str) else part) for part in parts)
    except (TypeError, ValueError):
        wanted = {int: "whole numbers", float: "numbers"}.get(kind, "names")
        raise InvalidInput(f"{name} must be {wanted} separated by commas; got {show(given)}") from None


def distinct_values(name: str, given: Any, kind: type) -> tuple[Any, ...]:
    """Return what ``values`` returns; InvalidInput if a value occurs twice."""
    found = values(name, given, kind)
    if len(set(found)) != len(found):
        raise InvalidInput(f"{name} must not hold a value twice; got {show(given)}")
    return found


def difference(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], where: tuple[str, str] = ("in the folder", "asked for")
) -> str:
    """Return in words how two mappings differ, as ``n: 1000 in the folder, 2000 asked for``.

    ``where`` says where each of the two comes from.
    """
    keys = [k for k in dict.fromkeys([*ours, *theirs]) if ours.get(k) != theirs.get(k)]
    return "; ".join(f"{k}: {show(ours.get(k))} {where[0]}, {show(theirs.get(k))} {where[1]}" for k in keys)


def _tuple(name: str, values: Any, kind: type) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise InvalidInput(f"{name} must be a list; got {show(values)}")
    for value in values:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
        if not (isinstance(value, str) if kind is str else is_number):
            raise InvalidInput(f"{name} must hold {'names' if kind is str else 'numbers'}; got {show(value)}")
    return tuple(values if name in {"ids", "checkpoints"} else map(float, values))
