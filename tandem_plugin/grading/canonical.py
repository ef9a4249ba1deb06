r"""One spelling for answers that differ only in notation.

Everything here works on text of bounded length, with patterns that cannot backtrack.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from tandem_plugin.grading.signs import GREEK, SIGNS, SUBSCRIPTS, SUPERSCRIPTS

__all__ = ["canonical", "compact", "is_readable", "nesting"]

_DISPLAY = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|scriptstyle|limits|nolimits|rm|"
    r"bf|it|boldmath|small|large|Large|huge|normalsize|mathstrut|strut|protect|allowbreak)"
    r"(?![A-Za-z])[.]?(?=[\s\\()\[\]{}|<>/.\w+-]|$)"
)
_SPACING = re.compile(
    r"(?<!\\)\\(?:[,;:> ]|(?:qquad|quad|thinspace|medspace|enspace|hfill)(?![A-Za-z]))|~"
)
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_SAME = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"\\(?:leqslant|leq|le)(?![A-Za-z])"), r"\\le"),
    (re.compile(r"\\(?:geqslant|geq|ge)(?![A-Za-z])"), r"\\ge"),
    (re.compile(r"\\neq?(?![A-Za-z])"), r"\\ne"),
    (re.compile(r"\\lt(?![A-Za-z])"), r"<"),
    (re.compile(r"\\gt(?![A-Za-z])"), r">"),
    (re.compile(r"\\(?:varnothing|O(?![A-Za-z]))(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\l?vert(?![A-Za-z])|\\rvert(?![A-Za-z])"), "|"),
    (re.compile(r"\\mid(?![A-Za-z])"), "|"),
    (re.compile(r"\\infin(?![A-Za-z])"), r"\\infty"),
    (re.compile(r"\\implies(?![A-Za-z])"), r"\\Rightarrow"),
    (re.compile(r"\\(?:degrees?|textdegree)(?![A-Za-z])(?:\{\})?"), r"^{\\circ}"),
    (re.compile(r"\^ ?\\circ(?![A-Za-z])"), r"^{\\circ}"),
    (re.compile(r"\^ ?\{ ?\\circ ?\}"), r"^{\\circ}"),
    (re.compile(r"\^ ?\\prime(?![A-Za-z])"), "'"),
    (re.compile(r"\^ ?\{ ?(?:\\prime ?)\}"), "'"),
    (re.compile(r"\^ ?\{ ?\\prime ?\\prime ?\}"), "''"),
    (re.compile(r"\{ ?, ?\}"), ","),
    (re.compile(r"\\\$"), ""),
    (re.compile(r"\\text(?:dollar)(?![A-Za-z])"), ""),
    (re.compile(r"\\(?:textsterling|pounds)(?![A-Za-z])"), "£"),
    (re.compile(r"\\[%]|\\textpercent(?![A-Za-z])"), "%"),
    (re.compile(r"\\#"), "#"),
    (re.compile(r"\\_"), "_"),
    (re.compile(r"\\&"), "and"),
    (re.compile(r"\\text(?:bf|it|rm|sf|tt|normal|up|md|sc)(?=\s*\{)"), r"\\text"),
    (re.compile(r"\\(?:mbox|hbox|textnormal|emph)(?=\s*\{)"), r"\\text"),
    (re.compile(r"\\math(?:rm|bf|it|sf|tt|normal|up)(?=\s*\{)"), r"\\mathrm"),
    (re.compile(r"\\boldsymbol(?=\s*\{)|\\bm(?=\s*\{)|\\pmb(?=\s*\{)"), r"\\mathrm"),
    (re.compile(r"\\frac ?(\d) ?(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac ?(\d) ?(?=\{)"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\{[^{}]{1,200}\}) ?(\d)"), r"\1{\2}"),
    (re.compile(r"\\frac (?=\{)"), r"\\frac"),
    (re.compile(r"\\sqrt ?(\d)"), r"\\sqrt{\1}"),
    (re.compile(r"\^ ?(\d)(?!\d)"), r"^{\1}"),
    (re.compile(r"_ ?(\w)"), r"_{\1}"),
)
_SPACES = re.compile(r"\s+")
_WRAPPER = re.compile(r"\\(?:text|mathrm|boxed|fbox|mathbf)\s*(?=\{)")
_TRAILING = ".,;:"
_BARE_COMMAND_SPACE = re.compile(r"(\\[A-Za-z]+) (?![A-Za-z])")


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    r"""The text in one spelling: ASCII where it can be, without what only sets it.

    Delimiters (``$``, ``\(``), sizes (``\left``), spacing commands, a wrapper around everything
    (``\text{...}``, one pair of redundant braces) and final punctuation go; ``\dfrac`` becomes
    ``\frac``, ``≤`` becomes ``\le``, full-width digits become digits, and so on. What carries
    meaning stays: brackets, units, percent and degree signs, subscripts, case.
    """
    text = _ascii(text)
    text = _DELIMITER.sub(" ", text)
    text = _DISPLAY.sub("", text)
    text = _SPACING.sub(" ", text.replace("\\!", ""))
    for pattern, replacement in _SAME:
        text = pattern.sub(replacement, text)
    text = text.replace("$", "")
    text = _BARE_COMMAND_SPACE.sub(r"\1", _SPACES.sub(" ", text))
    return _unwrapped(text)


def compact(text: str) -> str:
    """A canonical text without any space: equal for texts that differ in spacing alone."""
    return text.replace(" ", "")


def is_readable(text: str) -> bool:
    """Whether every character is one that a person could have meant to write."""
    if text.isascii() and text.isprintable():
        return True
    return all(
        character in "\t\n\r\v\f" or unicodedata.category(character) not in ("Cc", "Cs", "Co", "Cn")
        for character in text
    )


def nesting(text: str) -> int:
    """How deep brackets nest at most."""
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    parts: list[str] = []
    for character in unicodedata.normalize("NFC", text):
        parts.append(_one_ascii(character, parts[-1] if parts else ""))
    return "".join(parts).replace("}^{", "").replace("}_{", "")


def _one_ascii(character: str, before: str) -> str:
    if character.isascii():
        return character
    if character in SIGNS:
        return SIGNS[character]
    if character in GREEK:
        return f"\\{GREEK[character]} "
    if character in SUPERSCRIPTS:
        return f"^{{{SUPERSCRIPTS[character]}}}"
    if character in SUBSCRIPTS:
        return f"_{{{SUBSCRIPTS[character]}}}"
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category == "Zs":
        return " "
    if category == "Cf":  # zero width, direction, soft hyphen: nothing that is seen
        return ""
    decomposed = unicodedata.decomposition(character)
    if decomposed.startswith("<fraction>"):
        top, bottom = unicodedata.normalize("NFKC", character).split("\u2044")
        return f"\\frac{{{top}}}{{{bottom}}}" if top and bottom else character
    if decomposed.startswith(("<wide>", "<font>", "<narrow>", "<small>")):
        folded = unicodedata.normalize("NFKC", character)
        return f"\\{GREEK[folded]} " if folded in GREEK else folded
    return character


def _unwrapped(text: str) -> str:
    """Without space, final punctuation, and wrappers around the whole, outermost first."""
    for _ in range(8):
        text = text.strip().rstrip(_TRAILING).strip()
        match = _WRAPPER.match(text)
        inner = _braced(text, match.end() if match else 0)
        if inner is None:
            break
        text = inner
    return text


def _braced(text: str, start: int) -> str | None:
    """The content of a brace at ``start`` that closes at the very end of the text."""
    if text[start : start + 1] != "{" or not text.endswith("}"):
        return None
    depth = 0
    for place in range(start, len(text)):
        if text[place] == "{" and text[place - 1 : place] != "\\":
            depth += 1
        elif text[place] == "}" and text[place - 1 : place] != "\\":
            depth -= 1
            if depth == 0:
                return text[start + 1 : place] if place == len(text) - 1 else None
    return None
