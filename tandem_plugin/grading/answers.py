r"""The strict reader: an answer or a gold as a typed tree, from LaTeX or ASCII, in linear time.

It rejects what it does not know: it drops nothing and guesses no operator.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tandem_plugin.grading.expressions import (
    COLON,
    DEGREES,
    JOINER,
    SCALE,
    TEMPERATURE,
    Expressions,
)
from tandem_plugin.grading.spelling import is_letter
from tandem_plugin.grading.tree import (
    INFINITY,
    SCALARS,
    TURNED,
    Node,
    UnreadableError,
    is_name,
    measured_place,
    names_of,
    num,
)
from tandem_plugin.grading.units import unit_at
from tandem_plugin.grading.written import JOINED, SUBSCRIPTED, joined, numeral, time_of_day

_MAX_PARTS = 64
_SET_OPERATIONS = {r"\cup": "cup", r"\cap": "cap", r"\setminus": "minus"}
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SIGN = r"\\(?:le|ge|ne|approx|in)(?![A-Za-z])|(?<!:)[=<>]"
_NAME = (
    r"(?:\\(?:text|mathrm) ?\{([^{}\\]{1,60})\} ?|([A-Za-z][A-Za-z ]{3,60}))(?==|\\approx)"
    r"|([A-Z] ?\([^()]{1,40}\)) ?(?==)"
)


class Reader(Expressions):
    """Reads lists, relations, sets, ratios, quantities and expressions."""

    def listed(self) -> Node:
        nodes, joiner = self.items(expands=True)
        return nodes[0] if len(nodes) == 1 else _combined(nodes, joiner)

    def items(self, expands: bool) -> tuple[list[Node], str]:
        groups, joiners = [self._item(expands)], set()
        while (match := self.take(JOINER)) is not None:
            joiner = next(group for group in match.groups() if group)
            joiners.add(joiner)
            if joiner == ";":
                groups.append([])
            groups[-1] += self._item(expands)
            if sum(map(len, groups)) > _MAX_PARTS:
                raise self.fail()
        if joiners > {";"}:
            nodes = [group[0] if len(group) == 1 else _combined(group, ",") for group in groups]
        else:
            nodes = [node for group in groups for node in group]
        return nodes, next((word for word in ("or", "and", ";") if word in joiners), ",")

    def _item(self, expands: bool) -> list[Node]:
        if self.brackets == 0 and (node := self._joined()) is not None:
            return [node]
        if not expands:
            return [self._relation()]
        start, outer = self.place, (self.chosen, self.turned)
        self.chosen, self.turned = [], False
        nodes = [self._relation()]
        if self.chosen:
            if self.chosen.count("pm") > 1 and "mp" not in self.chosen:
                raise self.fail()
            self.place, self.turned = start, True
            nodes.append(self._relation())
        self.chosen, self.turned = outer
        return nodes

    def _joined(self) -> Node | None:
        """A date, a score or a range with its currency or unit, where that is the whole part."""
        start = self.place
        money, match = self.take("[$£€¥]"), self.take(JOINED)
        if match is not None:
            node = self._measured(joined(match[0]))
            if self.sees(f"$|{JOINER}"):
                return _quantity(node, money[0].strip()) if money else node
        self.place = start
        return None

    def _relation(self) -> Node:
        sides, signs = [self._side()], []
        while (sign := self.take(_SIGN)) is not None:
            signs.append(sign[0].strip())
            sides.append(self._side())
        return _related(sides, signs) if signs else sides[0]

    def _side(self) -> Node:
        start = self.place
        try:
            return self._set()
        except UnreadableError:
            self.place = start
            if (name := self.take(_NAME)) is None:
                raise
            return Node("words", (" ".join((name[1] or name[2] or name[3]).casefold().split()),))

    def _set(self) -> Node:
        result = self._ratio()
        while (sign := self.take(r"\\(?:cup|cap|setminus)(?![A-Za-z])")) is not None:
            result = Node(_SET_OPERATIONS[sign[0].strip()], (result, self._ratio()))
        return result

    def _ratio(self) -> Node:
        parts = [self._value()]
        while self.take(COLON):
            parts.append(self._value())
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))

    def _value(self) -> Node:
        """A numeral, or an expression with its currency, percent sign, degrees, scale or unit."""
        if self.brackets == 0 and (based := self.take(SUBSCRIPTED)) is not None:
            if (node := numeral(based[0].strip())) is None:
                raise self.fail()
            return self._measured(node)
        if (money := self.take(r"([+-]? ?)([$£€¥])")) is not None:
            value = self._scaled(self.sum())
            return _quantity(Node("neg", (value,)) if "-" in money[1] else value, money[2])
        value = self.sum()
        return self._measured(value) if value.kind in SCALARS else value

    def _measured(self, value: Node) -> Node:
        """A value with what follows it: a scale, a percent sign, degrees or a unit."""
        value = self._scaled(value)
        if self.take("%"):
            return Node("percent", (value,))
        for pattern in ("([$£€¥])", "('{1,2}|\")"):
            if (match := self.take(pattern)) is not None:
                return _quantity(value, match[1])
        if (match := self.take(f"{TEMPERATURE}|{DEGREES}")) is not None:
            return _quantity(value, "deg" + (match[1] or match[2] or ""))
        bare = value.parts[0] if value.kind == "neg" else value
        if bare.kind == "degrees":
            inner: Node = bare.parts[0]
            return _quantity(inner if bare is value else Node("neg", (inner,)), "deg")
        if (unit := unit_at(self.text, self.place)) is not None:
            name, self.place = unit
            return _quantity(value, name) if name else value
        return value

    def _scaled(self, value: Node) -> Node:
        """A value with a word like ``million`` behind it."""
        if (match := self.take(SCALE)) is None:
            return value
        scale = _SCALES[match[1]]
        if value.kind != "num":
            raise self.fail()
        place = measured_place(value)
        return num(value.parts[0] * 10**scale, None if place is None else place + scale)


def _quantity(value: Node, unit: str) -> Node:
    return Node("quantity", (value, unit))


_VARIABLES = ("sym", "apply")
_CONDITIONS = ("named", "relation", "solved")


def _related(sides: list[Node], signs: list[str]) -> Node:
    """The tree of a relation: an equation, a solved inequality, or one that is neither."""
    if signs == ["\\in"]:
        if sides[0].kind not in (*_VARIABLES, "tuple"):
            raise UnreadableError("Membership of no variable.")
        return Node("solved", (sides[0], sides[1]))
    if set(signs) <= {"=", "\\approx"}:
        return _equation(sides, signs)
    if not set(signs) <= TURNED.keys():
        raise UnreadableError("A relation that is not known.")
    return _solved(sides, signs) or _relation(sides, signs)


def _relation(sides: list[Node], signs: list[str]) -> Node:
    if any(side.kind == "words" for side in sides):
        raise UnreadableError("A relation between words.")
    return Node("relation", (tuple(sides), tuple(signs)))


def _equation(sides: list[Node], signs: list[str]) -> Node:
    """``named`` where a name begins or ends it; ``approx`` where decimals follow a value."""
    if signs == ["="] and is_name(sides[1]) and not is_name(sides[0]):
        sides = sides[::-1]
    exact = next((n for n, sign in enumerate(signs) if sign != "="), len(signs)) + 1
    if "=" in signs[exact:] or any(side.kind == "words" for side in sides[1:]):
        raise UnreadableError("Words for a value, or an equals sign behind an approximation.")
    values, rounded = sides[:exact], sides[exact:]
    is_named = is_name(sides[0])
    if is_named and len(values) == 1:  # a name, and only approximations of it
        values, rounded = [values[0], rounded[0]], rounded[1:]
    if not is_named and len(values) > 1:
        if rounded:
            raise UnreadableError("An approximation of an equation.")
        return _relation(values, signs)
    value = Node("approx", (values[-1], *rounded)) if rounded else values[-1]
    return Node("named", (values[0], value, *values[1:-1])) if is_named else value


def _solved(sides: list[Node], signs: list[str]) -> Node | None:
    """The values of a variable, or of its negative, that stands alone between constant bounds."""
    places = [n for n, side in enumerate(sides) if _bare(side).kind in _VARIABLES]
    if len(places) != 1 or any(names_of(side) for n, side in enumerate(sides) if n != places[0]):
        return None
    (place,) = places
    name, ends = _bare(sides[place]), {"<": (INFINITY, ")"), ">": (Node("neg", (INFINITY,)), "(")}
    bounded = set()
    for n, sign in enumerate(signs):
        bound = sides[n + (n == place)]
        if (n + 1 == place) is not (sides[place].kind == "neg"):
            sign = TURNED[sign]  # now as if the name stood on the left, without a minus
        if sides[place].kind == "neg":  # -x > -1
            bound = Node("neg", (bound,))
        if sign == "\\ne" and len(signs) == 1:
            return Node("solved", (name, Node("minus", (Node("reals"), Node("set", (bound,))))))
        way = {"\\le": "<", "\\ge": ">"}.get(sign, sign)
        if place not in (n, n + 1) or way not in ends or way in bounded:
            return None
        bounded.add(way)
        ends[way] = (bound, ends[way][1] if way == sign else {"<": "]", ">": "["}[way])
    (high, closing), (low, opening) = ends["<"], ends[">"]
    return Node("solved", (name, Node("interval", (low, high, opening, closing))))


def _bare(side: Node) -> Node:
    return side.parts[0] if side.kind == "neg" else side


def _combined(nodes: list[Node], joiner: str) -> Node:
    """A list, or what its parts say together: of one variable, or of several names."""
    first = nodes[0]
    if joiner in ("or", "and") and all(
        node.kind == "solved" and node.parts[0] == first.parts[0] for node in nodes
    ):
        combined = first.parts[1]
        for node in nodes[1:]:
            combined = Node("cup" if joiner == "or" else "cap", (combined, node.parts[1]))
        return Node("solved", (first.parts[0], combined))
    if first.kind != "named" or len(first.parts) != 2:
        return Node("list", tuple(nodes))
    is_same = [node.kind == "named" and node.parts[0] == first.parts[0] for node in nodes]
    if all(same or node.kind not in _CONDITIONS for same, node in zip(is_same, nodes, strict=True)):
        values = (n.parts[1] if same else n for same, n in zip(is_same, nodes, strict=True))
        return Node("named", (first.parts[0], Node("list", tuple(values))))
    labels = [node.parts[0] for node in nodes if node.kind == "named"]
    if len(nodes) != len(set(labels)) or any(label.kind != "sym" for label in labels):
        return Node("list", tuple(nodes))
    values_ = Node("list", tuple(node.parts[1] for node in nodes))
    letters = {label.parts[0].partition("_")[0] for label in labels}
    if len(letters) == 1:  # x_1 and x_2 are the roots, in no order
        return Node("named", (Node("sym", tuple(letters)), values_))
    return Node("named", (Node("tuple", tuple(labels)), Node("tuple", values_.parts)))


_WORD_TEXT = re.compile(r"\\(?:text|mathrm) ?\{([^{}\\]{0,200})\}")
SHORT_WORDS = frozenset(("yes", "no", "odd", "all", "none"))
_SETS = {
    "all real numbers": "reals", "all reals": "reals", "no solution": "empty",
    "no solutions": "empty", "no real solution": "empty", "no real solutions": "empty",
}  # fmt: skip
"""Words for sets."""


@lru_cache(maxsize=4096)
def read(text: str) -> Node:
    """The tree of a spelled text. Raises :class:`UnreadableError` for what it does not know."""
    if (node := numeral(text) or time_of_day(text)) is not None:
        return node
    if (name := _SETS.get(words_of(text) or "")) is not None:
        return Node(name)
    reader = Reader(text.removeprefix("\\approx "))
    return reader.all_of(reader.listed)


def words_of(text: str) -> str | None:
    r"""A spelled text as words, or None if it is none.

    Words are letters of any script in ``\text``, or bare ones that are no product: four in a row,
    with capitals only at the beginning. They are in lower case, but up to three letters may be a
    string or a formula: of those only the first.
    """
    plain = _WORD_TEXT.sub(r"\1", text).strip()
    if not is_letter(plain[:1] or " ") or not all(
        is_letter(sign) or sign in "' .,-" for sign in plain
    ):
        return None
    if len(plain) > 200 or re.search(r",|(?:^| )(?:and|or)(?: |$)", plain):
        return None
    if "\\" not in text:
        names = plain.split()
        if not all(name[1:].islower() or len(name) == 1 for name in names):
            return None
        if max(map(len, names)) < 4 and plain.lower() not in SHORT_WORDS:
            return None
    is_short = plain.isascii() and len(plain) < 4 and plain.lower() not in SHORT_WORDS
    folded = plain[0].casefold() + plain[1:] if is_short else plain.casefold()
    return " ".join(re.sub(r"[-.]", " ", folded).split())
