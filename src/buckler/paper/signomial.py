"""Signomial programmes as objects, and two general-purpose ways to attack one (the paper, first appendix).

A *monomial* is ``c x_1^a_1 ... x_v^a_v`` with c > 0; a *posynomial* is a sum of monomials; a *signomial* is a linear
combination of them. A programme minimises a signomial subject to ``f_i(x) >= 0`` and x > 0.

A programme is not convex, and SciPy's solver is a local one. ``solve`` (the paper's SolveSignomial) starts it from
many points, ``fast_solve`` (FastSolveSignomial) from one. Either value is attained at a feasible
point, hence is an *upper* bound of the infimum; neither is a proof of a lower one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from buckler.errors import InvalidInput
from buckler.types import FloatArray

SMALLEST = 1e-10
"""Variables are positive; this is where the closed end of their range is put."""
FEASIBLE = 1e-7
"""How far a constraint may be broken by a point whose value is believed."""


@dataclass(frozen=True, slots=True)
class Monomial:
    """``coefficient * prod_v x_v ** exponents[v]``."""

    coefficient: float
    exponents: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.coefficient > 0.0:
            raise InvalidInput(f"coefficient of a monomial must be above 0; got {self.coefficient}")


@dataclass(frozen=True, eq=False)
class Signomial:
    """``sum_k signs[k] exp(logs[k]) prod_v x_v ** exponents[k, v]``: logarithms, since 1000! is not a float."""

    signs: FloatArray
    logs: FloatArray
    exponents: FloatArray

    @classmethod
    def of(cls, terms: Iterable[tuple[int, Monomial]]) -> "Signomial":
        """Return the combination of monomials with signs +1 or -1."""
        signs, monomials = zip(*terms, strict=True)
        return cls(
            np.array(signs, dtype=np.float64),
            np.log([m.coefficient for m in monomials]),
            np.array([m.exponents for m in monomials], dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.logs)

    def _terms(self, x: FloatArray) -> FloatArray:
        return self.signs * np.exp(self.logs + self.exponents @ np.log(np.maximum(x, SMALLEST)))

    def value(self, x: FloatArray) -> float:
        """Return the signomial at a point with positive coordinates."""
        return float(self._terms(x).sum())

    def gradient(self, x: FloatArray) -> FloatArray:
        """Return the partial derivatives: each monomial's exponent over the variable, times the monomial."""
        return np.asarray(self._terms(x) @ self.exponents / np.maximum(x, SMALLEST), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """``signomial >= 0``, or ``= 0``, which stands for the two inequalities ``f >= 0`` and ``-f >= 0``."""

    signomial: Signomial
    equality: bool = False

    def excess(self, x: FloatArray) -> float:
        """Return by how much the constraint is broken at x, 0 where it holds."""
        value = self.signomial.value(x)
        return abs(value) if self.equality else max(0.0, -value)


@dataclass(frozen=True, slots=True, eq=False)
class SignomialProgram:
    """Minimise ``objective`` over positive variables of at most one, subject to ``constraints``."""

    objective: Signomial
    constraints: tuple[Constraint, ...]

    def feasible(self, x: FloatArray) -> bool:
        """Whether x keeps every constraint, up to what a solver leaves."""
        return all(constraint.excess(x) <= FEASIBLE for constraint in self.constraints)

    def fast_solve(self, start: FloatArray, steps: int = 20) -> float:
        """Return FastSolveSignomial: the value that one local search finds from ``start``.

        A search that ends outside of the feasible set has found nothing: 1, the largest value of a probability.
        """
        found = minimize(
            self.objective.value,
            np.clip(start, SMALLEST, 1.0),
            jac=self.objective.gradient,
            method="SLSQP",
            bounds=[(SMALLEST, 1.0)] * len(start),
            constraints=[
                {"type": "eq" if c.equality else "ineq", "fun": c.signomial.value, "jac": c.signomial.gradient}
                for c in self.constraints
            ],
            options={"maxiter": steps, "ftol": 1e-14},
        )
        return min(float(found.fun), 1.0) if self.feasible(found.x) else 1.0

    def solve(self, starts: Sequence[FloatArray]) -> float:
        """Return SolveSignomial: the smallest value over local searches from each of ``starts``."""
        return min(self.fast_solve(start, steps=200) for start in starts)
