"""The certificates of a router and of the classifier that it chose -> that of their composition (T36)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nextafter

from buckler.certificate import Certificate, tie_of


def compose_all(routes: Sequence[Certificate], chosen: Mapping[str, Certificate], alpha: float) -> list[Certificate]:
    """Return the certificate of the composition at each input, of level ``alpha``, in the order of ``routes``.

    ``routes`` are the router's certificates. ``chosen`` holds those of the classifiers that the router chose, each at
    the level ``budget.routed_level(alpha)``, by the ids of the inputs. Inputs that it lacks get an abstention.
    """
    return [
        compose(way, chosen[way.id], alpha)
        if not way.abstained and way.id in chosen
        else replace(way, predicted=None, radius=0.0, margin=min(way.margin, 0.0), alpha=alpha, router=way)
        for way in routes
    ]


def compose(router: Certificate, expert: Certificate, alpha: float) -> Certificate:
    """Return the certificate of a composition, given the router's certificate and the chosen classifier's.

    Its radius is the smaller of both radii, and its margin the one that this radius needs; ``alpha`` is its level.

    >>> from buckler import certify_votes
    >>> near, far = certify_votes([[900, 100], [999, 1]], sigma=0.5, alpha=9e-4)
    >>> one = compose(near, far, 1e-3)
    >>> near.radius - 1e-9 <= one.radius <= near.radius, one.radius < far.radius
    (True, True)
    """
    radius, margin = min(router.radius, expert.radius), expert.margin
    if radius <= 0.0:
        return replace(expert, predicted=None, radius=0.0, margin=min(margin, 0.0), alpha=alpha, router=router)
    if radius < expert.radius:
        noise, kind = expert.noise, expert.margin_kind
        margin = noise.margin(radius, kind)
        if tie_of(expert.method) == "radius":
            while (found := noise.radius(margin, kind)) > radius:
                margin = nextafter(margin, 0.0)
            radius = found
    return replace(expert, radius=radius, margin=margin, alpha=alpha, router=router)
