"""Proofs that two trees are equal: exact, by a separation bound, or at random points.

A false polynomial or rational identity of degree d holds at a random point with a probability of at
most d / 2^24 (Schwartz 1980, Zippel 1979), and at four points with at most (d / 2^24)^4. Values
with roots and functions are compared to a hundred digits at each. Without a proof, expressions are
not equal.
"""

from __future__ import annotations

import hashlib
import random
from fractions import Fraction
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from tandem_plugin.grading.comparison import Decision
from tandem_plugin.grading.symbolic.algebra import (
    FAILS,
    GUARD_BITS,
    MAX_PROOF_BITS,
    NO_NUMBER,
    TooLargeError,
    UnknownError,
    evaluated,
    expression,
    is_zero,
    set_of,
    solutions,
)
from tandem_plugin.grading.tree import SETS, Node, measured_place, rounds_to, shows

POINTS = 4
_TRIES = 40
_UNDEFINED = (sympy.nan, sympy.zoo)


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
    gold_value, answer_value = _fraction(first), _fraction(second)
    is_known = gold_value is not None and answer_value is not None
    return Decision(is_known and rounds_to(answer_value, gold_value, place), "numeric")  # type: ignore[arg-type]


def are_equal(first: Any, second: Any) -> bool:
    """Whether two expressions are proven to be equal."""
    if first == second:
        return not first.has(*_UNDEFINED)
    if first.has(*NO_NUMBER) or second.has(*NO_NUMBER):
        return False
    names = _names(first) | _names(second)
    try:
        return _agree(first, second, names) if names else is_zero(first - second)
    except FAILS:
        return False


def _names(formula: Any) -> set[Any]:
    """Variables, and functions that nothing is known of."""
    return formula.free_symbols | formula.atoms(AppliedUndef)  # type: ignore[no-any-return]


def _fraction(constant: Any) -> Fraction | None:
    """A real constant to two hundred bits, or None."""
    value = evaluated(constant, 200) if not _names(constant) else None
    if value is None or not value.is_real:
        return None
    exact = sympy.Rational(value)
    return Fraction(int(exact.p), int(exact.q))


def _is_rounded(shown: Node, answer: Node) -> bool:
    """Whether a decimal is a real number rounded or cut off at the decimal's last digit."""
    place = measured_place(shown) or 0
    while shown.kind in ("quantity", "percent"):
        shown = shown.parts[0]
    shown_value, answer_value = _fraction(expression(shown)), _fraction(expression(answer))
    return (
        shown_value is not None
        and answer_value is not None
        and shows(shown_value, answer_value, place)
    )


def _agree(first: Any, second: Any, names: set[Any]) -> bool:
    """Whether two expressions are equal at random points, wherever both are real."""
    draw = random.Random(hashlib.sha256(f"{first}|{second}".encode()).digest())
    ordered = sorted(names, key=lambda name: (not isinstance(name, AppliedUndef), str(name)))
    is_complex = first.has(sympy.I) or second.has(sympy.I)
    bases = [_bases(side) for side in (first, second)]
    bits = GUARD_BITS + 4 * max(_literal_bits(first), _literal_bits(second))
    exponents = (
        power.exp for side in (first, second) for power in side.atoms(sympy.Pow, sympy.exp)
    )
    powers = names & set().union(*(exponent.free_symbols for exponent in exponents))
    agreed = 0
    for attempt in range(_TRIES):
        # All below zero, then all above, then of any sign.
        point = {
            name: _random(draw, (-1, 1, 0, 1)[min(attempt, 2 + attempt % 2)]) for name in ordered
        }
        for name in powers:  # a root with a large index costs seconds as an exact number
            point[name] = sympy.Float(point[name], int(bits * 0.30103) + 2)
        first_value, second_value = (
            _value(side, None if is_complex else its_bases, point, bits)
            for side, its_bases in zip((first, second), bases, strict=True)
        )
        if first_value is None or second_value is None:
            if (first_value is None) != (second_value is None) and len(names) == 1:
                return False  # they are not defined for the same numbers
            continue
        is_exact = first_value.is_Rational and second_value.is_Rational
        if not (
            first_value == second_value
            if is_exact
            else _is_tiny(first_value - second_value, first_value, second_value)
        ):
            return False
        agreed += 1
        if agreed == POINTS * 2:
            return True
    return agreed >= POINTS


def _random(draw: random.Random, sign: int) -> Any:
    """A number between 1/8 and 4 of a sign, or of either (0), with 24 random bits."""
    size = sympy.Rational(draw.randrange(2**21, 2**26) | 1, 2**24 + 43)
    return size * (sign or draw.choice((-1, 1)))


def _bases(formula: Any) -> list[Any]:
    """Arguments that must not be negative for real values: of roots and logarithms."""
    powers = formula.atoms(sympy.Pow)
    if any(power.exp.is_Integer and abs(power.exp) > 10_000 for power in powers):
        raise TooLargeError
    bases = [power.base for power in powers if not power.exp.is_Integer]
    bases += [logarithm.args[0] for logarithm in formula.atoms(sympy.log)]
    return [base for base in bases if base.free_symbols]


def _value(formula: Any, bases: list[Any] | None, point: dict[Any, Any], bits: int) -> Any | None:
    """The value at a point, exact where it is rational, else to so many bits; or None.

    bases: see ``_bases``; None where values may be complex.
    """
    for base in bases or ():
        value = evaluated(base.xreplace(point), 64)
        if value is None or not value.is_real or value < 0:
            return None
    value = formula.xreplace(point)
    if value.is_Rational:
        return value
    if value.has(*NO_NUMBER) or (value.has(sympy.I) and bases is not None):
        return None
    value = evaluated(value, bits)
    return value if value is not None and (bases is None or value.is_real) else None


def _literal_bits(formula: Any) -> int:
    """The size of the numbers that are written in an expression."""
    bits = sum(
        int(atom.p).bit_length() + int(atom.q).bit_length()
        for atom in formula.atoms(sympy.Rational)
    ) + sum(abs(int(p.exp)) * 4 for p in formula.atoms(sympy.Pow) if p.exp.is_Integer)
    return min(bits, MAX_PROOF_BITS)


def _is_tiny(gap: Any, *values: Any) -> bool:
    """Whether a difference is none, to all but the last ten of the digits that were computed."""
    floats = [next(iter(value.atoms(sympy.Float)), None) for value in values]
    bits = min(GUARD_BITS if number is None else number._prec for number in floats)
    scale = max(abs(value) for value in values)
    return bool(abs(gap) <= scale * sympy.Float(2) ** -max(bits - 40, 53))


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
        values = [_value(side, _bases(side), point, GUARD_BITS) for side in (first, second)]
        if not all(values):  # undefined there, or zero
            continue
        ratio = values[0] / values[1]  # type: ignore[operator]
        near = sympy.Rational(str(ratio)) if ratio.is_Float else ratio
        factor = Fraction(int(near.p), int(near.q)).limit_denominator(10**6)
        return sympy.Rational(factor.numerator, factor.denominator) if factor else None
    return None


def _same_set(gold: Node, answer: Node) -> bool:
    """Two sets of real numbers, of intervals and points with the same ends."""
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
    except FAILS:
        return False
