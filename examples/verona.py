"""Randomized smoothing inside of VERONA (``ada-verona``): a verification module, and an estimator of epsilon.

    module = SmoothedModule(sigma=0.25, num_classes=10)
    estimator = BinarySearchEpsilonValueEstimator(epsilon_value_list=[0.005, 0.01, 0.02], verifier=module)
    estimator = SmoothedEstimator(epsilon_value_list=[0.005, 0.01, 0.02], verifier=module)  # fewer draws

What is verified is the *smoothed* classifier of the context's network, not the network itself, so results stand beside
those of exact verifiers as another model's. Properties there are boxes ``x +- epsilon``; a box lies in the l2 ball of
radius ``epsilon sqrt(d)``, which is certified. With ``norm="l2"`` epsilon is an l2 radius.

Answers are UNSAT (no other class within epsilon, certified), SAT (a point within epsilon has another class, shown on
fresh draws) and TIMEOUT (neither could be shown with so many draws).

Version 1.0.3 of ada-verona asks for Python 3.10 and this package for 3.11 or later, so pip installs both only with
``--ignore-requires-python``.
"""

import time
from typing import Any, Literal

import numpy as np
import torch
from ada_verona import (
    EpsilonStatus,
    EpsilonValueEstimator,
    EpsilonValueResult,
    One2AnyPropertyGenerator,
    VerificationModule,
    VerificationResult,
)
from ada_verona.database.verification_result import CompleteVerificationData
from torch import Tensor, nn

import buckler

ROUNDED = 1.0 + 1e-12
"""Radii asked for are larger by this, so that the open ball of a certificate holds the whole box."""


class Batched(nn.Module):
    """The context's network for batches: what VERONA loads reshapes everything to the shape of one input."""

    def __init__(self, network: Any) -> None:
        """Load the network, whose input shape begins with the size of a batch, 1 or -1."""
        super().__init__()
        rows, *shape = (int(size) for size in network.get_input_shape())
        if rows not in {1, -1}:
            raise ValueError(f"the network's input shape must begin with a batch of 1 or -1; got {[rows, *shape]}")
        loaded = network.load_pytorch_model()
        self.network, self.shape = getattr(loaded, "torch_model", loaded), tuple(shape)

    def forward(self, batch: Tensor) -> Tensor:
        """Return a row of logits for each row of the batch."""
        logits: Tensor = self.network(batch.reshape(len(batch), *self.shape))
        return logits


class SmoothedModule(VerificationModule):  # type: ignore[misc]
    """Verifies that the smoothed classifier gives the label of a data point everywhere within epsilon.

    **Guarantee.** Over the noise, for each context, UNSAT is false for some epsilon with probability at most ``alpha``,
    and SAT likewise: all answers are read off one certificate of ``n`` draws and one refutation.
    """

    def __init__(
        self,
        sigma: float,
        num_classes: int,
        *,
        norm: Literal["linf", "l2"] = "linf",
        n: int = 10_000,
        alpha: float = 1e-3,
        seed: int = 0,
        refute: bool = True,
        batch_size: int = 256,
    ) -> None:
        """Hold the settings; ``refute=False`` does not search, so that no answer is SAT."""
        if norm not in {"linf", "l2"}:
            raise ValueError(f"norm must be 'linf' or 'l2'; got {norm!r}")
        self.sigma, self.num_classes, self.norm, self.n, self.alpha = sigma, num_classes, norm, n, alpha
        self.seed, self.refute, self.batch_size = seed, refute, batch_size
        self.name = f"Smoothed (sigma={sigma:g}, n={n}, alpha={alpha:g}, {norm})"
        self._known: tuple[Any, float, tuple[float, int] | None] | None = None

    def verify(self, verification_context: Any, epsilon: float) -> Any:
        """Return whether the label holds within epsilon; the first call for a context draws for all of them."""
        start = time.perf_counter()
        if self._known is None or self._known[0] is not verification_context:
            smoothed, x, label = self.smoothed(verification_context)
            made = smoothed.certify(x, n=self.n, alpha=self.alpha, seed=self.seed, labels=label, progress=False)
            self._known = verification_context, float(made.radii[0]), self.refuted(smoothed, x, label)
        _, radius, other = self._known
        return self.answer(epsilon, self.reach(verification_context, epsilon) <= radius, other, start)

    def smoothed(self, context: Any) -> tuple[buckler.Smoothed, np.ndarray[Any, Any], list[int]]:
        """Return the smoothed classifier of a context's network, its input and label with a batch axis."""
        asked = context.property_generator
        if not isinstance(asked, One2AnyPropertyGenerator):
            raise NotImplementedError(f"the property must be one against any other class; got {type(asked).__name__}")
        model = Batched(context.network)
        found = buckler.Smoothed(
            model, self.sigma, self.num_classes, value_range=(asked.data_lb, asked.data_ub), batch_size=self.batch_size
        )
        x = context.data_point.data.detach().cpu().numpy().astype(np.float32).reshape(1, *model.shape)
        return found, x, [int(context.data_point.label)]

    def reach(self, context: Any, epsilon: float) -> float:
        """Return an l2 radius whose open ball holds all points within epsilon."""
        values = context.data_point.data.numel() if self.norm == "linf" else 1
        return max(epsilon * float(np.sqrt(values)) * ROUNDED, 1e-6 * self.sigma)

    def refuted(
        self, smoothed: buckler.Smoothed, x: np.ndarray[Any, Any], label: list[int]
    ) -> tuple[float, int] | None:
        """Return how far away a point has another class, and which; None if none was found."""
        if not self.refute:
            return None
        made = smoothed.refute(x, labels=label, alpha=self.alpha, seed=self.seed, progress=False)[0]
        if made.point is None or made.radius is None or made.rival is None:
            return None
        farthest = float(np.abs(made.point.astype(np.float64) - x[0]).max())
        return (farthest if self.norm == "linf" else made.radius), made.rival

    @staticmethod
    def answer(epsilon: float, certified: bool, other: tuple[float, int] | None, start: float) -> Any:
        """Return a result in VERONA's words."""
        result, labels = VerificationResult.TIMEOUT, None
        if certified:
            result = VerificationResult.UNSAT
        elif other is not None and other[0] <= epsilon:
            result, labels = VerificationResult.SAT, torch.tensor([[other[1]]])
        return CompleteVerificationData(result=result, took=time.perf_counter() - start, obtained_labels=labels)


class SmoothedEstimator(EpsilonValueEstimator):  # type: ignore[misc]
    """Estimates the critical epsilon by drawing until each epsilon of the list is certified or given up.

    **Guarantee.** Over the noise, the epsilon that comes back, if above 0, is too large with probability at most the
    module's ``alpha``, and the smallest that is SAT is too small with at most as much. At most the module's ``n`` draws
    are certified from.
    """

    def compute_epsilon_value(self, verification_context: Any) -> Any:
        """Return the largest certified epsilon (0 if none) and the smallest refuted one ('undefined' if none)."""
        start = time.perf_counter()
        verifier: SmoothedModule = self.verifier
        smoothed, x, label = verifier.smoothed(verification_context)
        asked = {epsilon: verifier.reach(verification_context, epsilon) for epsilon in sorted(self.epsilon_value_list)}
        made = smoothed.certify_until(
            x,
            radii=sorted(set(asked.values())),
            max_n=verifier.n,
            alpha=verifier.alpha,
            seed=verifier.seed,
            labels=label,
            progress=False,
        )
        other = verifier.refuted(smoothed, x, label)
        by_result: dict[Any, list[float]] = {}
        for epsilon, reach in asked.items():
            status = EpsilonStatus(epsilon, None, None, verifier.name)
            status.set_values(verifier.answer(epsilon, bool(reach <= made.radii[0]), other, start))
            verification_context.save_result(status)
            by_result.setdefault(status.result, []).append(epsilon)
        return EpsilonValueResult(
            verification_context,
            max(by_result.get(VerificationResult.UNSAT, [0])),
            min(by_result.get(VerificationResult.SAT, ["undefined"])),
            time.perf_counter() - start,
            verifier.name,
        )
