"""A classifier for each noise level, and a smoothed router that picks the level for each input.

``Routed(router, {sigma: model, ...})`` is one classifier, the composition: the router chooses a level, and that level's
smoothed classifier predicts. Its certificates rest on two facts: the router's choice does not change within the
router's certified radius, nor the chosen classifier's prediction within its own; so the composition's prediction does
not within the smaller of both (T36). ``refute`` looks for points at which it does change.
"""

from __future__ import annotations  # so that help() shows ArrayLike, and not what it stands for

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from buckler.certificate import Certificate, Refutation
from buckler.certificates import Certificates, as_labels
from buckler.certify import budget
from buckler.certify.composition import compose_all
from buckler.errors import BucklerWarning, InvalidInput, check_positive, check_whole, show
from buckler.sampling.engine import Engine
from buckler.sampling.preprocess import as_floats
from buckler.sampling.streams import input_ids
from buckler.session import Inputs, Session, Sink, Step
from buckler.smoothed import Smoothed
from buckler.types import AnyArray, ArrayLike, Batches, FloatArray, Label

if TYPE_CHECKING:
    from buckler.evaluate.attacks import Attack


class Routed:
    """Classifiers for several noise levels, ``experts``, and a smoothed ``router`` that chooses one for each input.

    ``router`` is a ``Smoothed`` classifier under Gaussian noise, one level for all inputs, whose class k stands for the
    k-th smallest sigma of ``experts``. ``experts`` maps each sigma to the model that is smoothed with it. The
    composition of router and chosen classifier is certified; it abstains where the router abstains, since a default
    level would have no certificate.

    >>> import numpy as np
    >>> def large(batch):  # class 1 where the second value is above 0
    ...     return np.stack([0 * batch[:, 1], batch[:, 1]], axis=1)
    >>> def far(batch):  # level 1 where the first value is above 0
    ...     return np.stack([0 * batch[:, 0], batch[:, 0]], axis=1)
    >>> routed = Routed(Smoothed(far, sigma=0.5, num_classes=2), {0.25: large, 1.0: large}, num_classes=2)
    >>> made = routed.certify([[3.0, 2.0], [-3.0, 0.4]], n=1000)
    >>> made.predicted, made.radii.round(2), [one.sigma for one in made]
    (array([1, 1]), array([1.23, 0.35]), [1.0, 0.25])
    """

    def __init__(self, router: Smoothed, experts: Mapping[float, Any], num_classes: int | None = None) -> None:
        if not isinstance(router, Smoothed) or (router.noise.name, router.noise.norm) != ("gaussian", "l2"):
            raise InvalidInput(f"router must be buckler.Smoothed under Gaussian noise; got {show(router)}")
        if len(experts) < 2:
            raise InvalidInput(f"experts must be at least two models by their sigma; got {len(experts)}")
        self.sigmas = tuple(sorted(check_positive("a sigma of experts", sigma) for sigma in experts))
        if router.classifier.num_classes != len(self.sigmas):
            raise InvalidInput(
                f"router must have one class for each of {len(self.sigmas)} sigmas; it has "
                f"{router.classifier.num_classes}"
            )
        self.router = router
        self.experts = tuple(
            Smoothed(experts[sigma], sigma, num_classes, value_range=router.value_range) for sigma in self.sigmas
        )
        classes = {tuple(one.classifier.classes or [one.classifier.num_classes]) for one in self.experts}
        if len(classes) > 1:
            raise InvalidInput(f"experts must have the same classes; got {show(sorted(map(str, classes)))}")

    def __repr__(self) -> str:
        return f"Routed({self.router!r}, sigmas {', '.join(f'{sigma:g}' for sigma in self.sigmas)})"

    def certify(
        self,
        x: Batches,
        *,
        n: int = 1000,
        router_n: int | None = None,
        alpha: float = 1e-3,
        seed: int | None = 0,
        labels: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
    ) -> Certificates:
        """Return the certificates of inputs ``x[inputs, ...]``, for the composition of router and chosen classifier.

        **Guarantee.** Over the noise, each certificate is wrong with probability at most ``alpha``: it is an
        abstention, or the composition of router and chosen classifier predicts its class everywhere in the open l2 ball
        of its ``radius`` (T36). Other arguments are those of ``Smoothed.certify``.

        ``router_n`` draws (``n`` if None) choose the level of each input, and ``n`` draws certify its class there.
        """
        level = budget.routed_level(alpha)
        draws = n if router_n is None else router_n
        return self._composed(
            x, alpha, labels, ids,
            lambda points, names: self.router.certify(points, n=draws, alpha=level, seed=seed, ids=names),
            lambda expert, points, names, classes: expert.certify(
                points, n=n, alpha=level, seed=seed, ids=names, labels=classes
            ),
        )  # fmt: skip

    def certify_until(
        self,
        x: Batches,
        *,
        radii: ArrayLike,
        max_n: int = 100_000,
        alpha: float = 1e-3,
        seed: int | None = 0,
        labels: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
    ) -> Certificates:
        """Return the certificates of inputs ``x[inputs, ...]``, drawing until rising ``radii`` are decided for each.

        **Guarantee.** That of ``certify``, whenever drawing stops: a radius is certified where both the router's ladder
        and the chosen classifier's certify it (T36). Each draws at most ``max_n`` times.

        Decided means certified or given up, as in ``Smoothed.certify_until``, whose arguments the others are.
        """
        level = budget.routed_level(alpha)

        def decided(
            expert: Smoothed, points: AnyArray, names: Sequence[str], classes: ArrayLike | None
        ) -> Certificates:
            with warnings.catch_warnings():  # a small level is not meant for the largest radii
                warnings.filterwarnings("ignore", "max_n = ", BucklerWarning)
                return expert.certify_until(
                    points, radii=radii, max_n=max_n, alpha=level, seed=seed, ids=names, labels=classes
                )

        return self._composed(
            x, alpha, labels, ids,
            lambda points, names: self.router.certify_until(
                points, radii=radii, max_n=max_n, alpha=level, seed=seed, ids=names
            ),
            decided,
        )  # fmt: skip

    def predict(
        self,
        x: Batches,
        *,
        n: int = 1000,
        alpha: float = 1e-3,
        seed: int | None = None,
        ids: Sequence[str] | None = None,
    ) -> AnyArray:
        """Return the class that the composition predicts at each input ``x[inputs, ...]``, -1 if it abstains.

        **Guarantee.** Over the noise, for each input, another class is returned with probability at most ``alpha``;
        router and chosen classifier have half of it each.

        ``n`` draws choose the level of an input, and ``n`` draws its class there. Where the models' classes are texts,
        an abstention is None. Other arguments are those of ``Smoothed.predict``.
        """
        points, names = self._inputs(x, ids)
        share = budget.split_alpha(alpha, 2)
        chosen = self.router.predict(points, n=n, alpha=share, seed=seed, ids=names)
        found: list[Label | None] = [None] * len(points)
        for k, expert in enumerate(self.experts):
            rows = np.flatnonzero(chosen == k)
            if rows.size:
                made = expert.predict(points[rows], n=n, alpha=share, seed=seed, ids=[names[i] for i in rows.tolist()])
                for row, label in zip(rows.tolist(), made.tolist(), strict=True):
                    found[row] = None if label in {None, -1} else label
        return as_labels(found)

    def refute(
        self,
        x: Batches,
        certificates: Sequence[Certificate] | None = None,
        *,
        labels: ArrayLike | None = None,
        max_radius: float | None = None,
        within: float | None = None,
        alpha: float = 1e-3,
        max_n: int | None = None,
        attack: Attack | None = None,
        seed: int | None = 0,
        ids: Sequence[str] | None = None,
    ) -> list[Refutation]:
        """Return, for each input ``x[inputs, ...]``, a near point at which the composition predicts another class.

        **Guarantee.** Over the draws that judge it, which the search has not seen, each refutation is false with
        probability at most ``alpha`` (T36a): it shows the level that the router chooses at the point, and that this
        level's classifier prefers another class there.

        The search around each input attacks one level's classifier: that of its certificate, or without one that of the
        level which the router chooses at the input. Arguments are those of ``Smoothed.refute``; router and experts must
        be torch modules.
        """
        if (certificates is None) == (labels is None):
            raise InvalidInput("exactly one of certificates and labels must be given")
        if self.router.scores is not None:
            raise InvalidInput(f"router must count votes to be refuted; got {self.router!r}")
        if self.router.classifier.backend != "torch":
            raise InvalidInput(f"router must be a torch module to be refuted; got {self.router!r}")
        points, names = self._inputs(x, ids)
        given = np.asarray(labels) if certificates is None else np.arange(len(certificates))
        if given.shape != (len(points),):
            what = "labels" if certificates is None else "certificates"
            raise InvalidInput(f"{what} must be one for each of {len(points)} inputs; got shape {given.shape}")
        if certificates is None:
            chosen = np.maximum(self.router.predict(points, alpha=0.5, seed=seed, ids=names, progress=False), 0)
        else:
            chosen = np.array([self._level(one) for one in certificates])
        levels: dict[str, int] = {}
        made: list[Refutation | None] = [None] * len(points)
        for k in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == k)
            claims: dict[str, Any] = {"labels": given[rows]}
            if certificates is not None:
                claims = {"certificates": [certificates[i] for i in rows.tolist()]}
            found = _Searched(self, k, levels).refute(
                points[rows], **claims, max_radius=max_radius, within=within, alpha=alpha, max_n=max_n, attack=attack,
                seed=seed, ids=[names[i] for i in rows.tolist()],
            )  # fmt: skip
            if len(found) < rows.size:
                raise KeyboardInterrupt
            for row, one in zip(rows.tolist(), found, strict=True):
                noise = self.experts[levels.get(one.id, k)].noise
                made[row] = replace(one, noise=noise, router=self.router.noise)
        return [one for one in made if one is not None]

    def _level(self, certificate: Certificate) -> int:
        """Return the level of a certificate; that of an abstention may be any, since it is refused later."""
        if certificate.router is None or (certificate.predicted is not None and certificate.sigma not in self.sigmas):
            raise InvalidInput(f"certificate {certificate.id!r} must be of this composition; got {certificate}")
        return self.sigmas.index(certificate.sigma) if certificate.sigma in self.sigmas else 0

    def _inputs(self, x: Batches, ids: Sequence[str] | None) -> tuple[AnyArray, Sequence[str]]:
        points = as_floats("x", x, self.router.value_range, self.router.noise)
        return points, input_ids(ids, points)

    def _composed(
        self,
        x: Batches,
        alpha: float,
        labels: ArrayLike | None,
        ids: Sequence[str] | None,
        route: Callable[[AnyArray, Sequence[str]], Certificates],
        certify: Callable[[Smoothed, AnyArray, Sequence[str], ArrayLike | None], Certificates],
    ) -> Certificates:
        points, names = self._inputs(x, ids)
        classes = None if labels is None else np.asarray(labels)
        if classes is not None and classes.shape != (len(points),):
            raise InvalidInput(f"labels must be one class for each of {len(points)} inputs; got shape {classes.shape}")
        routes = route(points, names)
        if len(routes) < len(points):
            raise KeyboardInterrupt
        made: dict[str, Certificate] = {}
        for k, expert in enumerate(self.experts):
            rows = np.flatnonzero(routes.predicted == k)
            if rows.size:
                given = None if classes is None else classes[rows]
                found = certify(expert, points[rows], [names[i] for i in rows.tolist()], given)
                if len(found) < rows.size:
                    raise KeyboardInterrupt
                made |= {one.id: one for one in found}
        done = compose_all(routes, made, alpha)
        first = self.experts[0].classifier
        return Certificates.of(done, classes=first.classes or range(check_whole("num_classes", first.num_classes, 2)))


class _Searched(Smoothed):
    """One expert, whose points must refute the composition; fills ``levels`` with the level of each input."""

    def __init__(self, routed: Routed, level: int, levels: dict[str, int]) -> None:
        own = routed.experts[level]
        super().__init__(own.classifier, noise=own.noise, value_range=own.value_range, batch_size=own.batch_size)
        self._parts, self._level, self._levels = (routed.router, *routed.experts), level, levels

    def _open(
        self, x: Batches, labels: ArrayLike | None, ids: Sequence[str] | None, seed: int | None
    ) -> tuple[Inputs, Session]:
        inputs, session = super()._open(x, labels, ids, seed)
        engines = [
            Engine(one.classifier, noise=one.noise, seed=session.engine.seed, batch_size=one.batch_size)
            for one in self._parts
        ]
        return inputs, _Composed(engines, self._level, self._levels)


class _Composed(Session):
    """Session whose engines are those of a router and its experts; it attacks one of the experts."""

    def __init__(self, engines: Sequence[Engine], level: int, levels: dict[str, int]) -> None:
        super().__init__(engines[1 + level])
        self._engines, self._level, self._levels = engines, level, levels

    def refute(self, inputs: Inputs, refuting: Any, start: FloatArray, sink: Sink) -> Iterator[Step]:
        with ExitStack() as ready:
            for engine in self._engines:
                if engine is not self.engine:
                    ready.enter_context(engine.session())
            yield from super().refute(inputs, refuting, start, sink)

    def attacked(self, ids: Sequence[str]) -> Any:
        from buckler.evaluate.refutations import Composition
        from buckler.sampling.modules import Gradients  # torch

        router, *experts = (Gradients(engine, ids) for engine in self._engines)
        return Composition(router, experts, self._level, self._levels)
