"""Whether a constant is zero, by a separation bound.

- Constants made of integers, arithmetic and roots: by the separation bound of Burnikel, Funke,
  Mehlhorn, Schirra and Schmitt (BFMSS, 2001): a difference smaller than the bound is zero.
- Other constants (pi, logarithms, angles): their difference is smaller than any that its sizes
  could make, by a hundred digits.
"""

from __future__ import annotations

import math
from typing import Any

import sympy

__all__ = [
    "FAILS",
    "GUARD_BITS",
    "MAX_PROOF_BITS",
    "NO_NUMBER",
    "evaluated",
    "is_zero",
    "separation_bits",
]

MAX_PROOF_BITS = 24_000
GUARD_BITS = 330
NO_NUMBER = (sympy.oo, -sympy.oo, sympy.nan, sympy.zoo)
FAILS = (
    ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError
)  # fmt: skip
"""What SymPy raises on the way of what it cannot do."""


def is_zero(constant: Any) -> bool:
    """Whether a constant is zero: exactly, or by its separation bound."""
    if constant.is_Rational:
        return bool(constant == 0)
    bits = separation_bits(constant)
    if bits > MAX_PROOF_BITS:
        return bool(sympy.expand(constant) == 0)
    rough = evaluated(constant, 64)
    if rough is None or abs(rough) > sympy.Float(2) ** -40:
        return False
    value = evaluated(constant, bits + 64)
    return value is not None and bool(abs(value) < sympy.Float(2, precision=30) ** -bits)


def separation_bits(constant: Any) -> int:
    """A constant is zero, or its absolute value is at least two to the minus these bits.

    Proven for integers, arithmetic, roots and ``i`` (BFMSS, with one factor of the degree for every
    different root); for other functions four times what their sizes could make, and a hundred
    digits.
    """
    roots: dict[Any, int] = {}
    above, below = _sizes(constant, roots)
    if roots.pop(None, None) is None:
        return math.ceil((math.prod(roots.values()) - 1) * above + below + 1)
    bits = (min(math.prod(roots.values()), 4) - 1) * above + below + 1
    return math.ceil(4 * (bits + above) + GUARD_BITS)


def _sizes(one: Any, roots: dict[Any, int]) -> tuple[float, float]:
    """Binary logarithms of BFMSS's u and l; notes every root, and under None what is none."""
    if one.is_Rational:
        return math.log2(max(abs(int(one.p)), 1)), math.log2(int(one.q))
    if one == sympy.I:
        roots[one] = 2
        return 0.0, 0.0
    if one.is_Add or one.is_Mul:
        sizes = [_sizes(arg, roots) for arg in one.args]
        below = sum(size[1] for size in sizes)
        if one.is_Mul:
            return sum(size[0] for size in sizes), below
        return max(u + below - v for u, v in sizes) + math.log2(len(sizes)), below
    if one.is_Pow and one.exp.is_Rational:
        above, below = _sizes(one.base, roots)
        degree, times = int(one.exp.q), abs(int(one.exp.p))
        if degree > 1:
            roots[one.base, degree] = degree
            if above >= below:
                above = (above + (degree - 1) * below) / degree
            else:
                below = (below + (degree - 1) * above) / degree
        if one.exp < 0:
            above, below = below, above
        return times * above, times * below
    roots[None] = 1
    value = evaluated(one, 64)
    size = abs(float(sympy.log(abs(value), 2))) if value is not None and value != 0 else 64.0
    size += sum(sum(_sizes(arg, roots)) for arg in one.args if arg.is_number)
    return size, size


def evaluated(one: Any, precision: int) -> Any | None:
    """The finite complex number that a constant is, to so many bits, or None."""
    digits = int(precision * 0.30103) + 2
    try:
        value = one.evalf(digits, maxn=4 * digits + 100)
    except FAILS:
        return None
    if not value.is_number or value.has(*NO_NUMBER):
        return None
    is_read = all(part.is_Float or part.is_Rational for part in value.as_real_imag())
    return value if is_read else None
