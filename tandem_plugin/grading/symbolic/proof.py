"""Proofs that two trees are equal: exact, by a separation bound, or at random points.

- Constants made of integers, arithmetic and roots: by the separation bound of Burnikel, Funke,
  Mehlhorn, Schirra and Schmitt (BFMSS, 2001): a difference smaller than the bound is zero.
- Other constants (pi, logarithms, angles): their difference is smaller than any that its sizes
  could make, by a hundred digits.
- Expressions with variables: at random rational points in general position. A polynomial or
  rational identity of degree d that is false holds at such a point with a probability of at most
  d / 2^24 (Schwartz 1980, Zippel 1979), and at the four that are asked with at most (d / 2^24)^4.
  Values with roots and functions are compared to a hundred digits at every point.

Different at one point is different. What cannot be proven is not equal.
"""

from __future__ import annotations

import hashlib
import math
import random
from fractions import Fraction
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from tandem_plugin.grading.decide import Decision, rounds_to, shows
from tandem_plugin.grading.symbolic.algebra import (
    TooLargeError,
    UnknownError,
    expression,
    set_of,
    solutions,
)
from tandem_plugin.grading.tree import SETS, Node, measured_place

__all__ = ["proof"]

POINTS = 4
_TRIES = 40
_MAX_PROOF_BITS = 24_000
_GUARD_BITS = 330
_UNDEFINED = (sympy.nan, sympy.zoo)
_NO_NUMBER = (sympy.oo, -sympy.oo, *_UNDEFINED)
_FAILS = (
    ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError
)  # fmt: skip


def proof(gold: Node, answer: Node) -> Decision:
    """Whether two trees are equal: expressions, equations and inequalities, or sets."""
    try:
        if gold.kind == "solutions":
            return Decision(_same_solutions(gold.parts[0], answer.parts[0]), "solved")
        if gold.kind == "relation":
            return Decision(_same_relation(gold, answer), "relation")
        if {gold.kind, answer.kind} & SETS:
            return Decision(_same_set(gold, answer), "sets")
        if gold.kind == "rounded":
            return Decision(_is_rounded(gold.parts[0], answer), "approximation")
        return _expressions(gold, answer)
    except TooLargeError:
        return Decision(False, "too_large")
    except UnknownError:
        return Decision(False, "unproven")


def _expressions(gold: Node, answer: Node) -> Decision:
    first, second = expression(gold), expression(answer)
    if isinstance(first, sympy.MatrixBase) or isinstance(second, sympy.MatrixBase):
        if type(first) is not type(second) or first.shape != second.shape:
            return Decision(False, "kind")
        return Decision(all(map(are_equal, first.flat(), second.flat())), "parts")
    if first.has(*_UNDEFINED) or second.has(*_UNDEFINED):
        return Decision(False, "undefined")
    if first == second:
        return Decision(True, "symbolic")
    if _names(first) or _names(second):
        return Decision(are_equal(first, second), "sampled")
    if are_equal(first, second):
        return Decision(True, "numeric")
    place = measured_place(gold)
    if place is None:
        return Decision(False, "numeric")
    wanted, given = _fraction(first), _fraction(second)
    is_known = wanted is not None and given is not None
    return Decision(is_known and rounds_to(given, wanted, place), "numeric")  # type: ignore[arg-type]


def are_equal(first: Any, second: Any) -> bool:
    """Whether two expressions are proven to be equal."""
    if first == second:
        return not first.has(*_UNDEFINED)
    if first.has(*_NO_NUMBER) or second.has(*_NO_NUMBER):
        return False
    names = _names(first) | _names(second)
    try:
        return _agree(first, second, names) if names else is_zero(first - second)
    except _FAILS:
        return False


def _names(one: Any) -> set[Any]:
    """Variables, and functions that nothing is known of."""
    return one.free_symbols | one.atoms(AppliedUndef)  # type: ignore[no-any-return]


# Constants


def is_zero(constant: Any) -> bool:
    """Whether a constant is zero: exactly, or by its separation bound."""
    if constant.is_Rational:
        return bool(constant == 0)
    bits = separation_bits(constant)
    if bits > _MAX_PROOF_BITS:
        return bool(sympy.expand(constant) == 0)
    rough = _number(constant, 64)
    if rough is None or abs(rough) > sympy.Float(2) ** -40:
        return False
    value = _number(constant, bits + 64)
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
    return math.ceil(4 * (bits + above) + _GUARD_BITS)


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
    value = _number(one, 64)
    size = abs(float(sympy.log(abs(value), 2))) if value is not None and value != 0 else 64.0
    size += sum(sum(_sizes(arg, roots)) for arg in one.args if arg.is_number)
    return size, size


def _number(one: Any, precision: int) -> Any | None:
    """The finite complex number that a constant is, to so many bits, or None."""
    digits = int(precision * 0.30103) + 2
    try:
        value = one.evalf(digits, maxn=4 * digits + 100)
    except _FAILS:
        return None
    if not value.is_number or value.has(*_NO_NUMBER):
        return None
    is_read = all(part.is_Float or part.is_Rational for part in value.as_real_imag())
    return value if is_read else None


def _fraction(one: Any) -> Fraction | None:
    """A real constant to two hundred bits, or None."""
    value = _number(one, 200) if not _names(one) else None
    if value is None or not value.is_real:
        return None
    exact = sympy.Rational(value)
    return Fraction(int(exact.p), int(exact.q))


def _is_rounded(shown: Node, answer: Node) -> bool:
    """Whether a decimal is a real number rounded or cut off at the decimal's last digit."""
    place = measured_place(shown) or 0
    while shown.kind in ("quantity", "percent"):
        shown = shown.parts[0]
    wanted, given = _fraction(expression(shown)), _fraction(expression(answer))
    return wanted is not None and given is not None and shows(wanted, given, place)


# Expressions with variables


def _agree(first: Any, second: Any, names: set[Any]) -> bool:
    """Whether two expressions are equal at random points, wherever both are real."""
    draw = random.Random(hashlib.sha256(f"{first}|{second}".encode()).digest())
    ordered = sorted(names, key=lambda name: (not isinstance(name, AppliedUndef), str(name)))
    is_complex = first.has(sympy.I) or second.has(sympy.I)
    is_rational = first.is_rational_function() and second.is_rational_function() and not is_complex
    bits = _GUARD_BITS + 4 * max(_literal_bits(first), _literal_bits(second))
    exponents = (power.exp for one in (first, second) for power in one.atoms(sympy.Pow, sympy.exp))
    powers = names & set().union(*(exponent.free_symbols for exponent in exponents))
    agreed = 0
    for attempt in range(_TRIES):
        # All below zero, then all above, then of any sign.
        point = {
            name: _random(draw, (-1, 1, 0, 1)[min(attempt, 2 + attempt % 2)]) for name in ordered
        }
        for name in powers:  # a root with a large index costs seconds as an exact number
            point[name] = sympy.Float(point[name], int(bits * 0.30103) + 2)
        one, other = (
            _placed(side, point) if is_rational else _real_value(side, point, bits, is_complex)
            for side in (first, second)
        )
        if one is None or other is None:
            if (one is None) != (other is None) and len(names) == 1:
                return False  # they are not defined for the same numbers
            continue
        is_exact = is_rational or (one.is_Rational and other.is_Rational)
        if not (one == other if is_exact else _is_tiny(one - other, one, other)):
            return False
        agreed += 1
        if agreed == POINTS * 2:
            return True
    return agreed >= POINTS


def _random(draw: random.Random, sign: int) -> Any:
    """A number between 1/8 and 4 of a sign, or of either (0), with 24 random bits."""
    size = sympy.Rational(draw.randrange(2**21, 2**26) | 1, 2**24 + 43)
    return size * (sign or draw.choice((-1, 1)))


def _placed(one: Any, point: dict[Any, Any]) -> Any | None:
    if any(power.exp.is_Integer and abs(power.exp) > 10_000 for power in one.atoms(sympy.Pow)):
        raise TooLargeError
    value = one.xreplace(point)
    return None if value.has(*_NO_NUMBER) else value


def _real_value(one: Any, point: dict[Any, Any], bits: int, is_complex: bool) -> Any | None:
    """The value at a point; None where it is none, or takes a root or logarithm below zero."""
    inner = [power.base for power in one.atoms(sympy.Pow) if not power.exp.is_Integer]
    inner += [logarithm.args[0] for logarithm in one.atoms(sympy.log)]
    for base in (base for base in inner if base.free_symbols and not is_complex):
        value = _number(base.xreplace(point), 64)
        if value is None or not value.is_real or value < 0:
            return None
    value = _placed(one, point)
    if value is None or (value.has(sympy.I) and not is_complex):
        return None
    number = _number(value, bits)
    return None if number is None or not (is_complex or number.is_real) else number


def _literal_bits(one: Any) -> int:
    """The size of the numbers that are written in an expression."""
    bits = sum(
        int(atom.p).bit_length() + int(atom.q).bit_length() for atom in one.atoms(sympy.Rational)
    ) + sum(abs(int(p.exp)) * 4 for p in one.atoms(sympy.Pow) if p.exp.is_Integer)
    return min(bits, _MAX_PROOF_BITS)


def _is_tiny(gap: Any, *values: Any) -> bool:
    """Whether a difference is none, to all but the last ten of the digits that were computed."""
    floats = [next(iter(value.atoms(sympy.Float)), None) for value in values]
    bits = min(_GUARD_BITS if one is None else one._prec for one in floats)
    scale = max(abs(value) for value in values)
    return bool(abs(gap) <= scale * sympy.Float(2) ** -max(bits - 40, 53))


# Relations and sets


def _same_relation(gold: Node, answer: Node) -> bool:
    """Equations up to a constant factor; inequalities of several variables up to a positive one."""
    (sides, signs), (other_sides, other_signs) = gold.parts, answer.parts
    first = expression(sides[0]) - expression(sides[1])
    second = expression(other_sides[0]) - expression(other_sides[1])
    names = _names(first)
    if names != _names(second) or not names:
        return False
    is_solved = any(side.kind in ("sym", "apply") for side in sides)
    if len(names) == 1 and (signs[0] != "=" or is_solved):
        return False  # one unknown: what is not solved is no solution
    factor = _factor(first, second, names)
    if factor is None or not are_equal(first, factor * second):
        return False
    return signs[0] in ("=", "\\ne") or bool(factor > 0) is (signs[0] == other_signs[0])


def _factor(first: Any, second: Any, names: set[Any]) -> Any | None:
    """The rational number, not zero, that two expressions differ by at a random point."""
    draw = random.Random(0)
    for _ in range(_TRIES):
        point = {name: _random(draw, 1) for name in sorted(names, key=str)}
        values = [_real_value(one, point, _GUARD_BITS, False) for one in (first, second)]
        if not all(values):  # undefined there, or zero
            continue
        ratio = values[0] / values[1]  # type: ignore[operator]
        near = sympy.Rational(str(ratio)) if ratio.is_Float else ratio
        factor = Fraction(int(near.p), int(near.q)).limit_denominator(10**6)
        return sympy.Rational(factor.numerator, factor.denominator) if factor else None
    return None


def _same_set(gold: Node, answer: Node) -> bool:
    """Two sets of real numbers, of intervals and points with the same ends."""
    if gold.kind == answer.kind == "interval":
        pairs = zip(gold.parts[:2], answer.parts[:2], strict=True)
        same_brackets = gold.parts[2:] == answer.parts[2:]
        return same_brackets and all(are_equal(*map(expression, pair)) for pair in pairs)
    first, second = set_of(gold), set_of(answer)
    if first == second:
        return True
    return bool(sympy.SymmetricDifference(first, second).simplify() == sympy.S.EmptySet)


def _same_solutions(gold: Node, answer: Node) -> bool:
    """Of conditions on one unknown, or the sets of their solutions."""
    try:
        first, second = solutions(gold), solutions(answer)
        names = {name for name, _ in (first, second) if name is not None}
        return len(names) < 2 and bool(first[1] == second[1])
    except _FAILS:
        return False
