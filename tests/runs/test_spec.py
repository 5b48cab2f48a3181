"""The specification: TOML and back, a hash of its content, and mistakes named."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckler.errors import BucklerError, InvalidInput
from buckler.runs.spec import RunSpec, difference, from_dict, geometric, read_toml

GOOD: dict[str, Any] = {"model": "m:f", "data": "digits", "sigma": 0.25, "num_classes": 10, "n": 1000}


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3),
    st.floats(1e-9, 1e9),
    st.integers(1, 10**9),
)
@settings(max_examples=100, deadline=None)
def test_toml_and_back(name: str, ids: list[str], sigma: float, n: int) -> None:
    spec = RunSpec(**{**GOOD, "model": name, "ids": tuple(ids), "sigma": sigma, "n": n})
    again = from_dict(read_toml(spec.to_toml()))
    assert again == spec
    assert again.hash() == spec.hash()


def test_the_hash_is_of_the_content() -> None:
    spec = from_dict(GOOD)
    assert spec.hash() == from_dict(dict(reversed(GOOD.items()))).hash() == from_dict({**GOOD, "n0": 0}).hash()
    changes: list[dict[str, Any]] = [
        {"sigma": 0.5}, {"n": 2000}, {"seed": 1}, {"batch_size": 64}, {"dtype": "bfloat16"}, {"generator": "cuda"},
        {"every": 2}, {"scores": "softmax"}, {"mean": [0.5], "std": [0.5]},
    ]  # fmt: skip
    hashes = {from_dict({**GOOD, **change}).hash() for change in changes}
    assert len(hashes | {spec.hash()}) == len(changes) + 1


def test_checkpoints_are_geometric() -> None:
    assert geometric(100_000)[-4:] == (10_000, 20_000, 50_000, 100_000)
    assert geometric(7) == (7,)
    assert from_dict({**GOOD, "checkpoints": [100, 1000]}).checkpoints == (100, 1000)


def test_differences_are_shown() -> None:
    text = difference(from_dict(GOOD).as_dict(), from_dict({**GOOD, "seed": 4, "limit": 3}).as_dict())
    assert text == "seed: 0 in the folder, 4 asked for; limit: None in the folder, 3 asked for"


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": -1}, {"sigma": "much"}, {"n": 0}, {"n": 1.5}, {"n0": -1}, {"num_classes": 1}, {"seed": -1},
        {"scores": "all"}, {"temperature": 2.0}, {"runner_ups": 2}, {"scores": "logits", "runner_ups": 2},
        {"scores": "softmax", "runner_ups": 2, "n0": 0}, {"checkpoints": [10, 20]}, {"checkpoints": [20, 10, 1000]},
        {"checkpoints": "10"}, {"mean": [0.5]}, {"value_range": [1, 0]}, {"value_range": [0]}, {"compile": "yes"},
        {"model": ""}, {"data": 3}, {"ids": [1]}, {"limit": 0}, {"noise": "pink"}, {"dtype": "float64"},
        {"shard_inputs": -1}, {"colour": "red"}, {"mean": [True], "std": [1.0]}, {"mean": [float("inf")], "std": [1.0]},
    ],
)  # fmt: skip
def test_mistakes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        from_dict({**GOOD, **change})


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_hostile_toml_gives_our_errors(text: str) -> None:
    with pytest.raises(BucklerError):
        from_dict(read_toml(text))
