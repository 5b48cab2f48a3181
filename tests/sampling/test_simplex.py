"""The simplex maps: optimality conditions, a quadratic programme, torch = NumPy, extreme logits."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from buckler.errors import InvalidInput
from buckler.sampling.simplex import softmax, sparsemax, to_simplex
from buckler.types import FloatArray, SimplexMap

LOGITS = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 7)), elements=st.floats(-1e4, 1e4))


@given(LOGITS)
@settings(max_examples=100, deadline=None)
def test_sparsemax_meets_its_optimality_conditions(z: FloatArray) -> None:
    p = sparsemax(z)
    assert (p >= 0.0).all()
    np.testing.assert_allclose(p.sum(-1), 1.0, atol=1e-12)
    # KKT of min ||p - z||^2: z - p is one number tau on the support and at most tau off it.
    gap = z - p
    tau = np.where(p > 0.0, gap, -np.inf).max(-1, keepdims=True)
    scale = 1e-12 * (1.0 + np.abs(z).max())
    assert (np.abs(gap - tau)[p > 0.0] <= scale).all()
    assert (gap <= tau + scale).all()


def test_sparsemax_agrees_with_a_quadratic_programme() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = rng.normal(size=6) * rng.choice([0.1, 1.0, 3.0])
        found = minimize(  # type: ignore[call-overload]
            lambda p, z: 0.5 * np.sum((p - z) ** 2),
            np.full(6, 1 / 6),
            args=(z,),
            jac=lambda p, z: p - z,
            bounds=[(0.0, 1.0)] * 6,
            constraints={"type": "eq", "fun": lambda p, *_: p.sum() - 1.0},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 200},
        )
        np.testing.assert_allclose(sparsemax(z), found.x, atol=1e-6)


@pytest.mark.parametrize("temperature", [1e-4, 0.1, 1.0, 10.0])
def test_softmax_is_stable(temperature: float) -> None:
    rng = np.random.default_rng(1)
    z = rng.uniform(-1e4, 1e4, size=(50, 10))
    p = softmax(z, temperature)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(-1), 1.0, atol=1e-12)
    small = rng.normal(size=(50, 10)) * temperature
    exact = np.exp(small / temperature)
    np.testing.assert_allclose(softmax(small + 1e4, temperature), exact / exact.sum(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(softmax(small, temperature), exact / exact.sum(-1, keepdims=True), rtol=1e-12)


@given(LOGITS, st.sampled_from(["softmax", "sparsemax"]), st.sampled_from([None, 1e-4, 0.5, 10.0]))
@settings(max_examples=60, deadline=None)
def test_torch_equals_numpy(z: FloatArray, name: SimplexMap, temperature: float | None) -> None:
    if name != "softmax":
        temperature = None
    ours = to_simplex(z, name, temperature)
    theirs = to_simplex(torch.from_numpy(z), name, temperature)
    np.testing.assert_allclose(theirs.numpy(), ours, atol=1e-12)


@given(LOGITS, st.floats(-100.0, 100.0))
@settings(max_examples=40, deadline=None)
def test_a_common_shift_changes_nothing(z: FloatArray, shift: float) -> None:
    np.testing.assert_allclose(sparsemax(z + shift), sparsemax(z), atol=1e-10)
    np.testing.assert_allclose(softmax(z + shift, 1.0), softmax(z, 1.0), atol=1e-10)


def test_types_and_shapes_are_kept() -> None:
    z = np.zeros((2, 3, 4), dtype=np.float32)
    names: tuple[SimplexMap, ...] = ("softmax", "sparsemax")
    for name in names:
        assert to_simplex(z, name).dtype == np.float32
        assert to_simplex(z, name).shape == z.shape
        half = to_simplex(torch.zeros(2, 4, dtype=torch.float32), name)
        assert half.dtype == torch.float32
    assert softmax(np.array([[1, 2]])).dtype == np.float64


def test_torch_is_not_imported() -> None:
    code = "import sys, buckler.sampling.simplex as s; s.softmax([[0.0, 1.0]]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf, "hot"])
def test_bad_temperature_is_refused(temperature: float) -> None:
    with pytest.raises(InvalidInput, match="temperature"):
        softmax(np.zeros(3), temperature)


def test_bad_logits_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2 classes"):
        softmax(np.zeros((3, 1)))
    with pytest.raises(InvalidInput, match="NaN"):
        sparsemax(np.array([0.0, np.nan]))
    with pytest.raises(InvalidInput, match="numbers"):
        softmax(np.array(["a", "b"]))
    with pytest.raises(InvalidInput, match="map"):
        to_simplex(np.zeros(3), "argmax")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="temperature"):
        to_simplex(np.zeros(3), "sparsemax", 1.0)
