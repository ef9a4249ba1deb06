"""Whether an answer equals a gold: the rules that need no computer algebra.

The calling process decides with these rules alone. A worker decides with the same rules and asks
computer algebra about the parts that they leave open.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from tandem_plugin.grading.canonical import compact
from tandem_plugin.grading.numerals import Numeral, read_numeral
from tandem_plugin.grading.structure import Structure, equation_sides, read_structure
from tandem_plugin.grading.units import split_unit

__all__ = ["SIX_DECIMALS", "TOLERANCE", "Decision", "Scalar", "close_enough", "decide"]

TOLERANCE = Fraction(1, 10_000)
"""Relative, against a measured gold: that of Qwen2.5-Math's evaluation (``numeric_equal``)."""
SIX_DECIMALS = Fraction(1, 2_000_000)
"""Absolute, of a decimal answer against an exact gold that is not whole: Math-Verify's rounding."""


class Decision(NamedTuple):
    """Whether the answer is equal, and the rule that says so."""

    is_equal: bool
    rule: str


Scalar: TypeAlias = Callable[[str, str], Decision]

_CHOICE = re.compile(r"\(? ?([A-J]) ?[).:]?")
_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]{0,199}")
_LETTERS = re.compile(r"[A-Z]{3,26}")
"""Three capitals and more are an order or a name, no product."""
_TEXT = re.compile(r"\\text ?\{([^{}]{0,200})\}")
_BASED = re.compile(
    r"([0-9A-Z]{1,200}) ?_ ?\{?(?:\\text ?\{)?(\d{1,2}|two|eight|ten|sixteen)\}{0,2}"
)
_BASES = {"two": "2", "eight": "8", "ten": "10", "sixteen": "16"}
_NAME = re.compile(
    r"\((?:[A-Za-z]|\\[A-Za-z]+)(?: ?, ?(?:[A-Za-z]|\\[A-Za-z]+)){1,5}\)"
    r"|(?:\\angle ?|\\overline ?|\\vec ?|\\mathbf ?)?\{?(?:\\[A-Za-z]+|[A-Za-z]{1,12})\}?"
    r"(?:_ ?\{[^{}]{1,20}\})?(?:\^ ?\{[*+-]\})?'{0,3}(?: ?\([A-Za-z0-9, \\]{1,30}\))?"
)
_MEMBER = re.compile(r"([A-Za-z]|\\[A-Za-z]+) ?\\in(?![A-Za-z]) ?(.+)")
_SHORT_WORDS = frozenset(("yes", "no", "odd", "all", "none", "one", "two", "six", "ten", "red"))
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_BUILDER = re.compile(r"\\\{ ?([A-Za-z])(?: ?\\in ?\\mathbb\{R\})? ?[|:] ?([^|:]+)\\\}")
_FUNCTION_NAMES = (
    "pi e i sin cos tan sec csc cot log ln exp sqrt arcsin arccos arctan infty oo inf inch"
)
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())


def decide(gold: str, answer: str, scalar: Scalar | None = None) -> Decision | None:
    """Compare two canonical texts; None where only computer algebra could tell and none is given.

    scalar: asked about what has no parts and is no plain number. Rules: docs/grading.md.
    """
    if compact(gold) == compact(answer):
        return Decision(True, "text")
    for rule in (_choice, _words, _numbers, _based):
        if (decision := rule(gold, answer)) is not None:
            return decision
    for split in (_members, _equations, _structures, _units):
        asked, decision = split(gold, answer, scalar)
        if asked:
            return decision
    return scalar(gold, answer) if scalar is not None else None


def close_enough(gold: Fraction, answer: Fraction, is_measured: bool) -> bool:
    """Within the tolerance against a measured gold; against an exact one, to six decimals."""
    gap = abs(gold - answer)
    if is_measured:
        return gap <= TOLERANCE * max(abs(gold), abs(answer))
    return gold.denominator != 1 and gap <= SIX_DECIMALS


def _choice(gold: str, answer: str) -> Decision | None:
    """One letter from A to J: brackets and a stop do not matter, nor does the answer's case."""
    wanted = _CHOICE.fullmatch(_spoken(gold))
    given = _CHOICE.fullmatch(_spoken(answer).upper())
    if wanted is None or given is None:
        return None
    return Decision(wanted[1] == given[1], "choice")


def _words(gold: str, answer: str) -> Decision | None:
    """Words are equal without regard to case and space. Short names may be products: left open."""
    wanted, given = _spoken(gold), _spoken(answer)
    gold_is_words, answer_is_words = _is_words(gold, wanted), _is_words(answer, given)
    if (gold_is_words or answer_is_words) and _folded(wanted) == _folded(given):
        return Decision(True, "words")
    if gold_is_words and answer_is_words:
        return Decision(False, "words")
    if _LETTERS.fullmatch(wanted) and _LETTERS.fullmatch(given):
        return Decision(wanted == given, "words")
    if gold_is_words and read_numeral(answer) is not None:
        return Decision(False, "words")
    if answer_is_words and read_numeral(gold, is_gold=True) is not None:
        return Decision(False, "words")
    return None


def _is_words(text: str, spoken: str) -> bool:
    if not _WORDS.fullmatch(spoken):
        return False
    names = spoken.lower().split()
    if any(name in _FUNCTIONS for name in names):
        return False
    return "\\text" in text or max(map(len, names)) >= 4 or names[0] in _SHORT_WORDS


def _spoken(text: str) -> str:
    return _TEXT.sub(r"\1", text).strip()


def _folded(words: str) -> str:
    return " ".join(words.replace("-", " ").casefold().split())


def _numbers(gold: str, answer: str) -> Decision | None:
    given = read_numeral(answer)
    if given is None:
        return None
    wanted = read_numeral(gold, is_gold=True)
    return None if wanted is None else _same_number(wanted, given)


def _same_number(gold: Numeral, answer: Numeral) -> Decision:
    units = {gold.unit, answer.unit} - {None, "?"}
    if len(units) > 1:
        return Decision(False, "unit")
    if gold.value == answer.value:
        return Decision(True, "number")
    if gold.is_percent != answer.is_percent:
        percent, other = (gold, answer) if gold.is_percent else (answer, gold)
        if percent.value == 100 * other.value:
            return Decision(True, "percent")
    are_whole = gold.value.denominator == 1 and answer.value.denominator == 1
    if gold.is_measured and not (are_whole and not answer.is_measured):
        return Decision(close_enough(gold.value, answer.value, True), "tolerance")
    if answer.is_measured and close_enough(gold.value, answer.value, False):
        return Decision(True, "six_decimals")
    return Decision(False, "number")


def _based(gold: str, answer: str) -> Decision | None:
    """Numerals with a base: the digits must agree, and the bases where both are written."""
    wanted, given = _read_based(gold), _read_based(answer)
    if wanted is None and given is None:
        return None
    digits, base = wanted or (gold.replace(",", ""), None)
    other_digits, other_base = given or (answer.replace(",", ""), None)
    if not (digits.isalnum() and other_digits.isalnum()):
        return None
    same_base = base is None or other_base is None or base == other_base
    return Decision(digits == other_digits and same_base, "base")


def _read_based(text: str) -> tuple[str, int] | None:
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    base = int(_BASES.get(match[2], match[2]))
    if not 2 <= base <= 36 or not any(digit.isdigit() for digit in match[1]):
        return None
    return (match[1], base) if all(int(digit, 36) < base for digit in match[1]) else None


_Split: TypeAlias = tuple[bool, Decision | None]
_OPEN_QUESTION: _Split = (False, None)


def _members(gold: str, answer: str, scalar: Scalar | None) -> _Split:
    r"""``x \in S`` and ``\{x : ...\}`` are the set where the other side names no other variable."""
    builders = _BUILDER.fullmatch(gold), _BUILDER.fullmatch(answer)
    if any(builders):
        plain = [
            found[2] if found else text
            for found, text in zip(builders, (gold, answer), strict=True)
        ]
        return True, decide(plain[0], plain[1], scalar)
    wanted, given = _MEMBER.fullmatch(gold), _MEMBER.fullmatch(answer)
    if (wanted is None and given is None) or (wanted and given and wanted[1] != given[1]):
        return _OPEN_QUESTION
    if any(other is None and "=" in text for other, text in ((wanted, gold), (given, answer))):
        return _OPEN_QUESTION
    return True, decide(wanted[2] if wanted else gold, given[2] if given else answer, scalar)


def _equations(gold: str, answer: str, scalar: Scalar | None) -> _Split:
    """``x = 5`` is 5 where the other side has no equation; of a chain the end counts.

    What stands before the end must be a name, or equal to the end: ``4 = 5`` is no 5.
    """
    if "=" not in gold and "=" not in answer:
        return _OPEN_QUESTION
    if _is_relation(gold) or _is_relation(answer):
        return _OPEN_QUESTION
    structures = read_structure(gold), read_structure(answer)
    if any(found is not None and found.kind == "list" for found in structures):
        return _OPEN_QUESTION
    wanted, given = equation_sides(gold), equation_sides(answer)
    if len(wanted) == 1 and len(given) == 1:
        return _OPEN_QUESTION
    if len(wanted) > 1 and len(given) > 1:
        if len(wanted) == len(given) == 2 and all(map(_is_name, (wanted[0], given[0]))):
            if compact(wanted[0]) != compact(given[0]):
                return _OPEN_QUESTION
            decision = decide(wanted[1], given[1], scalar)
            if decision is None or decision.is_equal:
                return True, decision
        return _OPEN_QUESTION
    if len(given) == 1:
        if not _is_assignment(wanted):
            return (True, Decision(False, "equation")) if len(wanted) == 2 else _OPEN_QUESTION
        return True, decide(wanted[-1], answer, scalar)
    return True, _chain(gold, given, scalar)


def _chain(gold: str, sides: tuple[str, ...], scalar: Scalar | None) -> Decision | None:
    rest = sides[1:] if _is_name(sides[0]) else sides
    decision = None
    for side in reversed(rest):
        decision = decide(gold, side, scalar)
        if decision is None or not decision.is_equal:
            return decision
    return decision


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _is_assignment(sides: tuple[str, ...]) -> bool:
    """A name, then its value; two long names are an equation between them."""
    if not _is_name(sides[0]):
        return False
    return len(compact(sides[0])) == 1 or not _is_name(sides[-1]) or "\\" in sides[0]


def _is_relation(text: str) -> bool:
    return any(sign in text for sign in ("<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"))


def _structures(gold: str, answer: str, scalar: Scalar | None) -> _Split:
    wanted, given = read_structure(gold), read_structure(answer)
    if wanted is None and given is None:
        return _OPEN_QUESTION
    if wanted is None or given is None:
        return _one_structure(gold, wanted, answer, given, scalar)
    if "union" in (wanted.kind, given.kind):
        if wanted.kind == given.kind and len(wanted.parts) == len(given.parts):
            decision = _unordered(wanted.parts, given.parts, scalar)
            if decision is None or decision.is_equal:
                return True, decision
        return _OPEN_QUESTION
    if wanted.kind in ("set", "list") and given.kind in ("set", "list"):
        return True, _unordered(wanted.parts, given.parts, scalar)
    if "set" in (wanted.kind, given.kind):
        return True, Decision(False, "kind")
    if "list" not in (wanted.kind, given.kind) and wanted.brackets != given.brackets:
        return True, Decision(False, "kind")
    return True, _ordered(wanted.parts, given.parts, scalar)


def _one_structure(
    gold: str,
    wanted: Structure | None,
    answer: str,
    given: Structure | None,
    scalar: Scalar | None,
) -> _Split:
    """A set of one element is that element; several parts are no number."""
    structure = wanted or given
    assert structure is not None
    if structure.kind == "set" and len(structure.parts) == 1:
        inner = structure.parts[0]
        return True, decide(inner if wanted else gold, inner if given else answer, scalar)
    other = answer if wanted else gold
    is_number = read_numeral(other, is_gold=given is not None) is not None
    if is_number and structure.kind in ("list", "set", "tuple", "interval"):
        return True, Decision(False, "count")
    return _OPEN_QUESTION


def _ordered(
    wanted: tuple[str, ...], given: tuple[str, ...], scalar: Scalar | None
) -> Decision | None:
    if len(wanted) != len(given):
        return Decision(False, "count")
    decisions = [decide(*pair, scalar) for pair in zip(wanted, given, strict=True)]
    for decision in decisions:
        if decision is not None and not decision.is_equal:
            return decision
    return None if None in decisions else Decision(True, "parts")


def _unordered(
    wanted: tuple[str, ...], given: tuple[str, ...], scalar: Scalar | None
) -> Decision | None:
    if len(wanted) != len(given):
        return Decision(False, "count")
    left = list(given)
    is_open = False
    for part in wanted:
        decisions = [decide(part, other, scalar) for other in left]
        match = next((i for i, found in enumerate(decisions) if found and found.is_equal), None)
        if match is not None:
            del left[match]
        elif None in decisions:
            is_open = True
        else:
            return Decision(False, "parts")
    return None if is_open else Decision(True, "parts")


def _units(gold: str, answer: str, scalar: Scalar | None) -> _Split:
    """An expression with a unit is that expression; two known units must agree."""
    if any(_ANGLE.search(text) for text in (gold, answer)):
        return _OPEN_QUESTION
    wanted, wanted_unit = split_unit(gold)
    given, given_unit = split_unit(answer)
    if wanted_unit is None and given_unit is None:
        return _OPEN_QUESTION
    if len({wanted_unit, given_unit} - {None, "?"}) > 1:
        return True, Decision(False, "unit")
    return True, decide(wanted, given, scalar)
