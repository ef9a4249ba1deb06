"""Computer algebra over answers: their expressions in SymPy, and whether a constant is zero."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
from sympy.core.function import UndefinedFunction

from tandem_plugin.grading.tree import Node

MAX_PROOF_BITS = 24_000
GUARD_BITS = 330
NO_NUMBER = (sympy.oo, -sympy.oo, sympy.nan, sympy.zoo)
FAILS = (
    ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError
)  # fmt: skip
"""The errors that SymPy raises for unsupported input."""


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

    Proven for integers, arithmetic, roots and ``i``, by the bound of Burnikel, Funke, Mehlhorn,
    Schirra and Schmitt (BFMSS, 2001), with one factor of the degree per different root. For other
    functions (pi, logarithms, angles): four times what their sizes could make, and 100 digits.
    """
    roots: dict[Any, int] = {}
    above, below = _sizes(constant, roots)
    if roots.pop(None, None) is None:
        return math.ceil((math.prod(roots.values()) - 1) * above + below + 1)
    bits = (min(math.prod(roots.values()), 4) - 1) * above + below + 1
    return math.ceil(4 * (bits + above) + GUARD_BITS)


def _sizes(constant: Any, roots: dict[Any, int]) -> tuple[float, float]:
    """Binary logarithms of BFMSS's u and l; notes every root, and under None what is none."""
    if constant.is_Rational:
        return math.log2(max(abs(int(constant.p)), 1)), math.log2(int(constant.q))
    if constant == sympy.I:
        roots[constant] = 2
        return 0.0, 0.0
    if constant.is_Add or constant.is_Mul:
        sizes = [_sizes(arg, roots) for arg in constant.args]
        below = sum(size[1] for size in sizes)
        if constant.is_Mul:
            return sum(size[0] for size in sizes), below
        return max(u + below - v for u, v in sizes) + math.log2(len(sizes)), below
    if constant.is_Pow and constant.exp.is_Rational:
        above, below = _sizes(constant.base, roots)
        degree, times = int(constant.exp.q), abs(int(constant.exp.p))
        if degree > 1:
            roots[constant.base, degree] = degree
            if above >= below:
                above = (above + (degree - 1) * below) / degree
            else:
                below = (below + (degree - 1) * above) / degree
        if constant.exp < 0:
            above, below = below, above
        return times * above, times * below
    roots[None] = 1
    value = evaluated(constant, 64)
    size = abs(float(sympy.log(abs(value), 2))) if value is not None and value != 0 else 64.0
    size += sum(sum(_sizes(arg, roots)) for arg in constant.args if arg.is_number)
    return size, size


def evaluated(constant: Any, precision: int) -> Any | None:
    """The finite complex number that a constant is, to so many bits, or None."""
    digits = int(precision * 0.30103) + 2
    try:
        value = constant.evalf(digits, maxn=4 * digits + 100)
    except FAILS:
        return None
    if not value.is_number or value.has(*NO_NUMBER):
        return None
    is_read = all(part.is_Float or part.is_Rational for part in value.as_real_imag())
    return value if is_read else None


_MAX_BITS = 1_000_000
_MAX_FACTORIAL = 5_000
_MAX_TERMS = 100_000
_MAX_MATRIX = 8


class TooLargeError(ArithmeticError):
    """A number would have more than a million bits."""


class UnknownError(ValueError):
    """A tree is no expression, or no set."""


_FUNCTIONS = {
    "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec,
    "csc": sympy.csc, "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh,
    "coth": sympy.coth, "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan,
    "arccot": sympy.acot, "arcsec": sympy.asec, "arccsc": sympy.acsc, "ln": sympy.log,
    "exp": sympy.exp, "abs": sympy.Abs, "floor": sympy.floor, "ceil": sympy.ceiling,
    "max": sympy.Max, "min": sympy.Min, "sgn": sympy.sign, "factorial": sympy.factorial,
    "binomial": sympy.binomial,
}  # fmt: skip
_OF_INTEGERS = {"gcd": math.gcd, "lcm": math.lcm, "mod": operator.mod}
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "infinity": sympy.oo}
_SETS = {"cup": sympy.Union, "cap": sympy.Intersection, "minus": sympy.Complement}
_RELATIONS = {
    "\\ne": sympy.Ne, "<": sympy.Lt, ">": sympy.Gt, "\\le": sympy.Le, "\\ge": sympy.Ge
}  # fmt: skip


_TRANSPOSED = sympy.Symbol("T", real=True)


def expression(node: Node) -> Any:
    """The SymPy expression that a tree is.

    Raises :class:`TooLargeError` before anything is computed that is, and :class:`UnknownError`.
    """
    kind, parts = node
    if kind == "num":
        return sympy.Rational(parts[0].numerator, parts[0].denominator)
    if kind == "sym":
        return sympy.Symbol(parts[0], real=True)
    if kind == "const":
        return _CONSTANTS[parts[0]]
    if kind == "call":
        return _call(parts[0], [expression(part) for part in parts[1:]])
    if kind == "apply":
        return UndefinedFunction(parts[0])(*map(expression, parts[1:]))
    if kind == "big":
        return _big(*parts)
    if kind == "matrix":
        if max(len(parts), len(parts[0])) > _MAX_MATRIX:
            raise TooLargeError
        return sympy.ImmutableMatrix([[expression(entry) for entry in row] for row in parts])
    if kind not in _OPERATIONS:
        raise UnknownError(kind)
    values = [expression(part) for part in parts]
    try:
        return _OPERATIONS[kind](*values)
    except (TypeError, ValueError) as error:  # matrices whose shapes do not fit
        raise UnknownError(kind) from error


def _folded(operation: Callable[[Any, Any], Any], flat: Callable[..., Any]) -> Callable[..., Any]:
    """A sum or a product: flat, which builds a long one at once; of matrices one by one."""

    def made(*values: Any) -> Any:
        if any(isinstance(value, sympy.MatrixBase) for value in values):
            return reduce(operation, values)
        return flat(*values)

    return made


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, sympy.MatrixBase):
        if exponent == _TRANSPOSED:
            return base.T
        if not (exponent.is_Integer and abs(exponent) <= _MAX_MATRIX):
            raise UnknownError("pow")
    elif base.is_number and exponent.is_Rational:
        size = abs(base.p) + base.q if base.is_Rational else 2**30
        if abs(exponent) * math.log2(max(size, 2)) > _MAX_BITS:
            raise TooLargeError
    return base**exponent


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "sum": _folded(operator.add, sympy.Add),
    "mul": _folded(operator.mul, sympy.Mul),
    "div": operator.truediv,
    "pow": _power,
    "degrees": lambda value: value * sympy.pi / 180,
}


def _call(name: str, values: list[Any]) -> Any:
    if isinstance(values[0], sympy.MatrixBase) is not (name == "det"):
        raise UnknownError(name)
    if name == "det":
        return values[0].det()
    if name in ("log", "lg"):
        return sympy.log(values[0]) / sympy.log(values[1] if len(values) > 1 else 10)
    if name in _OF_INTEGERS:
        if not all(value.is_Integer for value in values):
            raise UnknownError(name)
        return sympy.Integer(_OF_INTEGERS[name](*map(int, values)))
    is_counted = name in ("factorial", "binomial") and all(value.is_number for value in values)
    if is_counted and any(value.is_real and abs(value) > _MAX_FACTORIAL for value in values):
        raise TooLargeError
    return _FUNCTIONS[name](*values)


def _big(name: str, body: Node, variable: str, *bounds: Node) -> Any:
    """A sum, product, integral or limit, computed."""
    symbol = sympy.Symbol(variable, real=True)
    inner, low, high = expression(body), *map(expression, (bounds * 2)[:2])
    if name == "lim":
        return sympy.limit(inner, symbol, low)
    if name == "int":
        return sympy.integrate(inner, (symbol, low, high))
    index = sympy.Symbol(variable, integer=True)
    if low.is_number and high.is_number and high.is_finite and abs(high - low) > _MAX_TERMS:
        raise TooLargeError
    operator = sympy.summation if name == "sum" else sympy.product
    result = operator(inner.xreplace({symbol: index}), (index, low, high))
    return result.args[0].expr if isinstance(result, sympy.Piecewise) else result  # converges


def set_of(node: Node) -> Any:
    """The SymPy set of real numbers that a tree is. Raises :class:`UnknownError`."""
    kind, parts = node
    if kind in _SETS:
        return _SETS[kind](*map(set_of, parts))
    if kind in ("reals", "empty"):
        return sympy.S.Reals if kind == "reals" else sympy.S.EmptySet
    if kind == "set":
        return sympy.FiniteSet(*map(expression, parts))
    if kind != "interval" and (kind != "tuple" or len(parts) != 2):
        raise UnknownError(kind)
    low, high = map(expression, parts[:2])
    if not (low.is_extended_real and high.is_extended_real and (low < high) == True):  # noqa: E712
        raise UnknownError("An interval whose ends are in no order.")
    return sympy.Interval(low, high, parts[2:3] != ("[",), parts[3:] != ("]",))


def solutions(node: Node) -> tuple[Any | None, Any]:
    """The unknown of a condition, if it has one, and the set of its real solutions.

    Raises :class:`UnknownError`.
    """
    if node.kind == "solved":
        name, values = node.parts
        return None if name is None else expression(name), set_of(values)
    if node.kind != "relation":
        return None, set_of(node)
    sides, signs = [expression(side) for side in node.parts[0]], node.parts[1]
    unknowns = set().union(*(side.free_symbols for side in sides))
    if len(unknowns) != 1:
        raise UnknownError("A condition on several unknowns.")
    real_set = sympy.S.Reals
    for left_side, sign, right in zip(sides, signs, sides[1:], strict=False):
        real_set = real_set.intersect(_RELATIONS[sign](left_side, right).as_set())
    return unknowns.pop(), real_set
