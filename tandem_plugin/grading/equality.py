"""Whether an answer equals a gold, or is only an expression copied from the prompt.

Only an expression with something to compute counts as copied, never a number or a name.
"""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache

from tandem_plugin.grading.answers import SHORT_WORDS, read, words_of
from tandem_plugin.grading.comparison import Comparison, Decision, OpenError, Proof
from tandem_plugin.grading.spelling import same_text, spelled
from tandem_plugin.grading.tree import Node, UndefinedError, UnreadableError, names_of, parts_of
from tandem_plugin.grading.written import formula, has_digits_of, is_chemical

AS_WRITTEN = ("text", "same", "choice", "words")
"""The rules that find the answer to be the gold as written."""
_CHOICE = re.compile(r"(?P<mark>\\text ?\{|\()?[ (]*(?P<letter>[A-Ja-j])(?P<stop>[ ).:}]*)")
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_DIGITS = re.compile(r"\\(?:text|mathrm) ?\{ ?(0\d+) ?\}")
"""A string of digits: no number, in a gold, where its first zero counts."""
_COMMAND = re.compile(r"\\(?:begin|end) ?\{\w+\}|\\[A-Za-z]+")
_BARE_WORD = re.compile(r"(?<![A-Za-z])[a-z]{4,}(?![A-Za-z])")
_CAPITALS = re.compile(r"[A-Z]{3,26}")
"""An order or a name, no product."""
_DECIMAL_COMMA = re.compile(r"([^\d,(\[{]*)(?![1-9]\d{0,2},\d{3}(?!\d))(\d+),(\d+)([^\d,]*)")


def decide(gold: str, answer: str, proof: Proof | None = None) -> Decision | None:
    """Compare two spelled texts; None if only computer algebra could tell and none is given."""
    if same_text(gold, answer):
        return Decision(True, "text")
    answer = _DIGITS.sub(r"\1", answer)
    if string := _DIGITS.fullmatch(gold):
        return Decision(string[1] == answer.strip(), "words")
    for rule_of in (_choice, _formulas, _words):
        if (decision := rule_of(gold, answer)) is not None:
            return decision
    gold, answer = _with_point(gold, answer), _with_point(answer, gold)
    rule = "unread_gold"
    try:
        gold_tree = read(gold)
        if gold_tree.kind == "based" and has_digits_of(gold_tree, answer):
            return Decision(True, "base")
        rule = "unread_answer"
        answer_tree = read(answer)
        rule = "too_deep"
        return Comparison(proof).of(gold_tree, answer_tree)
    except OpenError:
        return None
    except (UnreadableError, RecursionError):
        return Decision(False, rule)
    except UndefinedError:
        return Decision(False, "undefined")


def is_read(text: str) -> bool:
    """Whether a spelled text is a choice, words, or mathematics without other words in it."""
    if _CHOICE.fullmatch(text) or _CAPITALS.fullmatch(text) or words_of(text) is not None:
        return True
    if formula(text) is not None or _DIGITS.fullmatch(text):
        return True
    bare = _COMMAND.sub(" ", _TEXT.sub(" ", text))
    try:
        read(text)
        return not any(map(_is_product, _BARE_WORD.findall(bare)))
    except (UnreadableError, RecursionError):
        return False


def _is_product(word: str) -> bool:
    """Whether a word behind a number is read as the product of its letters, as apples are."""
    with contextlib.suppress(UnreadableError):
        return len(names_of(read(f"5 {word}"))) > 1
    return False


def _with_point(text: str, other_text: str) -> str:
    """A decimal comma as a point, where the other text has a point and no comma."""
    match = _DECIMAL_COMMA.fullmatch(text)
    if match is None or "," in other_text or not re.search(r"\d\.\d", other_text):
        return text
    return f"{match[1]}{match[2]}.{match[3]}{match[4]}"


def _choice(gold: str, answer: str) -> Decision | None:
    """One letter from A to J, in brackets or not; a small one only where there are brackets."""
    gold_match, answer_match = _CHOICE.fullmatch(gold), _CHOICE.fullmatch(answer)
    if gold_match is None or answer_match is None or not gold_match["letter"].isupper():
        return None
    marked = any(match["mark"] or match["stop"].strip() for match in (gold_match, answer_match))
    letter = answer_match["letter"].upper() if marked else answer_match["letter"]
    return Decision(gold_match["letter"] == letter, "choice")


def _formulas(gold: str, answer: str) -> Decision | None:
    """Chemical formulas are equal as they are written; what may be a product is one as well."""
    right, written = formula(gold), formula(answer)
    if right is None or right.lower() in SHORT_WORDS:
        return None
    if written is None:
        is_mixed = re.search("[a-z].*[A-Z]", right) is not None and is_chemical(gold)
        letters = re.sub(r"\\(?:ce|text|mathrm)|[{}_ ]", "", answer)
        is_misspelt = is_mixed and letters.lower() == right.lower()
        return Decision(False, "formula") if is_misspelt else None
    if right == written:
        return Decision(True, "formula")
    return Decision(False, "formula") if is_chemical(gold) else None


def _words(gold: str, answer: str) -> Decision | None:
    """Words are equal without regard to case and space; a name in capitals only to itself."""
    if _CAPITALS.fullmatch(gold) and _CAPITALS.fullmatch(answer):
        return Decision(gold == answer, "words")
    gold_words, answer_words = words_of(gold), words_of(answer)
    if gold_words is not None and answer_words is not None:
        return Decision(gold_words == answer_words, "words")
    if gold_words is None and answer_words is None:
        spoken = [" ".join(_TEXT.sub(r"\1", text).split()) for text in (gold, answer)]
        is_same = "\\text" in gold + answer and re.search("[A-Za-z]{3}", spoken[0]) is not None
    else:
        spoken = [re.sub(r"\\(?:text|mathrm)|[{}]", "", text).strip() for text in (gold, answer)]
        is_same = True
    return Decision(True, "words") if is_same and spoken[0] == spoken[1] else None


_MATHEMATICS = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_MAX_CHARS = 20_000
_MAX_SEGMENTS = 200
_PLAIN = ("num", "sym", "const", "words", "time", "based", "joined", "reals", "empty", "apply")
_WRITTEN = ("neg", "div", "percent", "quantity", "list", "tuple", "set", "interval", "ratio")
"""Kinds that are as plain as their parts are."""


def is_copied(answer: str, prompt: str) -> bool:
    """Whether a spelled answer, with something to compute, is in the prompt as it is."""
    try:
        tree = read(answer)
    except (UnreadableError, RecursionError):
        return False
    if tree.kind == "named":
        tree = tree.parts[1]
    if _is_plain(tree):
        return False
    trees, text = _expressions(prompt)
    return tree in trees or _stands_in(_compact(answer), text)


def _is_plain(node: Node) -> bool:
    parts = [part for part in node.parts if isinstance(part, Node)]
    if node.kind in _WRITTEN:
        return all(map(_is_plain, parts))
    if node.kind in ("mul", "sum"):  # 3 1/2, 7 x 10^3
        kinds = {part.kind for part in parts}
        inner = [leaf for part in parts for leaf in part.parts if isinstance(leaf, Node)]
        numbers = all(leaf.kind == "num" for leaf in inner)
        return len(kinds) == 2 and kinds <= {"num", "div", "pow"} and numbers
    return node.kind in _PLAIN


@lru_cache(maxsize=256)
def _expressions(prompt: str) -> tuple[frozenset[Node], str]:
    """Every expression of a prompt's mathematics, with its parts; its lines without spaces."""
    prompt = prompt[-_MAX_CHARS:]
    expressions: set[Node] = set()
    for count, match in enumerate(_MATHEMATICS.finditer(prompt)):
        if count == _MAX_SEGMENTS:
            break
        segment = next(group for group in match.groups() if group is not None)
        for piece in (segment, *re.split(r"=|,", segment)):
            with contextlib.suppress(UnreadableError, RecursionError):
                expressions.update(parts_of(read(spelled(piece))))
    lines = (_compact(spelled(line)) for line in prompt.splitlines())
    return frozenset(expressions), "\n".join(lines)


def _compact(text: str) -> str:
    return re.sub(r"[\s$]", "", text)


def _stands_in(answer: str, text: str) -> bool:
    """Whether the answer is in the text, and not as a part of a longer expression."""
    place = text.find(answer)
    while place >= 0:
        before, after = text[place - 1 : place], text[place + len(answer) :][:1]
        if not (before + after).strip("\n=.,;:?!()[]<>") or (
            before.isalpha() and not after.strip("\n.,?")
        ):
            return True
        place = text.find(answer, place + 1)
    return False
