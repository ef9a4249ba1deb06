"""Compares two trees: first their kinds, then their values, by computer algebra if need be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from tandem_plugin.grading.tree import (
    SCALARS,
    SETS,
    TURNED,
    Node,
    exact,
    is_name,
    measured_place,
    names_of,
    num,
    rounds_to,
    shows,
)  # fmt: skip


class Decision(NamedTuple):
    """Whether the answer is equal, and the rule that decided it."""

    is_equal: bool
    rule: str


Proof: TypeAlias = Callable[[Node, Node], Decision]
"""Computer algebra: whether two values, equations or sets are equal."""


class OpenError(Exception):
    """Only computer algebra could tell, and there is none here."""


def _all(decisions: Iterable[Decision], rule: str) -> Decision:
    """Equal where all are; else the first that is not."""
    return next((decision for decision in decisions if not decision.is_equal), Decision(True, rule))


class Comparison:
    """Decides about pairs of trees, by the row of ``_RULES`` for their kinds.

    Raises :class:`UndefinedError` where a tree divides by zero, and :class:`OpenError`.
    """

    def __init__(self, proof: Proof | None) -> None:
        self._proof = proof

    def of(self, gold: Node, answer: Node) -> Decision:
        kinds = {gold.kind, answer.kind}
        if kinds <= SCALARS and kinds != {"matrix"}:
            return self._values(gold, answer)
        if gold == answer:
            return Decision(True, "same")
        rule = next(rule for some, rule in _RULES if not some or kinds & some)
        return rule(self, gold, answer)

    def _proven(self, gold: Node, answer: Node) -> Decision:
        if self._proof is None:
            raise OpenError
        return self._proof(gold, answer)

    def _pairs(self, gold: Iterable[Node], answer: Iterable[Node], rule: str) -> Decision:
        return _all((self.of(*pair) for pair in zip(gold, answer, strict=True)), rule)

    def _values(self, gold: Node, answer: Node) -> Decision:
        """Rational numbers exactly; what is measured by its digits."""
        gold_value, answer_value = exact(gold), exact(answer)
        if gold == answer:
            return Decision(True, "same")
        if gold_value is None or answer_value is None:
            return self._proven(gold, answer)
        if gold_value == answer_value:
            return Decision(True, "number")
        place, its_place = measured_place(gold), measured_place(answer)
        is_whole = gold_value.denominator == answer_value.denominator == 1 and its_place is None
        if (
            not is_whole
            and place is not None
            and rounds_to(answer_value, gold_value, place, its_place)
        ):
            return Decision(True, "tolerance")
        return Decision(False, "number")

    def _approximations(self, gold: Node, answer: Node) -> Decision:
        r"""``\frac13\approx0.333`` is a third, where what follows is that rounded."""
        if gold.kind == "approx":
            is_equal = any(self.of(part, answer).is_equal for part in gold.parts)
            return Decision(is_equal, "approximation")
        value, *rounded = answer.parts
        return _all(
            (self.of(gold, value), *(self._rounding(shown, value) for shown in rounded)),
            "approximation",
        )

    def _rounding(self, shown: Node, value: Node) -> Decision:
        """Whether a decimal is a value rounded or cut off at the decimal's last digit."""
        digits, exact_value = (exact(_unwrapped(node)) for node in (shown, value))
        if digits is not None and exact_value is None:
            return self._proven(Node("rounded", (shown,)), value)
        is_shown = digits is not None and shows(digits, exact_value, measured_place(shown) or 0)  # type: ignore[arg-type]
        return Decision(is_shown, "approximation")

    def _names(self, gold: Node, answer: Node) -> Decision:
        """``x = 5`` is 5 if the other side has no name; in a chain every value must be equal.

        An equation that names a sum or a product may be a curve: as a gold it is no value.
        """
        if "relation" in (gold.kind, answer.kind):
            return self._relations(_as_relation(gold), _as_relation(answer))
        if gold.kind != "named":
            if gold.kind == "solved":
                return Decision(False, "kind")
            return _all((self.of(gold, value) for value in answer.parts[1:]), "equation")
        name, value = gold.parts[:2]
        if answer.kind == "named":
            answer = _in_order_of(name, answer)
            if name == answer.parts[0] or _are_same_function(name, answer.parts[0]):
                return _all((self.of(value, part) for part in answer.parts[1:]), "equation")
            return self._relations(_as_relation(gold), _as_relation(answer))
        may_be_curve = all(side.kind == "mul" and is_name(side) for side in gold.parts[:2])
        if may_be_curve or not is_name(name, strictly=True):
            return Decision(False, "equation")
        if answer.kind == "solved" and answer.parts[0] not in (None, name):
            return Decision(False, "variable")
        return self.of(value, answer)

    def _relations(self, gold: Node, answer: Node) -> Decision:
        """Side by side, turned around, or up to a factor; an unsolved one is no solution."""
        if gold.kind != answer.kind:
            if (
                gold.kind == "relation"
                and set(gold.parts[1]) <= _ORDERS
                and (answer.kind == "solved" or _interval(answer).kind in SETS)
            ):  # the response has solved what the gold leaves unsolved
                return self._proven(Node("solutions", (gold,)), Node("solutions", (answer,)))
            is_chain = answer.kind == "relation" and set(answer.parts[1]) == {"="}
            if is_chain and gold.kind in SCALARS and not any(map(names_of, answer.parts[0])):
                # 2 + 3 = 5 is 5: a true chain without a name
                return _all((self.of(gold, side) for side in answer.parts[0]), "equation")
            return Decision(False, "relation")
        (sides, signs), (answer_sides, its_signs) = gold.parts, answer.parts
        turned = tuple(TURNED[sign] for sign in reversed(its_signs))
        for way, way_signs in ((answer_sides, its_signs), (answer_sides[::-1], turned)):
            if tuple(way_signs) == tuple(signs):
                decision = self._pairs(sides, way, "relation")
                if decision.is_equal:
                    return decision
        is_one = len(signs) == len(its_signs) == 1 and signs[0] in (its_signs[0], turned[0])
        if not is_one or any(side.kind not in SCALARS for side in (*sides, *answer_sides)):
            return Decision(False, "relation")
        return self._proven(gold, answer)

    def _memberships(self, gold: Node, answer: Node) -> Decision:
        r"""``x > 1``, ``x \in (1,\infty)`` and ``\{x : x > 1\}`` are the set; of one variable."""
        (name, gold_set), (answer_name, answer_set) = (
            node.parts if node.kind == "solved" else (None, node) for node in (gold, answer)
        )
        if name is not None and answer_name is not None and name != answer_name:
            return Decision(False, "variable")
        if {gold_set.kind, answer_set.kind} == {"set", "list"}:  # x is one of 1 and 2
            return self._unordered(gold_set, answer_set)
        gold_set, answer_set = _interval(gold_set), _interval(answer_set)
        if not {gold_set.kind, answer_set.kind} <= SETS:
            return Decision(False, "kind")
        return self.of(gold_set, answer_set)

    def _percent(self, gold: Node, answer: Node) -> Decision:
        """A percentage is its number over 100; its sign may be missing, from 1 percent on."""
        gold_value, answer_value = (
            n.parts[0] if n.kind == "percent" else n for n in (gold, answer)
        )
        if {gold_value.kind, answer_value.kind} & _AS_WRITTEN:
            return self.of(gold_value, answer_value)
        if not {gold_value.kind, answer_value.kind} <= SCALARS:
            return Decision(False, "kind")
        value = exact(gold_value)
        if gold.kind == "percent" or value is None or abs(value) >= 1:
            decision = self._values(gold_value, answer_value)
            if decision.is_equal or gold.kind == answer.kind:
                return decision
        if gold.kind == "percent":
            return self._values(gold_value, Node("mul", (num(100), answer_value)))
        return self._values(gold, Node("div", (answer_value, num(100))))

    def _quantities(self, gold: Node, answer: Node) -> Decision:
        """Two units must be the same; one that is missing is not missed. Nothing is converted."""
        if gold.kind == answer.kind and gold.parts[1] != answer.parts[1]:
            return Decision(False, "unit")
        gold_value, answer_value = _unwrapped(gold), _unwrapped(answer)
        if {gold_value.kind, answer_value.kind} & _AS_WRITTEN:
            return self.of(gold_value, answer_value)
        if not {gold_value.kind, answer_value.kind} <= SCALARS:
            return Decision(False, "kind")
        return self._values(gold_value, answer_value)

    def _ratios(self, gold: Node, answer: Node) -> Decision:
        """Times and ratios as they are written; rational ratios without a zero in proportion."""
        kinds = {gold.kind, answer.kind}
        if not kinds <= {"time", "ratio"}:
            return Decision(False, "kind")
        if kinds == {"time"}:  # one may leave out the half of the day
            halves = {gold.parts[2], answer.parts[2]} - {""}
            return Decision(gold.parts[:2] == answer.parts[:2] and len(halves) < 2, "time")
        gold_parts, answer_parts = (
            n.parts if n.kind == "time" else tuple(map(exact, n.parts)) for n in (gold, answer)
        )
        if len(kinds) == 2:  # an hour with its half of the day is no ratio
            return Decision((*gold_parts, "")[:3] == (*answer_parts, "")[:3], "ratio")
        if len(gold_parts) != len(answer_parts):
            return Decision(False, "count")
        if None in (*gold_parts, *answer_parts) or 0 in (
            *gold_parts,
            *answer_parts,
        ):  # 3:0 is a score
            return self._pairs(gold.parts, answer.parts, "ratio")
        same = all(
            w * answer_parts[0] == g * gold_parts[0]
            for w, g in zip(gold_parts, answer_parts, strict=True)
        )
        return Decision(same, "ratio")

    def _based(self, gold: Node, answer: Node) -> Decision:
        """The same digits in the same base; a gold's base may be missing, base ten is plain."""
        based, number = (gold, answer) if gold.kind == "based" else (answer, gold)
        digits, base = based.parts
        value = exact(number) if number.kind in SCALARS else None
        if base == 10:
            return Decision(value is not None and value == Fraction(digits), "base")
        is_plain = number.kind == "num" or (number.kind == "neg" and number.parts[0].kind == "num")
        return Decision(based is gold and is_plain and str(value) == digits, "base")

    def _joined(self, gold: Node, answer: Node) -> Decision:
        """Dates, scores and ranges equal only themselves, which is decided before."""
        return Decision(False, "joined" if gold.kind == answer.kind else "kind")

    def _collections(self, gold: Node, answer: Node) -> Decision:
        """Sets and bare lists in any order, all else in order, sets of numbers by their algebra."""
        kinds = {gold.kind, answer.kind}
        if kinds <= {"set", "list"}:
            return self._unordered(gold, answer)
        if kinds <= _ORDERED:
            return self._ordered(gold, answer)
        if kinds <= SETS | {"tuple"} and not ("set" in kinds and kinds & {"tuple", "interval"}):
            return self._sets(_interval(gold), _interval(answer))
        if "set" in kinds and kinds & SCALARS:
            sides = [node.parts if node.kind == "set" else (node,) for node in (gold, answer)]
            if len(sides[0]) == len(sides[1]):
                return self.of(sides[0][0], sides[1][0])
        return Decision(False, "kind")

    def _ordered(self, gold: Node, answer: Node) -> Decision:
        """Part by part; the brackets of an interval must agree, a bare list has none."""
        (gold_parts, brackets), (answer_parts, answer_brackets) = (
            _flat(node, gold.kind == answer.kind) for node in (gold, answer)
        )
        has_ends = gold.kind != answer.kind and "list" in (gold.kind, answer.kind)
        if (brackets != answer_brackets and gold.kind != "matrix" != answer.kind) or (
            has_ends and ("infinity" in f"{gold}{answer}" or "interval" in (gold.kind, answer.kind))
        ):
            return Decision(False, "kind")
        if len(gold_parts) != len(answer_parts) or brackets != answer_brackets:
            return Decision(False, "count")
        return self._pairs(gold_parts, answer_parts, "parts")

    def _unordered(self, gold: Node, answer: Node) -> Decision:
        gold_parts, remaining = list(gold.parts), list(answer.parts)
        are_points = all(part.kind == "tuple" for part in (*gold_parts, *remaining))
        if are_points or "set" in (gold.kind, answer.kind):  # what is there twice is there once
            gold_parts, remaining = list(dict.fromkeys(gold_parts)), list(dict.fromkeys(remaining))
        if len(gold_parts) != len(remaining):
            return Decision(False, "count")
        if gold.kind == answer.kind == "list" and gold_parts[0].kind in ("named", "solved"):
            return self._pairs(gold_parts, remaining, "parts")
        for part in gold_parts:
            same = (i for i, candidate in enumerate(remaining) if self.of(part, candidate).is_equal)
            place = remaining.index(part) if part in remaining else next(same, None)
            if place is None:
                return Decision(False, "parts")
            del remaining[place]
        return Decision(True, "parts")

    def _sets(self, gold: Node, answer: Node) -> Decision:
        """Unions of as many pieces piece by piece; else by the algebra of sets."""
        gold_pieces, answer_pieces = _pieces(gold), _pieces(answer)
        if len(gold_pieces) == len(answer_pieces) > 1:
            decision = self._unordered(Node("list", gold_pieces), Node("list", answer_pieces))
            if decision.is_equal:
                return decision
        return self._proven(gold, answer)


_ORDERS = frozenset(("<", ">", "\\le", "\\ge", "\\ne"))
_AS_WRITTEN = frozenset(("based", "joined"))
_ORDERED = frozenset(("tuple", "interval", "list", "matrix"))
_RULES: tuple[tuple[frozenset[str], Callable[[Comparison, Node, Node], Decision]], ...] = (
    (frozenset(("approx",)), Comparison._approximations),
    (frozenset(("named",)), Comparison._names),
    (frozenset(("relation",)), Comparison._relations),
    (frozenset(("solved",)), Comparison._memberships),
    (frozenset(("percent",)), Comparison._percent),
    (frozenset(("quantity",)), Comparison._quantities),
    (frozenset(("time", "ratio")), Comparison._ratios),
    (frozenset(("based",)), Comparison._based),
    (frozenset(("joined",)), Comparison._joined),
    (frozenset(), Comparison._collections),
)
"""The first row that has the kind of either side decides; the last has every kind."""


def _unwrapped(node: Node) -> Node:
    return _unwrapped(node.parts[0]) if node.kind in ("quantity", "percent") else node


def _interval(node: Node) -> Node:
    is_pair = node.kind == "tuple" and len(node.parts) == 2
    return Node("interval", (*node.parts, "(", ")")) if is_pair else node


def _flat(node: Node, keeps_shape: bool) -> tuple[tuple[Node, ...], str]:
    """Parts in order, and the brackets or the shape that the other side must have."""
    if node.kind == "interval":
        return node.parts[:2], "".join(node.parts[2:])
    if node.kind != "matrix":
        return node.parts, "()"
    shape = f"{len(node.parts)} x {len(node.parts[0])}"
    is_vector = not keeps_shape and shape.startswith("1 ") | shape.endswith(" 1")
    return tuple(entry for row in node.parts for entry in row), "()" if is_vector else shape


def _pieces(node: Node) -> tuple[Node, ...]:
    if node.kind != "cup":
        return (_interval(node),)
    return tuple(piece for part in node.parts for piece in _pieces(part))


def _in_order_of(names: Node, answer: Node) -> Node:
    """``y = 2, x = 1`` as ``x = 1, y = 2`` where the gold has that order."""
    answer_names, value = answer.parts[:2]
    if not answer_names.kind == names.kind == value.kind == "tuple" or set(
        answer_names.parts
    ) != set(names.parts):
        return answer
    values = dict(zip(answer_names.parts, value.parts, strict=True))
    return Node("named", (names, Node("tuple", tuple(values[name] for name in names.parts))))


def _are_same_function(first: Node, second: Node) -> bool:
    """``y = ...`` and ``f(x) = ...`` name the same thing."""
    return {first.kind, second.kind} == {"apply", "sym"} and Node("sym", ("y",)) in (first, second)


def _as_relation(node: Node) -> Node:
    """A name and its value as the two sides of an equation; anything else as it is."""
    return Node("relation", (node.parts[:2], ("=",))) if node.kind == "named" else node
