r"""Whether an answer is only an expression that the question holds already.

A policy that is paid for boxing what it was asked to compute has solved nothing. Numbers and names
are not copied, however often they occur: only what has something to compute.
"""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache

from tandem_plugin.grading.answers import UnreadableError, read
from tandem_plugin.grading.spelling import spelled
from tandem_plugin.grading.tree import Node, parts_of

__all__ = ["is_copied"]

_MATHEMATICS = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_MAX_CHARS = 20_000
_MAX_SEGMENTS = 200
_PLAIN = ("num", "sym", "const", "words", "time", "based", "reals", "empty", "apply")
_WRITTEN = ("neg", "div", "percent", "quantity", "list", "tuple", "set", "interval", "ratio")
"""Kinds that are as plain as their parts are."""


def is_copied(answer: str, prompt: str) -> bool:
    """Whether a spelled answer, with something to compute, stands in the prompt as it is."""
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
        inner = [one for part in parts for one in part.parts if isinstance(one, Node)]
        numbers = all(one.kind == "num" for one in inner)
        return len(kinds) == 2 and kinds <= {"num", "div", "pow"} and numbers
    return node.kind in _PLAIN


@lru_cache(maxsize=256)
def _expressions(prompt: str) -> tuple[frozenset[Node], str]:
    """Every expression of a prompt's mathematics and every part of one; its text without spaces."""
    prompt = prompt[-_MAX_CHARS:]
    found: set[Node] = set()
    for count, match in enumerate(_MATHEMATICS.finditer(prompt)):
        if count == _MAX_SEGMENTS:
            break
        segment = next(group for group in match.groups() if group is not None)
        for piece in (segment, *re.split(r"=|,", segment)):
            with contextlib.suppress(UnreadableError, RecursionError):
                found.update(parts_of(read(spelled(piece))))
    return frozenset(found), _compact(spelled(prompt))


def _compact(text: str) -> str:
    return re.sub(r"[\s$]", "", text)


def _stands_in(answer: str, text: str) -> bool:
    """Whether the answer stands in the text, and not as the part of a longer expression."""
    place = text.find(answer)
    while place >= 0:
        before, after = text[place - 1 : place], text[place + len(answer) :][:1]
        if not (before + after).strip("=.,;:?!()[]<>") or (
            before.isalpha() and not after.strip(".,?")
        ):
            return True
        place = text.find(answer, place + 1)
    return False
