"""Whether two expressions are equal, by exact structure, by value, and by Math-Verify."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy
from math_verify import verify
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from tandem_plugin.grading.decide import Decision, close_enough
from tandem_plugin.grading.symbolic.reader import UnreadableError, has_decimal, read_latex

__all__ = ["scalar"]

_DIGITS = 50
_MAX_DIGITS = 10_000
_FEW_BITS = 20
_SAME = sympy.Float(10) ** -35
_DIFFERENT = sympy.Float(10) ** -25
_MAX_BITS = 1_000_000.0
_MAX_FACTORIAL = 5_000
_MAX_TERMS = 100_000
_POINTS = (
    (Fraction(17, 13), Fraction(23, 7)),
    (Fraction(-29, 11), Fraction(19, 17)),
    (Fraction(31, 37), Fraction(-41, 29)),
    (Fraction(43, 19), Fraction(53, 47)),
    (Fraction(61, 7), Fraction(-3, 59)),
    (Fraction(1, 71), Fraction(67, 31)),
)
"""Where expressions with variables are compared: the n-th variable is a + n * b."""
_LEAST_POINTS = 3


def scalar(gold: str, answer: str) -> Decision:
    """Compare two canonical texts that are no plain numbers and have no parts."""
    try:
        wanted = read_latex(_without_percent(gold))
    except UnreadableError:
        return Decision(False, "unread_gold")
    try:
        given = read_latex(_without_percent(answer))
    except UnreadableError:
        return Decision(False, "unread_answer")
    if gold.endswith("%") != answer.endswith("%"):
        return _percent(wanted, given, gold.endswith("%"))
    return _compare(wanted, given, has_decimal(gold), has_decimal(answer))


def _without_percent(text: str) -> str:
    return text.removesuffix("%").rstrip()


def _percent(wanted: Any, given: Any, gold_is_percent: bool) -> Decision:
    """Of a value and a percentage either ``p = v`` or ``p = 100 v`` will do."""
    if not (isinstance(wanted, sympy.Expr) and isinstance(given, sympy.Expr)):
        return Decision(False, "kind")
    percent, value = (wanted, given) if gold_is_percent else (given, wanted)
    decision = _expressions(percent, value, False, False)
    return decision if decision.is_equal else _expressions(percent, 100 * value, False, False)


def _compare(wanted: Any, given: Any, gold_decimal: bool, answer_decimal: bool) -> Decision:
    if is_too_large(wanted) or is_too_large(given):
        return Decision(bool(wanted == given), "too_large")
    wanted, given = _explicit(wanted), _explicit(given)
    if isinstance(wanted, sympy.MatrixBase) and isinstance(given, sympy.MatrixBase):
        return _matrices(wanted, given, gold_decimal, answer_decimal)
    if isinstance(wanted, Relational) and isinstance(given, Relational):
        return _relations(wanted, given)
    if isinstance(wanted, sympy.Expr) and isinstance(given, sympy.Expr):
        return _expressions(wanted, given, gold_decimal, answer_decimal)
    if isinstance(wanted, sympy.Eq) != isinstance(given, sympy.Eq):
        return Decision(False, "equation")
    return _math_verify(wanted, given)


def _explicit(expression: Any) -> Any:
    """A product or power of matrices, multiplied out."""
    if not isinstance(expression, sympy.MatrixExpr):
        return expression
    return _computed(expression).as_explicit()


def _matrices(wanted: Any, given: Any, gold_decimal: bool, answer_decimal: bool) -> Decision:
    if wanted.shape != given.shape:
        return Decision(False, "count")
    for pair in zip(wanted.flat(), given.flat(), strict=True):
        decision = _expressions(*pair, gold_decimal, answer_decimal)
        if not decision.is_equal:
            return decision
    return Decision(True, "parts")


def _relations(wanted: Any, given: Any) -> Decision:
    """Equal up to a factor; inequalities up to a positive one, or turned around."""
    turned = {sympy.Gt: sympy.Lt, sympy.Lt: sympy.Gt, sympy.Ge: sympy.Le, sympy.Le: sympy.Ge}
    if not all(isinstance(side, sympy.Expr) for r in (wanted, given) for side in r.args):
        return _math_verify(wanted, given)
    first, second = wanted.lhs - wanted.rhs, given.lhs - given.rhs
    same_sign = type(wanted) is type(given)
    if isinstance(wanted, sympy.Eq | sympy.Ne):
        if not same_sign:
            return Decision(False, "relation")
    elif not same_sign and turned.get(type(wanted)) is not type(given):
        return Decision(False, "relation")
    ratio = _constant_ratio(first, second)
    if ratio is None:
        return Decision(False, "relation")
    if isinstance(wanted, sympy.Eq | sympy.Ne):
        return Decision(True, "relation")
    return Decision(bool(ratio > 0) == same_sign, "relation")


def _constant_ratio(first: Any, second: Any) -> Any | None:
    """``first / second`` where that is the same real number at every point, else None."""
    if _undefined(first) or _undefined(second):
        return None
    values = []
    for point in _points(first, second):
        above, below = _value(first, point), _value(second, point)
        if above is None or below is None or not (above.is_real and below.is_real):
            continue
        if abs(below) < _DIFFERENT:
            if abs(above) > _DIFFERENT:
                return None
            continue
        values.append(above / below)
    if len(values) < min(_LEAST_POINTS, len(_points(first, second))) or not values:
        return None
    ratio = values[0]
    if abs(ratio) < _DIFFERENT or any(abs(value - ratio) > _SAME * abs(ratio) for value in values):
        return None
    return ratio


def _expressions(wanted: Any, given: Any, gold_decimal: bool, answer_decimal: bool) -> Decision:
    if wanted == given:
        return Decision(not _undefined(wanted), "symbolic")
    wanted, given = _computed(wanted), _computed(given)
    if _undefined(wanted) or _undefined(given):
        return Decision(False, "undefined")
    if wanted == given:
        return Decision(True, "symbolic")
    if not wanted.free_symbols and not given.free_symbols:
        decision = _numbers(wanted, given, gold_decimal, answer_decimal)
    elif isinstance(wanted, sympy.Symbol) and isinstance(given, sympy.Symbol):
        return Decision(False, "symbol")
    else:
        decision = _sampled(wanted, given)
    return decision or _math_verify(wanted, given)


def _numbers(wanted: Any, given: Any, gold_decimal: bool, answer_decimal: bool) -> Decision | None:
    """Two constants: rational ones exactly, others by 50 digits of their difference."""
    first, second = _value(wanted, {}), _value(given, {})
    if first is None or second is None:
        return None
    scale = max(abs(first), abs(second), 1)
    gap = _gap(wanted, given, scale)
    if gap is None:
        return None
    if gap == 0:
        return Decision(True, "numeric")
    if first.is_real and second.is_real and (gold_decimal or answer_decimal):
        pair = _fraction(first), _fraction(second)
        if gold_decimal or pair[0].denominator != 1:
            return Decision(close_enough(*pair, gold_decimal), "numeric")
    return Decision(False, "numeric")


def _gap(wanted: Any, given: Any, scale: Any) -> Any | None:
    """How far two constants are apart, exact for rational ones; None where that is not to be had.

    The larger the constants, the more digits it takes.
    """
    difference = wanted - given
    if difference.is_Rational:
        return abs(difference)
    digits = int(sympy.log(scale, 10).evalf(15))
    if digits > _MAX_DIGITS:
        return None
    try:
        value = difference.evalf(_DIGITS, maxn=2 * _DIGITS + 2 * digits)
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    if not value.is_number or not value.is_finite:
        return None
    parts = value.as_real_imag()
    return sympy.Integer(0) if all(map(_is_rounded_zero, parts)) else abs(value)


def _is_rounded_zero(part: Any) -> bool:
    """Zero, or what SymPy returns for a zero that it could not prove: almost no correct bits."""
    return bool(part == 0) or (part.is_Float and part._prec < _FEW_BITS and abs(part) <= _SAME)


def _sampled(wanted: Any, given: Any) -> Decision | None:
    """Two expressions with variables, by their values wherever both are real.

    Different at one point is different; equal to 35 digits at three points and more is equal.
    """
    has_i = wanted.has(sympy.I) or given.has(sympy.I)
    agreed = 0
    for point in _points(wanted, given):
        if not has_i and not (_has_real_roots(wanted, point) and _has_real_roots(given, point)):
            continue
        first, second = _value(wanted, point), _value(given, point)
        if first is None or second is None:
            continue
        if not has_i and not (first.is_real and second.is_real):
            continue
        scale = max(abs(first), abs(second), sympy.Float("1e-30"))
        gap = abs(first - second)
        if gap > _DIFFERENT * scale:
            return Decision(False, "sampled")
        agreed += bool(gap <= _SAME * scale)
        if agreed > _LEAST_POINTS:
            break
    return Decision(True, "sampled") if agreed >= _LEAST_POINTS else None


def _has_real_roots(expression: Any, point: dict[Any, Any]) -> bool:
    """Whether no root is taken of a negative number: else two of them might cancel."""
    for power in expression.atoms(sympy.Pow):
        if power.exp.is_Rational and not power.exp.is_Integer and power.base.free_symbols:
            base = _value(power.base, point)
            if base is None or not base.is_real or base < 0:
                return False
    return True


def _points(*expressions: Any) -> list[dict[Any, Any]]:
    """Values for all variables, and for all functions that are applied, in a fixed order."""
    names: set[Any] = set()
    for expression in expressions:
        names |= expression.free_symbols | expression.atoms(AppliedUndef)
    ordered = sorted(names, key=lambda name: (not isinstance(name, AppliedUndef), str(name)))
    return [
        {name: sympy.Rational(*_ratio(a + n * b)) for n, name in enumerate(ordered)}
        for a, b in _POINTS
    ]


def _ratio(value: Fraction) -> tuple[int, int]:
    return value.numerator, value.denominator


def _value(expression: Any, point: dict[Any, Any]) -> Any | None:
    """The finite number that an expression is at a point, or None."""
    try:
        placed = expression.subs(list(point.items()), simultaneous=True) if point else expression
        if is_too_large(placed):
            return None
        value = placed.evalf(_DIGITS)
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    if not value.is_number or value.has(sympy.nan, sympy.oo, -sympy.oo, sympy.zoo):
        return None
    real, imaginary = value.as_real_imag()
    if not (real.is_Float or real.is_Rational) or not (imaginary.is_Float or imaginary.is_Rational):
        return None
    return real if abs(imaginary) <= _SAME * max(abs(real), 1) else value


def _fraction(value: Any) -> Fraction:
    exact = sympy.Rational(value)
    return Fraction(int(exact.p), int(exact.q))


def _computed(expression: Any) -> Any:
    try:
        return expression.doit()
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return expression


def _undefined(expression: Any) -> bool:
    return bool(expression.has(sympy.nan, sympy.zoo))


def _math_verify(wanted: Any, given: Any) -> Decision:
    """Math-Verify's own comparison: sets, intervals, chains of relations, and what is left."""
    try:
        is_equal = verify(
            wanted, given, float_rounding=6, numeric_precision=15, strict=True,
            allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True,
        )  # fmt: skip
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return Decision(False, "math_verify")
    return Decision(bool(is_equal), "math_verify")


def is_too_large(expression: Any) -> bool:
    """Whether computing an expression would make numbers of more than a million bits."""
    if isinstance(expression, sympy.MatrixBase):
        return any(is_too_large(entry) for entry in expression.flat())
    try:
        return any(_is_large_node(node) for node in sympy.preorder_traversal(expression))
    except OverflowError:
        return True


def _is_large_node(node: Any) -> bool:
    if isinstance(node, sympy.Pow):
        return node.base.is_number and node.exp.is_number and _bits(node) > _MAX_BITS
    if isinstance(node, sympy.factorial):
        return node.args[0].is_number and _magnitude(node.args[0]) > _MAX_FACTORIAL
    if isinstance(node, sympy.binomial):
        return all(arg.is_number and _magnitude(arg) > _MAX_FACTORIAL for arg in node.args)
    if isinstance(node, sympy.gamma):
        return node.args[0].is_number and _magnitude(node.args[0]) > _MAX_FACTORIAL
    if isinstance(node, sympy.Sum | sympy.Product):
        return any(
            _magnitude(high) - _magnitude(low) > _MAX_TERMS
            for _, low, high in node.limits
            if low.is_number and high.is_number and high.is_finite
        )
    return False


def _bits(node: Any) -> float:
    """About how many bits the power has, without computing it."""
    exponent = _magnitude(node.exp)
    if isinstance(node.base, sympy.Rational):
        size = math.log2(max(abs(int(node.base.p)), int(node.base.q), 1))
    else:
        size = abs(math.log2(max(_magnitude(node.base), 1e-300)))
    return exponent * size


def _magnitude(expression: Any) -> float:
    """About the absolute value of a constant; infinite where it is beyond all use."""
    if isinstance(expression, sympy.Rational):
        return abs(int(expression.p)) / int(expression.q) if expression.q else math.inf
    if isinstance(expression, sympy.Pow):
        bits = _bits(expression)
        return 2.0**bits if bits < 1000 else math.inf
    if isinstance(expression, sympy.factorial):
        size = _magnitude(expression.args[0])
        return math.inf if size > 170 else math.gamma(size + 1)
    if isinstance(expression, sympy.Add):
        return sum(map(_magnitude, expression.args))
    if isinstance(expression, sympy.Mul):
        return math.prod(map(_magnitude, expression.args))
    try:
        value = abs(complex(expression.evalf(15)))
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return math.inf
    return value if math.isfinite(value) else math.inf
