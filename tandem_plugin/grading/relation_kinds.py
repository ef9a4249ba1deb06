"""What sides and signs amount to: equations, solved inequalities, lists of values of one name."""

from __future__ import annotations

from tandem_plugin.grading.tree import INFINITY, Node, names_of, num

__all__ = [
    "TURNED",
    "UnreadableError",
    "are_same_function",
    "as_relation",
    "combined",
    "in_order_of",
    "is_name",
    "related",
]

TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
"""Every sign as it stands where its sides change places."""
_INVERSE = (Node("neg", (num(1),)), Node("sym", ("T",)))
_VARIABLES = ("sym", "apply")
_CONDITIONS = ("named", "relation", "solved")


class UnreadableError(ValueError):
    """A text is nothing that the reader knows."""


def related(sides: list[Node], signs: list[str]) -> Node:
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


def is_name(node: Node, strictly: bool = False) -> bool:
    """Whether a tree names a quantity and computes nothing.

    strictly: not by a sum, product or quotient of small letters either, which as an equation may
    be a curve.
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
        return parts[0].kind == "sym" and parts[1] in _INVERSE
    if kind == "tuple":
        return all(part.kind == "sym" for part in parts)
    if kind == "div" and strictly and "sym" in {part.kind for part in parts}:
        return False
    return (kind in ("ratio", "div") or (kind == "sum" and not strictly)) and all(
        is_name(part, strictly and kind == "div") for part in parts
    )


def in_order_of(names: Node, answer: Node) -> Node:
    """``y = 2, x = 1`` as ``x = 1, y = 2`` where the gold has that order."""
    own, value = answer.parts[:2]
    if not own.kind == names.kind == value.kind == "tuple" or set(own.parts) != set(names.parts):
        return answer
    values = dict(zip(own.parts, value.parts, strict=True))
    return Node("named", (names, Node("tuple", tuple(values[name] for name in names.parts))))


def are_same_function(first: Node, second: Node) -> bool:
    """``y = ...`` and ``f(x) = ...`` name the same thing."""
    return {first.kind, second.kind} == {"apply", "sym"} and Node("sym", ("y",)) in (first, second)


def as_relation(node: Node) -> Node:
    """A name and its value as the two sides of an equation; anything else as it is."""
    return Node("relation", (node.parts[:2], ("=",))) if node.kind == "named" else node


def combined(nodes: list[Node], joiner: str) -> Node:
    """A list, or what its parts say together: of one variable, or of several names."""
    first = nodes[0]
    if joiner in ("or", "and") and all(
        node.kind == "solved" and node.parts[0] == first.parts[0] for node in nodes
    ):
        whole = first.parts[1]
        for node in nodes[1:]:
            whole = Node("cup" if joiner == "or" else "cap", (whole, node.parts[1]))
        return Node("solved", (first.parts[0], whole))
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
