"""A run does not go on with other values of any input, or with other noise, whatever its model answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.errors import BucklerError
from buckler.noise import Splitting
from buckler.runs.decide import Target, decide
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.types import AnyArray

INPUTS = 300
"""More than are compared at once."""
X = np.random.default_rng(0).uniform(size=(INPUTS, 4)).astype("f4")


def constant(batch: AnyArray) -> AnyArray:
    return np.tile(np.array([0.0, 1.0, 0.0], dtype=np.float32), (len(batch), 1))


def call(door: str, out: Path, x: AnyArray = X, **changes: Any) -> None:
    noise: dict[str, Any] = {} if "noise" in changes else {"sigma": 0.25}
    spec = RunSpec(model="m", data="d", num_classes=3, n=10, **noise | changes)
    data, model = from_arrays(x, np.zeros(len(x), dtype=np.int64)), as_classifier(constant, num_classes=3)
    if door == "sample":
        sample(spec, model, data, out)
    else:
        decide(spec, Target((0.05,)), model, data, out)


@pytest.mark.parametrize("changed", [1, 127, 130, 200, INPUTS - 2])
@pytest.mark.parametrize("door", ["sample", "decide"])
def test_another_value_of_any_input_is_refused(door: str, changed: int, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    call(door, out)
    call(door, out)
    other = X.copy()
    other[changed, 2] += 0.01
    with pytest.raises(BucklerError, match=f"'{changed}'"):
        call(door, out, other)


@pytest.mark.parametrize(
    "other",
    [{"sigma": 0.5}, {"sigma": np.nextafter(0.25, 1.0)}, {"noise": Splitting(1.0)}],
    ids=["sigma", "sigma, one bit", "kind"],
)
@pytest.mark.parametrize("door", ["sample", "decide"])
def test_other_noise_is_refused_though_the_model_answers_alike(
    door: str, other: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    call(door, out)
    with pytest.raises(BucklerError, match=r"sigma|noise"):
        call(door, out, **other)
