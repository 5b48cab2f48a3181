"""Sample until decided: certify a target radius fixed beforehand, at whatever time the evidence suffices.

One test for one input. The engine asks ``batch_size``, draws that many noisy copies, hands their votes to ``update``
and goes on while the answer is "undecided". Three quarters of alpha belong to the any-time e-values; the last quarter
is kept for an exam at draw ``max_n``, a fixed-n test that sees the images which no any-time test can tell from the
threshold in that many draws.
"""

from math import ceil, copysign, inf, log, sqrt

import numpy as np
from scipy.special import betainc, ndtr, ndtri, rel_entr

from buckler.bounds.binomial import clopper_pearson_lower
from buckler.bounds.evalues import kl_to_null, kl_to_target, tangent_mixture
from buckler.certify import budget
from buckler.certify.issue import issue_target
from buckler.errors import InvalidInput, check_alpha, check_label, check_positive, check_whole, check_whole_array
from buckler.laws import Gaussian
from buckler.records import Certificate
from buckler.types import Decision, FloatArray, IntArray

FIRST_BATCH = 16
"""Clear failures, the commonest, are known after these."""

SMALLEST_BATCH = 4
FINEST = 16
COARSEST = 2
"""Later batches lie between a sixteenth and a half of the draws so far, near to what certifying still takes."""

PATIENCE = 3.0
"""Standard errors by which the estimate must miss what the remaining draws could certify before giving up."""

SHARES = 4
"""Alpha is cut into this many: one for the exam, the others for the e-values."""


class AnytimeTest:
    """Whether class ``label`` has a quantile margin above ``2 target_radius / sigma``, decided as draws come in.

    **Guarantee.** If the smoothed prediction is not constantly ``label`` on the open l2 ball of ``target_radius``, the
    probability that the decision is *ever* "certified" is at most alpha: any-time, for independent draws in the order
    they were made, with label, target, sigma and alpha fixed beforehand. Batches of any size keep it, as does giving
    up at any moment for any reason.

    Every other class j keeps the running maximum of its own e-value from the first draw; "certified" needs all of
    them to have reached ``1/(3 alpha/4)``, or, at draw ``max_n`` alone, the Clopper-Pearson limit of the label's
    probability at level ``alpha/4`` to exceed ``Phi(target_radius / sigma)``. The class j* of the smallest margin is
    fixed and unknown; if its margin is at most the target's, its e-value ever reaches the level with probability at
    most ``3 alpha/4``, and the label's probability is at most ``Phi(target_radius / sigma)``, which the limit passes
    with probability at most ``alpha/4``. There is no division over classes.

    >>> test = AnytimeTest(label=0, num_classes=10, sigma=0.5, target_radius=0.5, alpha=1e-3, max_n=100_000)
    >>> while test.decision == "undecided":
    ...     votes = np.zeros(10, dtype=np.int64)
    ...     votes[0] = test.batch_size()
    ...     decision = test.update(votes)
    >>> decision, test.n
    ('certified', 52)
    """

    def __init__(
        self, label: int, num_classes: int, sigma: float, target_radius: float, alpha: float, max_n: int
    ) -> None:
        """Fix everything that must not depend on the draws."""
        self._num_classes = check_whole("num_classes", num_classes, 2)
        self._label = int(check_label(label, self._num_classes, None))
        self._law = Gaussian(sigma)
        self._radius = check_positive("target_radius", target_radius)
        self._alpha = check_alpha(alpha)
        self._max_n = check_whole("max_n", max_n, 1)
        self._margin = self._law.margin(self._radius, "R2")
        self._exam_alpha = budget.split(self._alpha, SHARES)
        self._needed = -log((SHARES - 1) * self._exam_alpha) * (1.0 + 1e-14) + 1e-14
        self._threshold = min(1.0, float(ndtr(0.5 * self._margin)) * (1.0 + 1e-14))
        self._mixture = tangent_mixture(self._margin)
        # At absurd targets not even votes for the label add to the wealth, once rounded down.
        self._fastest = max(float(self._mixture.logs[:, 0].max()), 1e-300)
        self._votes: IntArray = np.zeros(self._num_classes, dtype=np.int64)
        self._best: FloatArray = np.zeros(self._num_classes)
        self._best[self._label] = inf
        self._lacking = self._needed
        self._n = 0
        self._decision: Decision = "undecided"

    @property
    def n(self) -> int:
        """Draws used so far."""
        return self._n

    @property
    def decision(self) -> Decision:
        """The answer so far: "certified" and "hopeless" are final."""
        return self._decision

    def batch_size(self) -> int:
        """Return how many draws to make next: 0 once decided, never beyond ``max_n``."""
        if self._decision != "undecided":
            return 0
        # No run of votes for the label can certify with fewer draws than this.
        least = ceil(self._lacking / self._fastest)
        low = max(SMALLEST_BATCH, ceil(self._n / FINEST))
        high = max(FIRST_BATCH, self._n // COARSEST)
        return min(max(low, min(least, high)), self._max_n - self._n)

    def update(self, counts: IntArray) -> Decision:
        """Add the votes ``counts[num_classes]`` of the next draws, all of them, and return the decision."""
        votes = check_whole_array("counts", counts)
        if votes.shape != (self._num_classes,) or votes.sum() == 0:
            raise InvalidInput(
                f"counts must be one vote count for each of the {self._num_classes} classes and hold at least one "
                f"draw; got shape {votes.shape} and {int(votes.sum())} draws"
            )
        if self._decision != "undecided":
            raise InvalidInput(f"counts must come before the decision; the test is {self._decision}")
        if self._n + votes.sum() > self._max_n:
            raise InvalidInput(f"counts must stay within max_n = {self._max_n} draws; got {self._n + int(votes.sum())}")
        self._votes = self._votes + votes
        self._n += int(votes.sum())
        open_ = self._best < self._needed
        rivals, where = np.unique(self._votes[open_], return_inverse=True)
        wealth = self._mixture.log_wealth(self._votes[self._label], rivals, self._n)
        self._best[open_] = np.maximum(self._best[open_], wealth[where])
        self._lacking = self._needed - float(wealth[-1])
        if (self._best >= self._needed).all() or (self._n == self._max_n and self._passes_exam()):
            self._decision = "certified"
        elif self._n == self._max_n or (self._exam_out_of_reach() and self._out_of_reach()):
            self._decision = "hopeless"
        return self._decision

    def _passes_exam(self) -> bool:
        limit = clopper_pearson_lower(self._votes[self._label], self._max_n, self._exam_alpha)
        return float(limit) > self._threshold

    def _out_of_reach(self) -> bool:
        """Whether the e-values look unable to certify; a wrong answer costs a certificate, never its validity.

        Distances from the null are signed roots of twice the divergence, in standard errors of one draw. What is
        lacking in wealth needs a distance of ``sqrt(2 lacking / draws left)``: give up when the estimate falls short
        of it by ``PATIENCE`` standard errors. Of the classes still open, the one with most votes is the hardest.
        """
        left = self._max_n - self._n
        if self._lacking > left * self._fastest:
            return True
        top = int(self._votes[self._label])
        rival = int(self._votes[self._best < self._needed].max())
        p = np.array([top, rival, self._n - top - rival]) / self._n
        patience = PATIENCE / sqrt(self._n)
        wanted = sqrt(2.0 * max(self._lacking, 0.0) / left)
        short = float(kl_to_target(p, self._margin))
        if short > 0.0:
            return wanted + sqrt(2.0 * short) > patience
        if wanted <= patience:
            return False
        return wanted - sqrt(2.0 * float(kl_to_null(p, self._margin))) > patience

    def _exam_out_of_reach(self) -> bool:
        """Whether the exam looks lost: even draws better than the estimate by ``PATIENCE`` errors would not pass it."""
        top, least, left = int(self._votes[self._label]), self._threshold, self._max_n - self._n
        if betainc(top + left, self._n - top + 1, least) > self._exam_alpha:
            return True
        p = top / self._n
        distance = copysign(sqrt(2.0 * float(rel_entr(p, least) + rel_entr(1.0 - p, 1.0 - least))), p - least)
        wanted = -float(ndtri(self._exam_alpha)) / sqrt(self._max_n)
        return (wanted - distance) * self._max_n > left * PATIENCE / sqrt(self._n)

    def certificate(self, id: str, n0: int = 0) -> Certificate:  # noqa: A002
        """Return the certificate of the target radius, or an abstention if it is not certified.

        ``n0`` is the size of the separate selection sample that chose the label; 0 if it was given.
        """
        return issue_target(
            self._law,
            self._radius,
            id=id,
            label=self._label if self._decision == "certified" else None,
            alpha=self._alpha,
            n=check_whole("the number of draws", self._n, 1),
            n0=check_whole("n0", n0, 0),
        )
