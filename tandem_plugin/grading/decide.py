"""Whether an answer equals a gold: kinds first, then exact arithmetic; a worker does the rest.

The calling process decides with these rules alone. A worker decides with the same rules and asks
computer algebra (``proof``) about what they leave open. Nothing is equal that was not proven equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from tandem_plugin.grading.answers import UnreadableError, read, words_of
from tandem_plugin.grading.kinds import TURNED, is_name
from tandem_plugin.grading.spelling import same_text
from tandem_plugin.grading.tree import Node, UndefinedError, exact, measured_place, names_of

__all__ = ["AS_WRITTEN", "TOLERANCE", "Decision", "Proof", "decide", "rounds_to", "shows"]

TOLERANCE = Fraction(1, 10_000)
"""Relative, against a measured gold: that of Qwen2.5-Math's evaluation (``numeric_equal``)."""


AS_WRITTEN = ("text", "same", "choice", "words")
"""The rules of an answer that is the gold as it is written."""


class Decision(NamedTuple):
    """Whether the answer is equal, and the rule that says so."""

    is_equal: bool
    rule: str


Proof: TypeAlias = Callable[[Node, Node], Decision]
"""Computer algebra's word on two trees: values, equations, or sets."""

_CHOICE = re.compile(r"(?P<mark>\\text ?\{|\()?[ (]*(?P<letter>[A-Ja-j])(?P<stop>[ ).:}]*)")
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_CAPITALS = re.compile(r"[A-Z]{3,26}")
"""Three capitals and more are an order or a name, no product."""
_SCALARS_WORDS = "num sym const sum mul neg div pow call apply big degrees"
_SCALARS = frozenset(_SCALARS_WORDS.split())
_SETS_WORDS = "interval set cup cap minus reals empty"
_SETS = frozenset(_SETS_WORDS.split())
_ORDERED_WORDS = "tuple interval list matrix"
_ORDERED = frozenset(_ORDERED_WORDS.split())


def decide(
    gold: str, answer: str, proof: Proof | None = None, lenient: bool = False
) -> Decision | None:
    """Compare two spelled texts; None where only computer algebra could tell and none is given.

    lenient: let computer algebra solve what the answer left unsolved.
    """
    if same_text(gold, answer):
        return Decision(True, "text")
    if (decision := _choice(gold, answer) or _words(gold, answer)) is not None:
        return decision
    try:
        wanted = read(gold)
    except (UnreadableError, RecursionError):
        return Decision(False, "unread_gold")
    try:
        given = read(answer)
    except (UnreadableError, RecursionError):
        return Decision(False, "unread_answer")
    try:
        decision = _compare(wanted, given, proof)
    except UndefinedError:
        return Decision(False, "undefined")
    except RecursionError:
        return Decision(False, "too_deep")
    if lenient and decision is not None and not decision.is_equal and _is_condition(wanted, given):
        question = (Node("solutions", (wanted,)), Node("solutions", (given,)))
        return proof(*question) if proof is not None else None
    return decision


def _is_condition(*nodes: Node) -> bool:
    """Whether one of two trees is an equation or inequality, solved or not."""
    return any(node.kind in ("relation", "solved", "named") for node in nodes)


def rounds_to(value: Fraction, gold: Fraction, gold_place: int, place: int | None = None) -> bool:
    """Whether one of a measured gold and a value is the other, rounded, within the tolerance.

    places: those of the last decimal digits; None for a value that was not measured.
    """
    gap = abs(value - gold)
    last = gold_place if place is None else max(place, gold_place)
    return gap <= TOLERANCE * max(abs(gold), abs(value)) and gap <= Fraction(10) ** last / 2


def shows(digits: Fraction, value: Fraction, place: int) -> bool:
    """Whether a decimal is a value rounded or cut off at the decimal's last digit."""
    unit = Fraction(10) ** place
    is_cut_off = place < 0 and 0 <= (value - digits) * (1 if value > 0 else -1) < unit
    return is_cut_off or abs(value - digits) <= unit / 2 * (1 if place < 0 else Fraction(9, 10))


def _choice(gold: str, answer: str) -> Decision | None:
    """One letter from A to J, in brackets or not; a small one only where there are brackets."""
    wanted, given = _CHOICE.fullmatch(gold), _CHOICE.fullmatch(answer)
    if wanted is None or given is None or not wanted["letter"].isupper():
        return None
    marked = any(match["mark"] or match["stop"].strip() for match in (wanted, given))
    letter = given["letter"].upper() if marked else given["letter"]
    return Decision(wanted["letter"] == letter, "choice")


def _words(gold: str, answer: str) -> Decision | None:
    """Words are equal without regard to case and space; a name in capitals only to itself."""
    if _CAPITALS.fullmatch(gold) and _CAPITALS.fullmatch(answer):
        return Decision(gold == answer, "words")
    wanted, given = words_of(gold), words_of(answer)
    if wanted is None and given is None:
        spoken = [" ".join(_TEXT.sub(r"\1", text).split()) for text in (gold, answer)]
        is_same = spoken[0] == spoken[1] and re.search("[A-Za-z]{3}", spoken[0]) is not None
        return Decision(True, "words") if is_same and "\\text" in gold + answer else None
    if wanted == given:
        return Decision(True, "words")
    if wanted is not None and given is not None:
        return Decision(False, "words")
    plain = [re.sub(r"\\(?:text|mathrm)|[{} ]", "", text) for text in (gold, answer)]
    return Decision(True, "words") if plain[0] == plain[1] else None


def _compare(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    if gold == answer:
        return Decision(not _is_undefined(gold), "same")
    for rule in (_approximations, _names, _relations, _memberships, _quantities, _parts):
        if gold.kind in _SCALARS and answer.kind in _SCALARS:
            return _values(gold, answer, proof)
        found, decision = rule(gold, answer, proof)
        if found:
            return decision
    return Decision(False, "kind")


def _is_undefined(node: Node) -> bool:
    try:
        exact(node)
    except UndefinedError:
        return True
    return False


_Found: TypeAlias = tuple[bool, Decision | None]
_NOT_MINE: _Found = (False, None)


def _values(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    """Rational numbers exactly; what is measured by its digits."""
    if gold == answer:
        return Decision(not _is_undefined(gold), "same")
    wanted, given = exact(gold), exact(answer)
    if wanted is None or given is None:
        return proof(gold, answer) if proof is not None else None
    if wanted == given:
        return Decision(True, "number")
    place = measured_place(gold)
    if wanted.denominator == given.denominator == 1 and measured_place(answer) is None:
        return Decision(False, "number")
    if place is not None and rounds_to(given, wanted, place, measured_place(answer)):
        return Decision(True, "tolerance")
    return Decision(False, "number")


def _all(decisions: list[Decision | None], rule: str) -> Decision | None:
    """Equal where all are; unequal where one is; else open."""
    for decision in decisions:
        if decision is not None and not decision.is_equal:
            return decision
    return None if None in decisions else Decision(True, rule)


def _approximations(gold: Node, answer: Node, proof: Proof | None) -> _Found:
    r"""``\frac13\approx0.333`` is a third, where what follows is that rounded."""
    if gold.kind == "approx":
        decisions = [_compare(part, answer, proof) for part in gold.parts]
        if any(decision and decision.is_equal for decision in decisions):
            return True, Decision(True, "approximation")
        return True, None if None in decisions else Decision(False, "approximation")
    if answer.kind != "approx":
        return _NOT_MINE
    value, *rounded = answer.parts
    decisions = [_compare(gold, value, proof)]
    for one in rounded:
        if _digits(one) is None:
            return True, Decision(False, "approximation")
        rounding = Node("rounded", (one,))
        decisions.append(_rounding(rounding, value, proof))
    return True, _all(decisions, "approximation")


def _digits(node: Node) -> Fraction | None:
    while node.kind in ("quantity", "percent"):
        node = node.parts[0]
    return exact(node)


def _rounding(rounded: Node, value: Node, proof: Proof | None) -> Decision | None:
    """Whether a decimal is a value rounded or cut off at the decimal's last digit."""
    shown = rounded.parts[0]
    digits, known = _digits(shown), _digits(value)
    assert digits is not None
    if known is None:
        return proof(rounded, value) if proof is not None else None
    return Decision(shows(digits, known, measured_place(shown) or 0), "approximation")


def _names(gold: Node, answer: Node, proof: Proof | None) -> _Found:
    """``x = 5`` is 5 where the other side has no name; ``4 = 5`` and ``2x = 10`` are no 5.

    Of a chain every value must equal the gold. An equation that names a sum or a product may be a
    curve: as a gold it is no value.
    """
    if gold.kind == "named" and answer.kind == "named":
        name, value = gold.parts[:2]
        answer = _in_order_of(name, answer)
        if name == answer.parts[0] or _are_same_function(gold, answer):
            return True, _all([_compare(value, v, proof) for v in answer.parts[1:]], "equation")
        return True, _equations(_as_relation(gold), _as_relation(answer), proof)
    if answer.kind == "named":
        if gold.kind == "relation":
            return True, _equations(gold, _as_relation(answer), proof)
        if gold.kind in ("solved", "member", "builder"):
            return True, Decision(False, "kind")
        return True, _all([_compare(gold, v, proof) for v in answer.parts[1:]], "equation")
    if gold.kind == "named":
        if answer.kind == "relation":
            return True, _equations(_as_relation(gold), answer, proof)
        if not is_name(gold.parts[0], strictly=True) or _equates_names(gold):
            return True, Decision(False, "equation")
        return True, _compare(gold.parts[1], answer, proof)
    return _NOT_MINE


def _in_order_of(names: Node, answer: Node) -> Node:
    """``y = 2, x = 1`` as ``x = 1, y = 2`` where the gold has that order."""
    own, value = answer.parts[:2]
    if not own.kind == names.kind == value.kind == "tuple" or set(own.parts) != set(names.parts):
        return answer
    values = dict(zip(own.parts, value.parts, strict=True))
    return Node("named", (names, Node("tuple", tuple(values[name] for name in names.parts))))


def _equates_names(gold: Node) -> bool:
    return all(side.kind == "mul" and is_name(side) for side in gold.parts[:2])


def _are_same_function(gold: Node, answer: Node) -> bool:
    """``y = ...`` and ``f(x) = ...`` name the same thing."""
    kinds = {gold.parts[0].kind, answer.parts[0].kind}
    y = Node("sym", ("y",))
    return kinds == {"apply", "sym"} and y in (gold.parts[0], answer.parts[0])


def _as_relation(named: Node) -> Node:
    return Node("relation", ((named.parts[0], named.parts[1]), ("=",)))


def _equations(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    """Equations up to a constant factor; all others side by side, or turned around."""
    (sides, signs), (other_sides, other_signs) = gold.parts, answer.parts
    if len(sides) == len(other_sides):
        turned = [TURNED[sign] for sign in reversed(other_signs)]
        for way, its_signs in ((other_sides, list(other_signs)), (other_sides[::-1], turned)):
            if its_signs == list(signs):
                decision = _all(
                    [_compare(*pair, proof) for pair in zip(sides, way, strict=True)], "relation"
                )
                if decision is None or decision.is_equal:
                    return decision
    if (
        len(sides) != 2
        or len(other_sides) != 2
        or (signs[0] != other_signs[0] and (TURNED[signs[0]] != other_signs[0]))
    ):
        return Decision(False, "relation")
    if any(side.kind not in _SCALARS for side in (*sides, *other_sides)):
        return Decision(False, "relation")
    return proof(gold, answer) if proof is not None else None


def _relations(gold: Node, answer: Node, proof: Proof | None) -> _Found:
    """A relation that is not solved equals no solution, and no value."""
    if gold.kind == "relation" and answer.kind == "relation":
        return True, _equations(gold, answer, proof)
    is_chain = answer.kind == "relation" and set(answer.parts[1]) == {"="}
    if is_chain and gold.kind in _SCALARS and not any(map(names_of, answer.parts[0])):
        # 2 + 3 = 5 is 5: a true chain without a name
        sides = [_compare(gold, side, proof) for side in answer.parts[0]]
        return True, _all(sides, "equation")
    if "relation" in (gold.kind, answer.kind):
        return True, Decision(False, "relation")
    return _NOT_MINE


def _memberships(gold: Node, answer: Node, proof: Proof | None) -> _Found:
    r"""``x > 1``, ``x \in (1,\infty)`` and ``\{x : x > 1\}`` are the set; of one variable."""
    kinds = ("solved", "member", "builder")
    if gold.kind not in kinds and answer.kind not in kinds:
        return _NOT_MINE
    pairs = [_set_of(side) if side.kind in kinds else (None, side) for side in (gold, answer)]
    (name, wanted), (other, given) = pairs
    if name is not None and other is not None and name != other:
        return True, Decision(False, "variable")
    if any(part.kind not in _SETS and not _may_be_interval(part) for part in (wanted, given)):
        return True, Decision(False, "kind")
    return True, _compare(_interval(wanted), _interval(given), proof)


def _set_of(node: Node) -> tuple[Node | None, Node]:
    """The variable that a condition is about, where that matters, and the set that it describes."""
    name, inner = node.parts
    if node.kind == "builder":
        if inner.kind == "solved" and inner.parts[0] == name:
            return None, inner.parts[1]
        return name, Node("condition", (inner,))
    return name, inner


def _may_be_interval(node: Node) -> bool:
    return node.kind == "tuple" and len(node.parts) == 2


def _interval(node: Node) -> Node:
    return Node("interval", (*node.parts, "(", ")")) if _may_be_interval(node) else node


def _quantities(gold: Node, answer: Node, proof: Proof | None) -> _Found:
    """Two units must be the same; one that is missing is not missed. Nothing is converted."""
    if "percent" in (gold.kind, answer.kind):
        return True, _percent(gold, answer, proof)
    if "quantity" not in (gold.kind, answer.kind):
        return _NOT_MINE
    if gold.kind == answer.kind and gold.parts[1] != answer.parts[1]:
        return True, Decision(False, "unit")
    wanted, given = (n.parts[0] if n.kind == "quantity" else n for n in (gold, answer))
    if wanted.kind not in _SCALARS or given.kind not in _SCALARS:
        return True, Decision(False, "kind")
    return True, _values(wanted, given, proof)


def _percent(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    """A percentage is its number over 100; its sign may be missing, from 1 percent on."""
    wanted, given = (n.parts[0] if n.kind == "percent" else n for n in (gold, answer))
    if wanted.kind not in _SCALARS or given.kind not in _SCALARS:
        return Decision(False, "kind")
    if gold.kind == answer.kind:
        return _values(wanted, given, proof)
    value = exact(wanted)
    if value is None or abs(value) >= 1 or gold.kind == "percent":
        decision = _values(wanted, given, proof)
        if decision is None or decision.is_equal:
            return decision
    hundred = Node("num", (Fraction(100), None))
    if gold.kind == "percent":
        return _values(wanted, Node("mul", (hundred, given)), proof)
    return _values(gold, Node("div", (given, hundred)), proof)


def _parts(gold: Node, answer: Node, proof: Proof | None) -> _Found:
    kinds = {gold.kind, answer.kind}
    if "matrix" in kinds and kinds & {"sum", "mul", "pow", "neg", "div"}:
        return True, proof(gold, answer) if proof is not None else None
    if kinds == {"time", "ratio"}:  # an hour with its half of the day is no ratio
        numbers = [
            n.parts if n.kind == "time" else (*map(exact, n.parts), "") for n in (gold, answer)
        ]
        return True, Decision(numbers[0] == numbers[1], "ratio")
    if kinds == {"ratio"}:
        return True, _ratios(gold, answer, proof)
    if kinds == {"time"}:
        same = gold.parts[:2] == answer.parts[:2]
        halves = {gold.parts[2], answer.parts[2]} - {""}
        return True, Decision(same and len(halves) < 2, "time")
    if "based" in kinds:
        return True, _based(gold, answer)
    if kinds <= {"set", "list"}:
        return True, _unordered(gold, answer, proof)
    for one, other in ((gold, answer), (answer, gold)):
        if one.kind == "set" and len(one.parts) == 1 and other.kind in _SCALARS:
            wanted, given = (one.parts[0], other) if one is gold else (other, one.parts[0])
            return True, _compare(wanted, given, proof)
    if kinds <= _ORDERED:
        return True, _ordered(gold, answer, proof)
    if kinds <= _SETS | {"tuple"} and not (kinds & {"set"} and kinds & {"tuple", "interval"}):
        return True, _sets(_interval(gold), _interval(answer), proof)
    return _NOT_MINE


def _ratios(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    """Part by part, or rational ones in proportion; what may be a time of day only as it is."""
    if len(gold.parts) != len(answer.parts):
        return Decision(False, "count")
    wanted, given = (tuple(map(exact, n.parts)) for n in (gold, answer))
    if None in wanted or None in given or not wanted[0] or not given[0]:
        pairs = zip(gold.parts, answer.parts, strict=True)
        return _all([_compare(*pair, proof) for pair in pairs], "ratio")
    same = all(
        w * given[0] == g * wanted[0]  # type: ignore[operator]
        for w, g in zip(wanted, given, strict=True)
    )
    return Decision(same, "ratio")


def _based(gold: Node, answer: Node) -> Decision:
    """The digits and the base; a gold's base may be missing in the answer."""
    if gold.kind == answer.kind:
        return Decision(gold.parts == answer.parts, "base")
    based, other = (gold, answer) if gold.kind == "based" else (answer, gold)
    value = exact(other) if other.kind in _SCALARS else None
    if value is None:
        return Decision(False, "base")
    if based is gold and str(value) == gold.parts[0]:
        return Decision(True, "base")
    return Decision(value == int(*based.parts), "base")


def _ordered(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    """Part by part; the brackets of an interval must agree, a bare list has none."""
    wanted, given = (_flat(node) for node in (gold, answer))
    if gold.kind == answer.kind == "matrix":
        if [len(row) for row in gold.parts] != [len(row) for row in answer.parts]:
            return Decision(False, "count")
        wanted, given = ((tuple(e for row in n.parts for e in row), "") for n in (gold, answer))
    elif wanted[1] != given[1] or (
        "list" in (gold.kind, answer.kind) and _reaches_infinity(gold, answer)
    ):
        return Decision(False, "kind")
    if len(wanted[0]) != len(given[0]):
        return Decision(False, "count")
    pairs = zip(wanted[0], given[0], strict=True)
    return _all([_compare(*pair, proof) for pair in pairs], "parts")


def _reaches_infinity(*nodes: Node) -> bool:
    return any("infinity" in str(node) for node in nodes)


def _flat(node: Node) -> tuple[tuple[Node, ...], str]:
    if node.kind == "matrix":
        if len(node.parts) > 1 and len(node.parts[0]) > 1:
            return (), "matrix"
        return tuple(entry for row in node.parts for entry in row), "()"
    if node.kind == "interval":
        return node.parts[:2], "".join(node.parts[2:])
    return node.parts, "()"


def _unordered(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    wanted, left = list(gold.parts), list(answer.parts)
    if "set" in (gold.kind, answer.kind):
        wanted, left = list(dict.fromkeys(wanted)), list(dict.fromkeys(left))
    if len(wanted) != len(left):
        return Decision(False, "count")
    if gold.kind == answer.kind == "list" and gold.parts[0].kind in ("named", "solved"):
        return _all([_compare(*pair, proof) for pair in zip(wanted, left, strict=True)], "parts")
    is_open = False
    for part in wanted:
        decisions = [_compare(part, other, proof) for other in left]
        match = next((i for i, found in enumerate(decisions) if found and found.is_equal), None)
        if match is not None:
            del left[match]
        elif None in decisions:
            is_open = True
        else:
            return Decision(False, "parts")
    return None if is_open else Decision(True, "parts")


def _sets(gold: Node, answer: Node, proof: Proof | None) -> Decision | None:
    """Unions of as many pieces piece by piece; else by the algebra of sets."""
    wanted, given = _pieces(gold), _pieces(answer)
    if len(wanted) == len(given) > 1:
        decision = _unordered(Node("list", wanted), Node("list", given), proof)
        if decision is not None and decision.is_equal:
            return decision
    return proof(gold, answer) if proof is not None else None


def _pieces(node: Node) -> tuple[Node, ...]:
    if node.kind != "cup":
        return (_interval(node),)
    return tuple(piece for part in node.parts for piece in _pieces(part))
