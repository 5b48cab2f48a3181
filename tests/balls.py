"""Ball arithmetic (python-flint): enclosures that hold, against which floating-point limits are judged."""

from flint import arb, ctx
from scipy.special import ndtri

ctx.prec = 128


def tail_at_least(k: int, n: int, p: float) -> arb:
    """Return an enclosure of P(Binomial(n, p) >= k), 1 <= k <= n."""
    return _regularised_beta(p, k, n - k + 1, flipped=False)


def tail_at_most(k: int, n: int, p: float) -> arb:
    """Return an enclosure of P(Binomial(n, p) <= k), 0 <= k < n."""
    return _regularised_beta(p, n - k, k + 1, flipped=True)


def normal_cdf(z: arb) -> arb:
    """Return an enclosure of Phi(z)."""
    return (1 + (z / arb(2).sqrt()).erf()) / 2


def normal_quantile(p: float) -> arb:
    """Return Phi^-1(p) to far more digits than a float, by Newton's rule from SciPy's value."""
    z = arb(float(ndtri(p)))
    for _ in range(4):
        slope = (-z * z / 2).exp() / (2 * arb.pi()).sqrt()
        z = (z - (normal_cdf(z) - arb(p)) / slope).mid()
    return z


def margin_curve_point(quantile: bool, L: float, t: float) -> tuple[arb, arb, arb]:
    """Return enclosures of the trinomial at parameter t of the curve of margin L (``bounds.trinomial``)."""
    low, at = arb(L), arb(t)
    if quantile:
        q1, q2 = normal_cdf(at + low / 2), normal_cdf(at - low / 2)
    else:
        shared = (1 - abs(low)) * at / 2
        q1, q2 = (low + shared, shared) if L > 0 else (shared, shared - low)
    return q1, q2, 1 - q1 - q2


def _regularised_beta(p: float, a: int, b: int, *, flipped: bool) -> arb:
    old = ctx.prec
    try:
        for bits in (128, 256, 512, 1024, 4096):
            ctx.prec = bits
            value = (1 - arb(p) if flipped else arb(p)).beta_lower(a, b, 1)
            if value.rel_accuracy_bits() > 60:
                return value
    finally:
        ctx.prec = old
    raise ArithmeticError(f"no enclosure of I({a}, {b}) at {p}")
