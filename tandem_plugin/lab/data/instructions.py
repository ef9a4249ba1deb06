"""What a prompt requests as the form of the answer: a box, which rewards read, or not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_ANSWER = r"(?:(?:the|your|final|correct) )*(?:answer|letter|number|option|choice|result|value)"
"""What stands in a request for the answer itself."""
_BOXED = re.compile(
    r"\\boxed ?\{ ?\}|(?:within|inside|in|using|with|into) (?:an? )?[$`'\"]?\\boxed"
    rf"|\\boxed ?\{{ ?(?:\\text(?:bf)? ?\{{ ?)?[\[<(]?(?:{_ANSWER}\b|\.\.\.|\\l?dots)"
    r"|\bbox (?:your|the) (?:final )?answer|answer (?:must|should) be boxed"
    r"|(?:your|final) answer (?:in|inside|within) (?:a |the )?box\b",
    re.IGNORECASE,
)
"""Text that requests a box. A problem may contain its own boxes, such as solved parts."""
_MARKED = re.compile(
    rf"\banswer ?: ?[\"'`*]*[$<\[{{(]+ ?\\?{_ANSWER}\b"
    r"|\b(?:form|format|line|with)\b[^\n.]{0,40}?[\"'`*]+(?:final )?answer ?:"
    r"|\bof the (?:following )?(?:form|format) ?:? ?answer ?:"
    rf"|\b(?:after|behind|following) [\"'`]*####|#### ?[<\[{{(]+ ?{_ANSWER}\b"
    r"|</?answer>",
    re.IGNORECASE,
)
"""Text that requests a different form: ``Answer: $Answer``, ``<answer>`` tags, ``####``."""


def says_how_to_answer(text: str) -> bool:
    """Whether a text requests a box, or a different form such as ``<answer>`` tags."""
    return bool(_BOXED.search(text) or _MARKED.search(text))


def asks_for_no_box(messages: Sequence[Mapping[str, str]]) -> bool:
    """Whether a chat requests only a different form, which the rewards do not read."""
    texts = [turn["content"] for turn in messages]
    return not any(map(_BOXED.search, texts)) and any(map(_MARKED.search, texts))


def without_box_note(prompts: int) -> str | None:
    """A line on that many prompts that request a form other than a box, if there are any."""
    if not prompts:
        return None
    return (
        f"without a box: {prompts:,} prompts ask for the answer in another form and are left as "
        "they are, but tandem's rewards and evaluations read the last box"
    )
