r"""What equals only itself as written: numerals in a base, times of day, dates, scores and ranges.

None of them is computed: ``52_8`` is not 42, ``10-20`` is not -10, and ``5/5/1999`` is no quotient.
"""

from __future__ import annotations

import re

from tandem_plugin.grading.tree import Node

_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip
_WRAP = r"\\(?:text|mathrm|mathbf) ?\{"
_GROUPED = r"(?:(?:,|\{,\})[0-9A-Z]{3}(?![0-9A-Z])| [0-9A-Z]{3,4}(?![0-9A-Z]))*(?:\.[0-9A-Z]+)?"
_NUMERAL = re.compile(
    rf"(?P<open>\(|\{{|{_WRAP})? ?(?P<digits>-? ?(?:\d[0-9A-Z]*|[0-9A-F]+){_GROUPED})"
    rf" ?(?(open)[)}}]) ?(?P<base>_.{{1,40}}|\(? ?(?:{_WRAP})? ?\(? ?base.{{1,20}})",
    re.ASCII,
)
"""Digits, whose first is no capital after F, and a base: ``_2``, ``\text{ base }2``."""
_TEXT = re.compile(r"^\\text ?\{([^{}]*)\}$")
_AROUND_BASE = re.compile(r"\\(?:text|mathrm|mathbf)(?![A-Za-z])|[{}()_]|(?<![A-Za-z])base")
_PREFIXED = re.compile(rf"(?:{_WRAP})? ?(-? ?)0([xob])([0-9A-Fa-f]{{1,200}}) ?\}}?", re.ASCII)
_PREFIXES = {"x": 16, "o": 8, "b": 2}
_PLAIN = re.compile(
    rf"(?=.*[0-9]|.*[A-Z]{{2}})(?:{_WRAP})? ?(-? ?[0-9A-Z]+{_GROUPED}) ?\}}?",
    re.IGNORECASE | re.ASCII,
)
"""Digits alone; one letter is a name."""
SUBSCRIPTED = (
    r"-? ?\d{1,200}(?:\.\d{1,200})? ?_ ?"
    r"(?:\d{1,2}|\{[^{}]{1,20}(?:\{[^{}]{1,12}\}[^{}]{0,4})?\})"
)
"""A numeral of decimal digits, as a part of a list or of an equation."""


def numeral(text: str) -> Node | None:
    """A numeral with its base, or None."""
    if (prefixed := _PREFIXED.fullmatch(text)) is not None:
        return _based("".join(prefixed.group(1, 3)), _PREFIXES[prefixed[2]])
    if (match := _NUMERAL.fullmatch(_TEXT.sub(r"\1", text))) is None:
        return None
    base_words = _AROUND_BASE.sub(" ", match["base"]).split()
    if len(base_words) != 1:
        return None
    base = _BASES.get(base_words[0]) or (
        int(base_words[0]) if re.fullmatch(r"\d{1,2}", base_words[0]) else 0
    )
    return _based(match["digits"], base)


def has_digits_of(gold: Node, answer: str) -> bool:
    """Whether a text that is no numeral by itself has a numeral's digits, in any case of letters.

    Its base must be the same, or missing.
    """
    digits, mark, base = answer.partition("_")
    if numeral(answer) is not None or (match := _PLAIN.fullmatch(digits)) is None:
        return False
    written = match[1].upper()
    return (numeral(f"{written}_{base}") if mark else _based(written, gold.parts[1])) == gold


def _based(written: str, base: int) -> Node | None:
    """The node of a sign and digits; None where the base does not have a digit."""
    digits = re.sub(r"[ ,{}-]", "", written).upper()
    if not 2 <= base <= 36 or any(int(d, 36) >= base for d in digits.replace(".", "")):
        return None
    integer, _, part = digits.partition(".")
    shown = f"{integer.lstrip('0') or '0'}.{part.rstrip('0')}".rstrip(".")
    return Node("based", (f"-{shown}" if "-" in written else shown, base))


_ELEMENTS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se "
    "Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb "
    "Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm "
    "Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og"
)
_ELEMENT = "|".join(sorted(_ELEMENTS.split(), key=len, reverse=True))
_FORMULA = re.compile(rf"(?:[(\[]*(?:{_ELEMENT})\d{{0,3}}(?:[)\]]\d{{0,3}})*)+(?:\^?\d?[+-])?")
_UPRIGHT = re.compile(r"\\(?:ce|text|mathrm) ?(?=\{)")


def formula(text: str) -> str | None:
    """A chemical formula without its markup, or None for what is none."""
    plain = re.sub(r"[{}_ ]", "", _UPRIGHT.sub("", text))
    return plain if len(plain) < 80 and _FORMULA.fullmatch(plain) else None


def is_chemical(text: str) -> bool:
    """Whether a formula cannot be a product of letters: it is upright, or has bare digits."""
    return bool(_UPRIGHT.search(text) or re.search("[A-Za-z][0-9]", text))


_TIME = re.compile(
    r"(?:\\text ?\{)? ?(\d{1,2})(?::(\d\d))? ?(?:\\text ?\{)? ?(?:([aApP])\.? ?[mM]\.?)? ?\}{0,2}",
    re.ASCII,
)
_SECONDS = re.compile(r"(?=.*:0)\d{1,3}(?::\d\d){2}", re.ASCII)
"""Hours, minutes and seconds: one begins with a zero, which no term of a ratio does."""


def time_of_day(text: str) -> Node | None:
    """A time, or None."""
    if _SECONDS.fullmatch(text):
        return Node("joined", (":", *text.split(":")))
    match = _TIME.fullmatch(text)
    if match is None or not (match[3] or match[2]):
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if hour > 24 or minute > 59:
        return None
    return Node("time", (hour, minute, f"{match[3].lower()}m" if match[3] else ""))


_NUMBER = r"(?:\d{1,3}(?:(?:\{,\}|,| )\d{3})+(?!\d)|\d+(?:\.\d+|(?::\d\d)+)?)"
_HYPHEN = r" ?(?:-{1,3}|\{ ?- ?\}|\\text ?\{ ?-{1,3} ?\}) ?"
JOINED = (
    rf"\+\d+(?:{_HYPHEN}\d+){{2,}}|{_NUMBER}(?:{_HYPHEN}{_NUMBER})+"
    r"|\d+(?: ?/ ?\d+){2,}|0\d+ ?/ ?\d+|\d+ ?/ ?0\d+"
)
"""Plain numbers or times joined by hyphens or dashes; integers joined by slashes.

Two integers with a slash are a fraction, unless one of them begins with a zero.
"""


def joined(written: str) -> Node:
    """The node of a text of :data:`JOINED`: its numbers as they are written."""
    sign = "/" if "/" in written else "-"
    return Node("joined", (sign, *re.findall(r"\+?\d[\d.:]*", re.sub(r"[{}, ]", "", written))))
