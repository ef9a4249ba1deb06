r"""The strict reader: an answer or a gold as a typed tree, from LaTeX or ASCII.

What it does not know it refuses: it drops nothing and guesses no operator. Linear in the length of
the text.
"""

from __future__ import annotations

from tandem_plugin.grading.expressions import (
    COLON,
    DEGREES,
    JOINER,
    SCALE,
    TEMPERATURE,
    Expressions,
)
from tandem_plugin.grading.relation_kinds import UnreadableError, combined, related
from tandem_plugin.grading.tree import SCALARS, Node, measured_place, num
from tandem_plugin.grading.units import unit_at

__all__ = ["Reader"]

_MAX_PARTS = 64
_SETS = {r"\cup": "cup", r"\cap": "cap", r"\setminus": "minus"}
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SIGN = r"\\(?:le|ge|ne|approx|in)(?![A-Za-z])|(?<!:)[=<>]"
_NAME = (
    r"(?:\\(?:text|mathrm) ?\{([^{}\\]{1,60})\} ?|([A-Za-z][A-Za-z ]{3,60}))(?==|\\approx)"
    r"|([A-Z] ?\([^()]{1,40}\)) ?(?==)"
)


class Reader(Expressions):
    """Reads lists, relations, sets, ratios, quantities and expressions, from what binds least."""

    def listed(self) -> Node:
        """Parts between commas, semicolons, ``and`` and ``or``; one alone is no list."""
        nodes, joiner = self.items(expands=True)
        return nodes[0] if len(nodes) == 1 else combined(nodes, joiner)

    def items(self, expands: bool) -> tuple[list[Node], str]:
        """Parts, and the joiner that says most. expands: a plus-minus stands for two parts."""
        groups, joiners = [self._item(expands)], set()
        while (found := self.take(JOINER)) is not None:
            joiner = next(group for group in found.groups() if group)
            joiners.add(joiner)
            if joiner == ";":
                groups.append([])
            if joiner == "," and self.sees("$"):
                break
            groups[-1] += self._item(expands)
            if sum(map(len, groups)) > _MAX_PARTS:
                raise self.fail()
        if joiners > {";"}:
            nodes = [one[0] if len(one) == 1 else combined(one, ",") for one in groups]
        else:
            nodes = [node for group in groups for node in group]
        return nodes, next((one for one in ("or", "and", ";") if one in joiners), ",")

    def _item(self, expands: bool) -> list[Node]:
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

    def _relation(self) -> Node:
        sides, signs = [self._side()], []
        while (sign := self.take(_SIGN)) is not None:
            signs.append(sign[0].strip())
            sides.append(self._side())
        return related(sides, signs) if signs else sides[0]

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
        whole = self._ratio()
        while (sign := self.take(r"\\(?:cup|cap|setminus)(?![A-Za-z])")) is not None:
            whole = Node(_SETS[sign[0].strip()], (whole, self._ratio()))
        return whole

    def _ratio(self) -> Node:
        parts = [self._value()]
        while self.take(COLON):
            parts.append(self._value())
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))

    # Quantities

    def _value(self) -> Node:
        """An expression with its currency, percent sign, degrees, scale or unit."""
        if (money := self.take(r"([+-]? ?)([$£€¥])")) is not None:
            value = self._scaled(self.sum())
            return _quantity(Node("neg", (value,)) if "-" in money[1] else value, money[2])
        value = self.sum()
        if value.kind not in SCALARS:
            return value
        value = self._scaled(value)
        if self.take("%"):
            return Node("percent", (value,))
        for pattern in ("([$£€¥])", "('{1,2}|\")"):
            if (found := self.take(pattern)) is not None:
                return _quantity(value, found[1])
        if (found := self.take(f"{TEMPERATURE}|{DEGREES}")) is not None:
            return _quantity(value, "deg" + (found[1] or found[2] or ""))
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
        if (found := self.take(SCALE)) is None:
            return value
        scale = _SCALES[found[1]]
        if value.kind != "num":
            return Node("mul", (value, num(10**scale)))
        place = measured_place(value)
        return num(value.parts[0] * 10**scale, None if place is None else place + scale)


def _quantity(value: Node, unit: str) -> Node:
    return Node("quantity", (value, unit))
