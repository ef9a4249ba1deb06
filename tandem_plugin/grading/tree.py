"""The result of reading a text: a tree of typed nodes, compared by value. Kinds and their parts:

========== =====================================================================================
num        a Fraction; the decimal place of its last digit where it was measured, else None
sym, const a name; ``pi``, ``e``, ``i`` and ``infinity`` are constants
sum, mul   terms, factors
neg, div, pow, call, apply   one, two, two; a function's name and arguments; a symbol and arguments
big        ``sum``, ``prod``, ``int``, ``lim``; its body, its variable, its bounds
matrix     rows, each a tuple of entries
quantity   a value and the name of its unit; percent: a value
list, set, tuple   parts
interval   two ends, and the brackets at them
cup, cap, minus    two sets; reals, empty: none
relation   sides and signs in turn
named      the left side of an equals sign, and its value
solved     a variable, or None for one that is bound, and the set of its values
ratio, time, words   their parts, as written
based      the digits of a numeral, and its base
joined     the sign between numbers, and the numbers as written: a date, a score or a range
========== =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple


class Node(NamedTuple):
    """One node; two are equal where kind and parts are."""

    kind: str
    parts: tuple[Any, ...] = ()


class UndefinedError(ArithmeticError):
    """A tree divides by zero."""


class UnreadableError(ValueError):
    """A text is nothing that the reader knows."""


INFINITY = Node("const", ("infinity",))
SCALARS = frozenset(
    ("num", "sym", "const", "sum", "mul", "neg", "div", "pow", "call", "apply", "big", "degrees",
     "matrix")
)  # fmt: skip
"""The kinds of expressions: what arithmetic applies to."""
SETS = frozenset(("interval", "set", "cup", "cap", "minus", "reals", "empty"))
"""The kinds of sets of real numbers."""
_TOLERANCE = Fraction(1, 10_000)
"""Relative, against a measured gold, as in Qwen2.5-Math's evaluation (``numeric_equal``)."""
TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
"""Every sign, and the sign after its sides change places."""
_MAX_BITS = 20_000
_MAX_FACTORIAL = 500


def num(value: Fraction | int, place: int | None = None) -> Node:
    """A number; ``place`` is the place of its last decimal digit, where it was measured."""
    return Node("num", (Fraction(value), place))


def exact(node: Node) -> Fraction | None:
    """The rational number that a tree is by arithmetic alone, or None.

    Raises :class:`UndefinedError`. Numbers stay below twenty thousand bits.
    """
    kind, parts = node
    if kind == "num":
        return parts[0]  # type: ignore[no-any-return]
    if kind not in ("neg", "sum", "mul", "div", "pow", "call"):
        return None
    if kind == "call":
        return _called(parts)
    values = [exact(part) for part in parts]
    if None in values:
        return None
    result = _computed(kind, values)  # type: ignore[arg-type]
    return result if result is not None and _bits(result) <= _MAX_BITS else None


def _computed(kind: str, values: list[Fraction]) -> Fraction | None:
    if kind == "neg":
        return -values[0]
    if kind == "sum":
        return sum(values, Fraction(0))
    if kind == "mul":
        return math.prod(values, start=Fraction(1))
    base, second = values
    if kind == "div":
        if second == 0:
            raise UndefinedError
        return base / second
    if second.denominator != 1 or abs(second) * max(_bits(base), 1) > _MAX_BITS:
        return None
    if base == 0 and second <= 0:
        if second == 0:
            return None
        raise UndefinedError
    return base ** int(second)


def _called(parts: tuple[Any, ...]) -> Fraction | None:
    name, *arguments = parts
    if name not in ("factorial", "binomial"):
        return None
    values = [exact(argument) for argument in arguments]
    if any(v is None or v.denominator != 1 or not 0 <= v <= _MAX_FACTORIAL for v in values):
        return None
    numbers = [int(v) for v in values if v is not None]
    return Fraction(math.factorial(*numbers) if name == "factorial" else math.comb(*numbers))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def measured_place(node: Node) -> int | None:
    """The decimal place of the last digit of a number that was measured or rounded, else None."""
    kind, parts = node
    if kind == "num":
        return parts[1]  # type: ignore[no-any-return]
    if kind in ("neg", "quantity"):
        return measured_place(parts[0])
    if kind == "mul" and [part.kind for part in parts] == ["num", "pow"]:
        base, power = map(exact, parts[1].parts)
        if base == 10 and power is not None and power.denominator == 1:
            return (parts[0].parts[1] or 0) + int(power)
    return None


def rounds_to(value: Fraction, gold: Fraction, gold_place: int, place: int | None = None) -> bool:
    """Whether one of a measured gold and a value is the other, rounded, within the tolerance.

    places: those of the last decimal digits; None for a value that was not measured.
    """
    gap = abs(value - gold)
    last = gold_place if place is None else max(place, gold_place)
    return gap <= _TOLERANCE * max(abs(gold), abs(value)) and gap <= Fraction(10) ** last / 2


def shows(digits: Fraction, value: Fraction, place: int) -> bool:
    """Whether a decimal is a value rounded or cut off at the decimal's last digit."""
    unit = Fraction(10) ** place
    is_cut_off = place < 0 and 0 <= (value - digits) * (1 if value > 0 else -1) < unit
    return is_cut_off or abs(value - digits) <= unit / 2 * (1 if place < 0 else Fraction(9, 10))


def parts_of(node: Node) -> Iterator[Node]:
    """A tree and all trees in it."""
    yield node
    for part in node.parts:
        for child in part if type(part) is tuple else (part,):
            if isinstance(child, Node):
                yield from parts_of(child)


def names_of(node: Node) -> frozenset[str]:
    """The names of all symbols in a tree."""
    return frozenset(tree.parts[0] for tree in parts_of(node) if tree.kind == "sym")


INVERSE = (Node("neg", (num(1),)), Node("sym", ("T",)))
"""The exponents of an inverse and of a transpose."""


def is_name(node: Node, strictly: bool = False) -> bool:
    """Whether a tree names a quantity and computes nothing.

    strictly: no sum, product or quotient of small letters, whose equation may be a curve.
    """
    kind, parts = node
    if kind in ("sym", "apply", "words"):
        return True
    if kind == "call":
        is_computed = parts[0] in ("factorial", "binomial", "det") or len(parts) != 2
        return not is_computed and is_name(parts[1])
    if kind == "mul":
        symbols = [part.parts[0] for part in parts if part.kind == "sym"]
        capitals = all(name[:1].isupper() or ":" in name or name == "m" for name in symbols)
        return len(symbols) == len(parts) and (capitals or not strictly)
    if kind == "pow":  # the inverse of a matrix, its transpose
        return parts[0].kind == "sym" and parts[1] in INVERSE
    if kind == "tuple":
        return all(part.kind == "sym" for part in parts)
    if kind == "div" and strictly and "sym" in {part.kind for part in parts}:
        return False
    return (kind in ("ratio", "div") or (kind == "sum" and not strictly)) and all(
        is_name(part, strictly and kind == "div") for part in parts
    )
