r"""An answer or a gold as a typed tree: what kind of thing it is, before what it is worth.

Lists, sets, intervals, equations, solved inequalities, quantities, ratios, times of day, numerals
with a base and words are told apart here; expressions are read by :mod:`.expressions`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from tandem_plugin.grading.expressions import ExpressionReader, UnreadableError
from tandem_plugin.grading.tree import INFINITY, Node, measured_place, names_of, num
from tandem_plugin.grading.units import split_unit

__all__ = ["UnreadableError", "is_name", "read", "words_of"]

_MAX_PARTS = 64
_NUMBER = re.compile(r"(-?)(?:(\d+|\d{1,3}(?:,\d{3})+)(?:\.(\d+))?|\\frac\{(\d+)\}\{(\d+)\})")
_HAS_SETS = re.compile(r"\\(?:cup|cap|setminus)")
_HAS_SIGN = re.compile(r"[=<>]|\\(?:le|ge|ne|approx|in|equiv|to|notin)(?![A-Za-z])")
_TOKEN = re.compile(
    r"(?P<thousands>(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d]))"
    r"|(?P<open>\\\{|\\langle(?![A-Za-z])|\\begin(?![A-Za-z])|\\lfloor|\\lceil|[(\[{])"
    r"|(?P<close>\\\}|\\rangle(?![A-Za-z])|\\end(?![A-Za-z])|\\rfloor|\\rceil|[)\]}])"
    r"|(?P<joiner>,? ?\\text ?\{ ?,? ?(?:and|or) ?\}|,? (?:and|or)(?= )"
    r"|(?<=[)}\]\d])(?:and|or)(?=[ (\[\\\d])|[,;])"
    r"|(?P<sign>\\(?:le|ge|ne|approx|in|equiv|to|notin)(?![A-Za-z])|(?<!:)[=<>])"
    r"|(?P<set>\\(?:cup|cap|setminus)(?![A-Za-z]))"
    r"|(?P<colon>:(?!=))"
    r"|\\[A-Za-z]+|\\."
)
_BRACKETS = {"(": ")", "[": "]", "\\{": "\\}", "\\langle": "\\rangle"}
_BASED = re.compile(
    r"([0-9A-F ,{}]{1,200}) ?_ ?\{?(?:\\text ?\{)? ?(\d{1,2}|two|eight|ten|sixteen)\}{0,2}"
)
_BASES = {"two": 2, "eight": 8, "ten": 10, "sixteen": 16}
_TIME = re.compile(
    r"(?:\\text ?\{)? ?(\d{1,2})(?::(\d\d))? ?(?:\\text ?\{)? ?(?:([aApP])\.? ?[mM]\.?)? ?\}{0,2}"
)
_WORD_TEXT = re.compile(r"\\(?:text|mathrm) ?\{([^{}\\]{0,200})\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z' .,-]{0,199}")
_CURRENCY = re.compile(r"([+-]? ?)([$£€¥]) ?|")
_CURRENCY_END = re.compile(r"(?<=[\d}]) ?([$£€¥])$")
_DEGREES = re.compile(r" ?\^\{\\circ\} ?(?:\\(?:text|mathrm) ?\{ ?([CFK]) ?\}|([CFK]))?$")
_PRIMES = re.compile(r"(?<=[\d}]) ?('{1,2}|\")$")
_SCALE = re.compile(r"(?<=[\d}]) ?(?:\\text ?\{)? ?(thousand|million|billion|trillion) ?\}?$")
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_BUILDER = re.compile(r"([A-Za-z])(?: ?\\in ?\\mathbb ?\{R\})? ?[|:] ?(.+)")
_TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
_SETS = {"\\cup": "cup", "\\cap": "cap", "\\setminus": "minus"}
_NAMED_SETS = {
    "\\mathbb{R}": "reals", "\\emptyset": "empty", "\\mathbb{Z}": "integers",
    "\\mathbb{N}": "naturals", "\\mathbb{Q}": "rationals", "\\mathbb{C}": "complexes",
}  # fmt: skip
_TO = re.compile(r"(?<=[\dA-Za-z}]) ?\\text ?\{ ?(?:to|:) ?\} ?(?=[\dA-Za-z\\])")
_QUANTITY_NAME = re.compile(r"\| ?\\?\w{1,12} ?\||[A-Z] ?\([^()]{1,40}\)")
_LETTER = re.compile("[A-Za-z]")
_INVERSE = (Node("neg", (num(1),)), Node("sym", ("T",)))


@lru_cache(maxsize=4096)
def read(text: str) -> Node:
    """The tree of a spelled text. Raises :class:`UnreadableError` for what it does not know."""
    if (number := _plain_number(text)) is not None:
        return number
    if (special := _special(text)) is not None:
        return special
    text = text.removeprefix("\\approx ").strip()
    if "\\begin" not in text:
        text = text.replace("\\\\", ",")
    parts, joiner = _split_list(text, inside=False)
    if joiner == ";" and any("," in part for part in parts) and len(parts) > 1:
        return Node("list", tuple(read(part) for part in parts))
    if len(parts) > 1 and (words := [words_of(part) for part in parts]) and all(words):
        return Node("list", tuple(Node("words", (one,)) for one in words))
    nodes = [node for part in parts for node in _parts_of(part)]
    return nodes[0] if len(nodes) == 1 and len(parts) == 1 else _combined(nodes, joiner)


def _plain_number(text: str) -> Node | None:
    """The tree of an integer, a decimal, or a fraction of integers, without the reader."""
    if len(text) > 300 or (match := _NUMBER.fullmatch(text)) is None:
        return None
    sign, whole, decimals, top, bottom = match.groups()
    if top is not None:
        node = Node("div", (num(int(top)), num(int(bottom))))
    else:
        digits = whole.replace(",", "")
        value = Fraction(int(digits + (decimals or "")), 10 ** len(decimals or ""))
        node = num(value, -len(decimals) if decimals and value.denominator != 1 else None)
    return Node("neg", (node,)) if sign else node


def words_of(text: str) -> str | None:
    r"""A spelled text as words without regard to case, or None where it is none.

    Words are letters in ``\text``, or bare ones that no reader would take for a product: four in a
    row, with capitals at the beginnings alone.
    """
    if not _LETTER.search(text):
        return None
    plain = _WORD_TEXT.sub(r"\1", text).strip()
    if not _WORDS.fullmatch(plain):
        return None
    if "\\text" not in text and "\\mathrm" not in text:
        names = plain.split()
        if not all(name[1:].islower() or len(name) == 1 for name in names):
            return None
        if max(map(len, names)) < 4 and plain.lower() not in ("yes", "no", "odd", "all", "none"):
            return None
    if re.search(r",|(?:^| )(?:and|or)(?: |$)", plain):
        return None
    return " ".join(re.sub(r"[-.]", " ", plain).casefold().split())


def _special(text: str) -> Node | None:
    """A numeral with its base, a time of day."""
    if (match := _BASED.fullmatch(text)) is not None:
        digits = re.sub(r"[ ,{}]", "", match[1])
        base = _BASES.get(match[2]) or int(match[2])
        if digits and 2 <= base <= 36 and all(int(digit, 36) < base for digit in digits):
            return Node("based", (digits, base))
        if digits[:1].isdigit():
            raise UnreadableError("A numeral with digits that its base does not have.")
    match = _TIME.fullmatch(text)
    if match is not None and (match[3] or match[2]) and int(match[1]) < 25:
        hour, minute = int(match[1]), int(match[2] or 0)
        if minute < 60:
            return Node("time", (hour, minute, f"{match[3].lower()}m" if match[3] else ""))
    return None


def _split_list(text: str, inside: bool) -> tuple[list[str], str]:
    """The parts between commas, semicolons, ``and`` and ``or``, and the joiner that says most."""
    pieces = _split(text, "joiner", inside)
    joiners = {re.sub(r"\\text|[{} ,]", "", found) or found.strip() for found in pieces[1::2]}
    parts = pieces[::2]
    if ";" in joiners and joiners - {";"}:
        pieces = _split(text, "joiner", inside, only=";")
        return [part.strip() for part in pieces[::2]], ";"
    if len(parts) > 1 and not parts[-1].strip():
        parts = parts[:-1]
    parts = [part.strip() for part in parts]
    if len(parts) > _MAX_PARTS or not all(parts):
        raise UnreadableError("A list without a part, or with too many.")
    return parts, next((one for one in ("or", "and") if one in joiners), ",")


def _split(text: str, group: str, inside: bool = False, only: str | None = None) -> list[str]:
    """Parts and separators in turn, of separators outside of all brackets."""
    pieces: list[str] = []
    depth = start = 0
    place = 0
    while (token := _TOKEN.search(text, place)) is not None:
        kind = token.lastgroup
        place = token.end()
        if kind == "thousands" and inside and depth == 0:
            place = text.index(",", token.start())
            kind, begin, found = "joiner", place, ","
            place += 1
        else:
            begin, found = token.start(), token.group()
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                raise UnreadableError("A bracket closes that never opened.")
        elif kind == group and depth == 0 and (only is None or found == only):
            pieces += [text[start:begin], found]
            start = place
    if depth:
        raise UnreadableError("A bracket opens and never closes.")
    return [*pieces, text[start:]]


def _parts_of(text: str) -> list[Node]:
    """One part of a list, or the two that a plus-minus stands for."""
    count = len(re.findall(r"\\pm(?![A-Za-z])", text))
    if count == 0 or text.startswith("\\{"):
        return [_part(text)]
    if count > 1 and "\\mp" not in text:
        raise UnreadableError("Several plus-minus signs are ambiguous.")
    tops = re.sub(r"\\mp(?![A-Za-z])", "-", re.sub(r"\\pm(?![A-Za-z])", "+", text))
    bottoms = re.sub(r"\\mp(?![A-Za-z])", "+", re.sub(r"\\pm(?![A-Za-z])", "-", text))
    return [_part(tops), _part(bottoms)]


def _combined(nodes: list[Node], joiner: str) -> Node:
    first = nodes[0]
    if all(node.kind == "solved" and node.parts[0] == first.parts[0] for node in nodes):
        if joiner in ("or", "and"):
            whole = nodes[0].parts[1]
            for node in nodes[1:]:
                whole = Node("cup" if joiner == "or" else "cap", (whole, node.parts[1]))
            return Node("solved", (first.parts[0], whole))
        return Node("list", tuple(nodes))
    if first.kind == "named" and len(first.parts) == 2:
        name = first.parts[0]
        same = [node.kind == "named" and node.parts[0] == name for node in nodes]
        bare = [node.kind not in ("named", "relation", "solved", "member") for node in nodes]
        if all(s or b for s, b in zip(same, bare, strict=True)):
            values = (node.parts[1] if s else node for node, s in zip(nodes, same, strict=True))
            return Node("named", (name, Node("list", tuple(values))))
        names = [node.parts[0] for node in nodes if node.kind == "named"]
        if len(names) == len(nodes) == len(set(names)) and all(n.kind == "sym" for n in names):
            labels, values_ = zip(*(node.parts[:2] for node in nodes), strict=True)
            letters = {label.parts[0].partition("_")[0] for label in labels}
            if len(letters) == 1:  # x_1 and x_2 are the roots, in no order
                return Node("named", (Node("sym", tuple(letters)), Node("list", values_)))
            return Node("named", (Node("tuple", labels), Node("tuple", values_)))
    return Node("list", tuple(nodes))


def _part(text: str) -> Node:
    text = text.strip()
    pieces = _split(text, "sign") if _HAS_SIGN.search(text) else [text]
    if len(pieces) == 1:
        return _side(text)
    signs = [sign.strip() for sign in pieces[1::2]]
    sides = [_side_or_words(side) for side in pieces[::2]]
    if signs == ["\\in"]:
        if sides[0].kind not in ("sym", "tuple", "apply"):
            raise UnreadableError("Membership of no variable.")
        return Node("member", (sides[0], sides[1]))
    if set(signs) <= {"=", "\\approx"}:
        return _equation(sides, signs)
    if set(signs) <= set(_TURNED):
        return _solved(sides, signs) or _relation(sides, signs)
    raise UnreadableError("A relation that is not known.")


def _relation(sides: list[Node], signs: list[str]) -> Node:
    if any(side.kind == "words" for side in sides):
        raise UnreadableError("A relation between words.")
    return Node("relation", (tuple(sides), tuple(signs)))


def _equation(sides: list[Node], signs: list[str]) -> Node:
    """``named`` where a name begins or ends it; ``approx`` where decimals follow a value."""
    if len(sides) == 2 and is_name(sides[1]) and not is_name(sides[0]) and signs == ["="]:
        sides = sides[::-1]
    first_approx = next((n for n, sign in enumerate(signs) if sign != "="), len(signs)) + 1
    if any(sign == "=" for sign in signs[first_approx:]):
        raise UnreadableError("An equals sign behind an approximation.")
    values, rounded = sides[:first_approx], sides[first_approx:]
    named = is_name(sides[0])
    if named and len(values) == 1:  # a name, and only approximations of it
        values, rounded = [values[0], rounded[0]], rounded[1:]
    if not named and len(values) > 1:
        if rounded:
            raise UnreadableError("An approximation of an equation.")
        return _relation(values, signs)
    if any(side.kind == "words" for side in sides[1:]):
        raise UnreadableError("A value in words.")
    value = values[-1]
    if rounded:
        value = Node("approx", (value, *rounded))
    if not named:
        return value
    return Node("named", (values[0], value, *values[1:-1]))


def is_name(node: Node, strictly: bool = False) -> bool:
    """Whether a tree names a quantity and computes nothing.

    strictly: not by a sum, product or quotient of small letters either, which as an equation may
    be a curve.
    """
    kind, parts = node
    if kind in ("sym", "apply", "words"):
        return True
    if kind == "call" and parts[0] not in ("factorial", "binomial", "det"):
        return len(parts) == 2 and is_name(parts[1])
    if kind == "ratio":
        return all(map(is_name, parts))
    if kind == "mul":
        letters = all(part.kind == "sym" for part in parts)
        capitals = all(part.parts[0][:1].isupper() or ":" in part.parts[0] for part in parts if
                       part.kind == "sym" and part.parts[0] != "m")  # fmt: skip
        return letters and (not strictly or capitals)
    if kind == "pow":  # the inverse of a matrix, its transpose
        return parts[0].kind == "sym" and parts[1] in _INVERSE
    if kind == "tuple":
        return all(part.kind == "sym" for part in parts)
    if kind == "div":
        return all(is_name(part, strictly) for part in parts) and "sym" not in {
            part.kind for part in parts if strictly
        }
    if kind == "sum":
        return not strictly and all(map(is_name, parts))
    return False


def _solved(sides: list[Node], signs: list[str]) -> Node | None:
    """The interval of a variable that stands alone between constant bounds."""
    if any(names_of(side) for side in sides if side.kind not in ("sym", "apply")):
        return None
    if len(sides) == 2:
        if sides[0].kind not in ("sym", "apply"):
            sides, signs = sides[::-1], [_TURNED[signs[0]]]
        if sides[0].kind not in ("sym", "apply") or sides[1].kind in ("sym", "apply"):
            return None
        name, bound = sides
        if signs[0] == "\\ne":
            return Node("solved", (name, Node("minus", (Node("reals"), Node("set", (bound,))))))
        closed = signs[0] in ("\\le", "\\ge")
        low = Node("neg", (INFINITY,))
        if signs[0] in ("<", "\\le"):
            return Node("solved", (name, Node("interval", (low, bound, "(", ")]"[closed]))))
        return Node("solved", (name, Node("interval", (bound, INFINITY, "(["[closed], ")"))))
    if len(sides) != 3 or sides[1].kind not in ("sym", "apply"):
        return None
    if sides[0].kind in ("sym", "apply") or sides[2].kind in ("sym", "apply"):
        return None
    if set(signs) <= {">", "\\ge"}:
        sides, signs = sides[::-1], [_TURNED[sign] for sign in reversed(signs)]
    if not set(signs) <= {"<", "\\le"}:
        return None
    brackets = "(["[signs[0] == "\\le"], ")]"[signs[1] == "\\le"]
    return Node("solved", (sides[1], Node("interval", (sides[0], sides[2], *brackets))))


def _side_or_words(text: str) -> Node:
    try:
        return _side(text)
    except UnreadableError:
        words = words_of(text.strip())
        name = _QUANTITY_NAME.fullmatch(text.strip())
        if words is None and name is None:
            raise
        return Node("words", (words or text.strip(),))


def _side(text: str) -> Node:
    """What has no relation of its own: a set, a bracketed list, a ratio, a quantity, a value."""
    text = text.strip()
    if not text:
        raise UnreadableError("Nothing stands beside a sign.")
    if (number := _plain_number(text)) is not None and "," not in text:
        return number
    if text in _NAMED_SETS:
        return Node(_NAMED_SETS[text])
    pieces = _split(text, "set") if _HAS_SETS.search(text) else [text]
    if len(pieces) > 1:
        whole = _side(pieces[0])
        for sign, piece in zip(pieces[1::2], pieces[2::2], strict=True):
            whole = Node(_SETS[sign], (whole, _side(piece)))
        return whole
    if (bracketed := _bracketed(text)) is not None:
        return bracketed
    text = _TO.sub(":", text)
    pieces = _split(text, "colon") if ":" in text else [text]
    if len(pieces) > 1:
        return Node("ratio", tuple(_value(piece.strip()) for piece in pieces[::2]))
    return _value(text)


def _bracketed(text: str) -> Node | None:
    """A tuple, vector, interval or set whose brackets stand around the whole text."""
    opening = next((one for one in _BRACKETS if text.startswith(one)), None)
    if opening is None:
        return None
    closing = next((one for one in _BRACKETS.values() if text.endswith(one)), None)
    if closing is None or (closing in ")]" and text.endswith("\\" + closing)):
        return None
    inner = text[len(opening) : -len(closing)].strip()
    try:
        parts, joiner = _split_list(inner, inside=True)
    except UnreadableError:
        if opening == "\\{":
            raise
        return None
    if opening == "\\{" and closing == "\\}":
        if len(parts) == 1 and (match := _BUILDER.fullmatch(inner)) is not None:
            return Node("builder", (Node("sym", (match[1],)), read(match[2])))
        return Node("set", tuple(node for part in parts for node in _parts_of(part)))
    if len(parts) == 1:
        return _side(inner) if closing == _BRACKETS[opening] and opening in "([" else None
    nodes = tuple(_part(part) for part in parts)
    if opening + closing in ("()", "\\langle\\rangle"):
        return Node("tuple", nodes)
    if opening + closing == "[]" and len(nodes) != 2:
        return Node("tuple", nodes)
    if len(nodes) != 2 or joiner != "," or opening + closing not in ("[]", "[)", "(]"):
        raise UnreadableError("Brackets that are no interval's.")
    return Node("interval", (*nodes, opening, closing))


def _value(text: str) -> Node:
    """An expression with its sign of percent or currency, its degrees, or its unit."""
    if text.endswith("%"):
        return Node("percent", (_value(text[:-1].strip()),))
    scaled = _SCALE.search(text)
    if (match := _CURRENCY.match(text)) is not None and match[2]:
        rest = match[1] + text[match.end() :]
        return Node("quantity", (_scaled(rest), match[2]))
    if (match := _CURRENCY_END.search(text)) is not None:
        return Node("quantity", (_value(text[: match.start()]), match[1]))
    if scaled is not None:
        return _scaled(text)
    if (match := _DEGREES.search(text)) is not None and "\\circ" not in text[: match.start()]:
        is_angle = re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text)
        if not is_angle:
            value = ExpressionReader(text[: match.start()]).all_of()
            return Node("quantity", (value, "deg" + (match[1] or match[2] or "")))
    if (match := _PRIMES.search(text)) is not None:
        return Node("quantity", (ExpressionReader(text[: match.start()]).all_of(), match[1]))
    if (found := split_unit(text)) is not None:
        value = _scaled(found[0])
        return Node("quantity", (value, found[1])) if found[1] else value
    return ExpressionReader(text).all_of()


def _scaled(text: str) -> Node:
    """A value with a word like ``million`` behind it."""
    match = _SCALE.search(text)
    if match is None:
        return ExpressionReader(text.strip()).all_of()
    value = ExpressionReader(text[: match.start()].strip()).all_of()
    scale = _SCALES[match[1]]
    if value.kind == "num":
        place = measured_place(value)
        return num(value.parts[0] * 10**scale, None if place is None else place + scale)
    return Node("mul", (value, num(10**scale)))
