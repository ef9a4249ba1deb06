"""Trees as SymPy's expressions and sets, with every size bounded before it is computed."""

from __future__ import annotations

import math
from typing import Any

import sympy
from sympy.core.function import UndefinedFunction

from tandem_plugin.grading.tree import Node

__all__ = ["TooLargeError", "UnknownError", "expression", "set_of", "solutions"]

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
    "max": sympy.Max, "min": sympy.Min, "sgn": sympy.sign,
}  # fmt: skip
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "infinity": sympy.oo}


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
        return _call(*parts)
    if kind == "apply":
        return UndefinedFunction(parts[0])(*map(expression, parts[1:]))
    if kind == "big":
        return _big(*parts)
    if kind == "matrix":
        if max(len(parts), len(parts[0])) > _MAX_MATRIX:
            raise TooLargeError
        return sympy.ImmutableMatrix([[expression(entry) for entry in row] for row in parts])
    if kind not in ("neg", "sum", "mul", "div", "pow", "degrees"):
        raise UnknownError(kind)
    values = [expression(part) for part in parts]
    if any(isinstance(value, sympy.MatrixBase) for value in values):
        return _matrices(kind, values)
    if kind == "neg":
        return -values[0]
    if kind == "sum":
        return sympy.Add(*values)
    if kind == "mul":
        return sympy.Mul(*values)
    if kind == "degrees":
        return values[0] * sympy.pi / 180
    if kind == "div":
        return values[0] / values[1]
    return _power(*values)


def _matrices(kind: str, values: list[Any]) -> Any:
    try:
        if kind == "neg":
            return -values[0]
        result = values[0]
        for value in values[1:]:
            if kind == "sum":
                result = result + value
            elif kind == "mul":
                result = result * value
            elif kind == "div" and not isinstance(value, sympy.MatrixBase):
                result = result / value
            elif kind == "pow" and value.is_Integer and abs(value) <= _MAX_MATRIX:
                result = result**value
            else:
                raise UnknownError(kind)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise UnknownError(str(error)) from error
    return result


def _power(base: Any, exponent: Any) -> Any:
    if base.is_number and exponent.is_Rational:
        size = abs(base.p) + base.q if base.is_Rational else 2**30
        if abs(exponent) * math.log2(max(size, 2)) > _MAX_BITS:
            raise TooLargeError
    return sympy.Pow(base, exponent)


def _call(name: str, *arguments: Node) -> Any:
    values = [expression(argument) for argument in arguments]
    if name == "det":
        if not isinstance(values[0], sympy.MatrixBase):
            raise UnknownError(name)
        return values[0].det()
    if any(isinstance(value, sympy.MatrixBase) for value in values):
        raise UnknownError(name)
    if name in ("log", "lg"):
        base = values[1] if len(values) > 1 else sympy.Integer(10)
        return sympy.log(values[0]) / sympy.log(base)
    if name in ("factorial", "binomial"):
        if all(value.is_number for value in values) and any(
            abs(value) > _MAX_FACTORIAL for value in values if value.is_real
        ):
            raise TooLargeError
        return sympy.factorial(*values) if name == "factorial" else sympy.binomial(*values)
    if name in ("gcd", "lcm", "mod"):
        if not all(value.is_Integer for value in values):
            raise UnknownError(name)
        if name == "mod":
            return sympy.Mod(*values)
        return sympy.Integer((math.gcd if name == "gcd" else math.lcm)(*map(int, values)))
    return _FUNCTIONS[name](*values)


def _big(name: str, body: Node, variable: str, *bounds: Node) -> Any:
    """A sum, product, integral or limit, computed."""
    symbol = sympy.Symbol(variable, real=True)
    inner, ends = expression(body), [expression(bound) for bound in bounds]
    if name == "lim":
        return sympy.limit(inner, symbol, ends[0])
    low, high = ends
    if name == "int":
        return sympy.integrate(inner, (symbol, low, high))
    index = sympy.Symbol(variable, integer=True)
    inner = inner.xreplace({symbol: index})
    if low.is_number and high.is_number and high.is_finite and abs(high - low) > _MAX_TERMS:
        raise TooLargeError
    made = sympy.summation if name == "sum" else sympy.product
    result = made(inner, (index, low, high))
    if isinstance(result, sympy.Piecewise):
        result = result.args[0].expr  # where it converges
    return result


def set_of(node: Node) -> Any:
    """The SymPy set of real numbers that a tree is. Raises :class:`UnknownError`."""
    kind, parts = node
    if kind == "reals":
        return sympy.S.Reals
    if kind == "empty":
        return sympy.S.EmptySet
    if kind == "set":
        return sympy.FiniteSet(*map(expression, parts))
    if kind == "interval":
        low, high = expression(parts[0]), expression(parts[1])
        if not (low.is_extended_real and high.is_extended_real and (low < high) == True):  # noqa: E712
            raise UnknownError("An interval whose ends are in no order.")
        return sympy.Interval(low, high, parts[2] == "(", parts[3] == ")")
    if kind == "tuple" and len(parts) == 2:
        return set_of(Node("interval", (*parts, "(", ")")))
    if kind in ("cup", "cap", "minus"):
        first, second = map(set_of, parts)
        made = {"cup": sympy.Union, "cap": sympy.Intersection, "minus": sympy.Complement}[kind]
        return made(first, second)
    raise UnknownError(kind)


_RELATIONS = {
    "=": sympy.Eq, "\\ne": sympy.Ne, "<": sympy.Lt, ">": sympy.Gt, "\\le": sympy.Le,
    "\\ge": sympy.Ge,
}  # fmt: skip


def solutions(node: Node) -> tuple[Any | None, Any]:
    """The one unknown of a condition, where it has one, and the set of its real solutions.

    Raises :class:`UnknownError`.
    """
    if node.kind == "solved":
        return expression(node.parts[0]), set_of(node.parts[1])
    if node.kind == "named" and node.parts[0].kind == "sym":
        return expression(node.parts[0]), solutions(node.parts[1])[1]
    if node.kind in ("list", "set"):
        return None, sympy.FiniteSet(*map(expression, node.parts))
    if node.kind != "relation":
        try:
            return None, set_of(node)
        except UnknownError:
            return None, sympy.FiniteSet(expression(node))
    sides, signs = [expression(side) for side in node.parts[0]], node.parts[1]
    found = sympy.S.Reals
    unknowns = set().union(*(side.free_symbols for side in sides))
    if len(unknowns) != 1:
        raise UnknownError("A condition on several unknowns.")
    for left, sign, right in zip(sides, signs, sides[1:], strict=False):
        found = found.intersect(_RELATIONS[sign](left, right).as_set())
    return unknowns.pop(), found
