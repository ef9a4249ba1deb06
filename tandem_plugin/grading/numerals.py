r"""Numbers as people write them, read exactly. No text is evaluated; every size is bounded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tandem_plugin.grading.units import read_unit

__all__ = ["MAX_DIGITS", "MAX_EXPONENT", "Numeral", "read_numeral"]

MAX_DIGITS = 1_000
MAX_EXPONENT = 1_000

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?: \d{3})+(?!\d)|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_REPEATING = r"(?P<head>\d*)\.(?P<fixed>\d*)\\(?:overline|bar|dot)\{(?P<cycle>\d+)\}"
_SIGNED = rf"(?:[+-] ?)?{_DECIMAL}"
_POWER = r"\^ ?(?:\{ ?(?P<braced>[+-]?\d+) ?\}|\( ?(?P<paren>[+-]?\d+) ?\)|(?P<plain>[+-]?\d+))"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?) ?"
    rf"(?:{_REPEATING}"
    rf"|(?P<whole>{_DIGITS})?(?(whole) ?)\\frac ?\{{ ?(?P<top>{_SIGNED}) ?\}} ?"
    rf"\{{ ?(?P<bottom>{_SIGNED}) ?\}}"
    rf"|(?P<whole2>\d+) (?P<top2>\d+) ?/ ?(?P<bottom2>\d+)"
    rf"|(?P<over>{_DECIMAL}) ?/ ?(?P<under>{_DECIMAL})"
    rf"|(?:(?P<mantissa>{_DECIMAL}) ?(?:\\times ?|\\cdot ?|\* ?|[xX] ?))?(?P<ten>10) ?{_POWER}"
    rf"|(?P<float>{_DECIMAL})[eE](?P<e>[+-]?\d+)"
    rf"|(?P<number>{_DECIMAL}))"
)
_CURRENCY = re.compile(r"^([+-]?) ?[$£€¥] ?")
_PERCENT = re.compile(
    r" ?(?:%|\\?(?:text|mathrm)\{ ?(?:%|percent|percentage|pct) ?\}|percent(?:age)?|pct)$"
)
_DEGREES = re.compile(r" ?\^\{\\circ\}(?: ?(?:\\(?:text|mathrm)\{ ?)?([CFK])(?: ?\})?)?$")
_PRIMES = re.compile(r" ?('{1,2}|\")$")


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number, and how it was written."""

    value: Fraction
    is_measured: bool
    """Written with a decimal point and not whole, or in scientific notation with a mantissa."""
    is_percent: bool = False
    """Written with a percent sign; ``value`` is the number before it."""
    unit: str | None = None
    """One name for each unit; None where none is written, ``?`` where it is not known."""


@lru_cache(maxsize=4096)
def read_numeral(text: str, is_gold: bool = False) -> Numeral | None:
    r"""The number that a canonical text is, with percent sign, currency and unit, or None.

    Integers, thousands separators, decimals, repeating decimals, fractions (``a/b``, ``\frac``),
    mixed numbers, scientific notation (``8.7\times10^{8}``, ``8.7e8``, ``10^{-3}``).
    """
    if not text or len(text) > MAX_DIGITS + 200:
        return None
    text, is_percent = _without(_PERCENT, text)
    unit = None
    if currency := _CURRENCY.match(text):
        text, unit = currency[1] + text[currency.end() :], "?"
    if degrees := _DEGREES.search(text):
        text, unit = text[: degrees.start()], f"deg{degrees[1] or ''}"
    elif primes := _PRIMES.search(text):
        text, unit = text[: primes.start()], "?"
    text = _unbracketed(text)
    match = _NUMBER.match(text)
    if match is None:
        return None
    if rest := text[match.end() :]:
        unit = read_unit(rest, is_gold)
        if unit is None:
            return None
    value = _value(match)
    if value is None:
        return None
    is_scientific = match["float"] is not None or match["mantissa"] is not None
    has_point = "." in match.group() and match["cycle"] is None
    is_measured = is_scientific or (has_point and value.denominator != 1)
    return Numeral(value, is_measured, is_percent, unit)


def _without(pattern: re.Pattern[str], text: str) -> tuple[str, bool]:
    match = pattern.search(text)
    return (text[: match.start()], True) if match else (text, False)


def _unbracketed(text: str) -> str:
    """``(5)`` is 5: one pair of round brackets around a number, and braces around its parts."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
        text = text[1:-1].strip()
    return text


def _value(match: re.Match[str]) -> Fraction | None:
    value = _unsigned(match)
    if value is None:
        return None
    return -value if match["sign"] == "-" else value


def _unsigned(match: re.Match[str]) -> Fraction | None:
    if match["cycle"] is not None:
        return _repeating(match["head"], match["fixed"], match["cycle"])
    if match["top"] is not None:
        return _mixed(match["whole"], match["top"], match["bottom"])
    if match["top2"] is not None:
        return _mixed(match["whole2"], match["top2"], match["bottom2"])
    if match["over"] is not None:
        return _mixed(None, match["over"], match["under"])
    if match["ten"] is not None:
        exponent = match["braced"] or match["paren"] or match["plain"]
        return _scaled(match["mantissa"] or "1", exponent)
    if match["float"] is not None:
        return _scaled(match["float"], match["e"])
    return _exact(match["number"])


def _exact(digits: str) -> Fraction | None:
    if len(digits) > MAX_DIGITS:
        return None
    digits = digits.replace(",", "").replace(" ", "").removeprefix("+")
    whole, point, part = digits.partition(".")
    if not point:
        return Fraction(int(whole))
    return Fraction(int(whole + part or "0"), 10 ** len(part))


def _mixed(whole: str | None, top: str, bottom: str) -> Fraction | None:
    over, under = _exact(top), _exact(bottom)
    if over is None or not under:
        return None
    if whole is None:
        return over / under
    integer = _exact(whole)
    if integer is None or over < 0 or under < 0:
        return None
    return integer + over / under


def _scaled(mantissa: str, exponent: str) -> Fraction | None:
    number = _exact(mantissa)
    if number is None or len(exponent) > 5 or abs(int(exponent)) > MAX_EXPONENT:
        return None
    return number * Fraction(10) ** int(exponent)


def _repeating(head: str, fixed: str, cycle: str) -> Fraction | None:
    if len(head) + len(fixed) + len(cycle) > 100:
        return None
    shown = Fraction(int(head + fixed or "0"), 10 ** len(fixed))
    return shown + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))
