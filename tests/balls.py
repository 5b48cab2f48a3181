"""Ball arithmetic (python-flint): enclosures that hold, against which floating-point limits are judged."""

from flint import arb, ctx

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
