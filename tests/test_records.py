"""Records are frozen, slotted, and refuse what they cannot mean."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.records import REST, Counts, MarginBound, Scores


def scores(**change: Any) -> Scores:
    given: dict[str, Any] = {
        "ids": ("a",),
        "values": np.array([[[0.7, 0.2, 0.1], [0.5, 0.25, 0.25]]]),
        "columns": np.array([[0, 1, 2]]),
        "num_classes": 3,
        "map": "softmax",
        "temperature": 1.0,
    }
    return Scores(**given | change)


def test_frozen_and_slotted() -> None:
    counts = Counts(("a",), np.array([[1, 2]]))
    certificate = buckler.certify_counts([90, 10], sigma=1.0, label=0)
    for record in (counts, scores(), certificate, MarginBound("quantile", 1.0, 0.01, "bonferroni")):
        assert not hasattr(record, "__dict__")
        with pytest.raises(FrozenInstanceError):
            setattr(record, next(iter(record.__dataclass_fields__)), "other")


def test_counts() -> None:
    counts = Counts(("a", "b"), np.array([[1, 2, 3], [4, 5, 6]]))
    assert counts.n.tolist() == [6, 15]
    assert counts.num_classes == 3
    with pytest.raises(buckler.InvalidInput, match="ids"):
        Counts(("a", "a"), np.array([[1, 2], [1, 2]]))
    with pytest.raises(buckler.InvalidInput, match="shape"):
        Counts(("a",), np.array([1, 2]))


def test_scores() -> None:
    assert scores().n == 2
    kept = scores(columns=np.array([[2, 0, REST]]), num_classes=1000, values=np.array([[[0.3, 0.2, 0.001]]]))
    assert kept.columns.tolist() == [[2, 0, REST]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"values": np.array([[[0.7, 0.2, 0.2], [0.5, 0.25, 0.25]]])}, "draw 0"),
        ({"values": np.array([[[0.7, 0.2, 0.1], [0.5, 0.75, -0.25]]])}, "draw 1"),
        ({"values": np.array([[[0.7, 0.2, np.nan], [0.5, 0.25, 0.25]]])}, "finite"),
        ({"values": np.zeros((1, 0, 3))}, "shape"),
        ({"columns": np.array([[0, 1, 1]])}, "columns"),
        ({"columns": np.array([[0, 1, 3]])}, "columns"),
        ({"temperature": 0.0}, "temperature"),
        ({"map": "argmax"}, "map"),
        ({"ids": ("a", "b")}, "ids"),
    ],
)
def test_scores_refuse(change: dict[str, Any], named: str) -> None:
    with pytest.raises(buckler.InvalidInput, match=named):
        scores(**change)


def test_margin_bound_refuses_infinity_and_nan() -> None:
    MarginBound("quantile", -np.inf, 0.01, "bonferroni")
    for low in (np.inf, np.nan):
        with pytest.raises(buckler.InvalidInput, match="low"):
            MarginBound("quantile", low, 0.01, "bonferroni")


def test_a_certificate_cannot_contradict_itself() -> None:
    good = buckler.certify_counts([90, 10], sigma=1.0, label=0)
    for change in ({"predicted": None}, {"radius": 0.0}, {"radius": np.inf}, {"margin": -1.0}, {"radius_kind": "R1"}):
        with pytest.raises(buckler.InvalidInput):
            replace(good, **change)
