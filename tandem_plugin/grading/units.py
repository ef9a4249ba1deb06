"""The units that may follow a number, and which of them are the same."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["read_unit", "split_unit"]

_ALIASES = {
    "m": "metre metres meter meters",
    "cm": "centimetre centimetres centimeter centimeters",
    "mm": "millimetre millimetres millimeter millimeters",
    "km": "kilometre kilometres kilometer kilometers",
    "nm": "nanometre nanometres nanometer nanometers",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards",
    "mi": "mile miles",
    "pc": "parsec parsecs",
    "kpc": "kiloparsec kiloparsecs",
    "AU": "au",
    "ly": "lightyear lightyears",
    "g": "gram grams gm gms",
    "mg": "milligram milligrams",
    "kg": "kilogram kilograms kgs",
    "lb": "lbs pound pounds",
    "oz": "ounce ounces",
    "ton": "tons tonne tonnes",
    "s": "sec secs second seconds",
    "ms": "millisecond milliseconds",
    "min": "mins minute minutes",
    "h": "hr hrs hour hours",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "yr": "year years",
    "Hz": "hertz",
    "kHz": "kilohertz",
    "MHz": "megahertz",
    "GHz": "gigahertz",
    "N": "newton newtons",
    "J": "joule joules",
    "kJ": "kilojoule kilojoules",
    "cal": "calorie calories",
    "kcal": "kilocalorie kilocalories",
    "eV": "electronvolt electronvolts",
    "keV": "",
    "MeV": "",
    "W": "watt watts",
    "kW": "kilowatt kilowatts",
    "erg": "ergs",
    "Pa": "pascal pascals",
    "kPa": "",
    "atm": "atmosphere atmospheres",
    "V": "volt volts",
    "A": "ampere amperes amp amps",
    "ohm": "ohms \\Omega",
    "C": "coulomb coulombs",
    "T": "tesla",
    "K": "kelvin kelvins",
    "degC": "celsius",
    "degF": "fahrenheit",
    "deg": "degree degrees",
    "rad": "radian radians",
    "arcsec": "arcsecond arcseconds",
    "angstrom": "angstroms \\AA Å",
    "mol": "mole moles mols",
    "L": "liter liters litre litres",
    "mL": "milliliter milliliters millilitre millilitres ml",
    "dollar": "dollars usd",
    "cent": "cents",
    "euro": "euros",
    "mph": "",
    "kmh": "kmph",
    "square": "sq",
    "cubic": "cu",
    "unit": "units",
    "percent": "",
    "per": "",
    "point": "points",
    "way": "ways",
    "time": "times",
    "person": "people persons",
    "student": "students",
    "coin": "coins",
    "digit": "digits",
}
_CANONICAL = {
    alias: unit for unit, aliases in _ALIASES.items() for alias in (unit, *aliases.split())
}
_WORDS = frozenset(name for name in _CANONICAL if len(name) > 1)

_PART = re.compile(
    r"\\(?:text|mathrm|mathit|operatorname)\{([^{}]{0,80})\}|(\\[A-Za-z]+|[A-Za-zÅ]+)"
    r"|\^\{?(-?\d)\}?|([/*\s()\-.'~])"
)
_IN_WORDS = re.compile(r"(\\?[A-Za-zÅ]+)|\^\{?(-?\d)\}?|(/)")
_DEGREE = "^{\\circ}"
_UNIT_START = re.compile(r" ?\\(?:text|mathrm)\{| (?=[A-Za-z]{2})")
_UNFINISHED = frozenset(["", *"+-*/^_=<>,;([{&\\|"])
_REFUSED_WORDS = (
    "and or to not if when where with for million billion trillion thousand hundred dozen "
    "half third quarter twice minus plus"
)
_REFUSED = frozenset(_REFUSED_WORDS.split())
"""Words behind a number that change what it says."""


@lru_cache(maxsize=2048)
def read_unit(text: str, is_gold: bool) -> str | None:
    r"""What a number is followed by, as one name for each unit; None where it is no unit.

    ``\text{ cm}^2``, ``cm^2`` and ``square centimeters`` are ``cm^2``; text in words that are no
    known unit is the unit ``?``, which agrees with every other. Letters outside ``\text`` and
    ``\mathrm`` are a unit only where each of them is a known one; behind a gold, only with a
    space before them and of two letters at least, for ``5m`` may be a product.
    """
    place, in_words = 0, False
    spaced = text.startswith((" ", "\\text", "\\mathrm", "^"))
    stripped = text.strip()
    unit = _Unit()
    while place < len(stripped):
        part = _PART.match(stripped, place)
        if part is None:
            return None
        words, name, power, sign = part.groups()
        if words is not None:
            in_words = True
            for word, exponent, slash in _IN_WORDS.findall(words):
                if word.lower() in _REFUSED:
                    return None
                unit.add(word, exponent, slash)
        elif name is not None and name not in ("\\cdot", "\\times"):
            if name not in _CANONICAL and name.lower() not in _WORDS:
                return None
            if is_gold and not in_words and (not spaced or len(name) < 2):
                return None
            unit.add(name, None, None)
        elif power is not None or sign == "/":
            if place == 0 or (power and not (in_words or unit.has_parts)):
                return None
            unit.add(None, power, sign)
        place = part.end()
    return unit.name


def split_unit(text: str) -> tuple[str, str | None]:
    """An expression and the unit behind it; None where there is no unit."""
    if text.endswith(_DEGREE):
        return text.removesuffix(_DEGREE).rstrip(), "deg"
    for start in _UNIT_START.finditer(text):
        before, behind = text[: start.start()].rstrip(), text[start.start() :]
        if before[-1:] in _UNFINISHED:
            continue
        if (unit := read_unit(behind, True)) is not None:
            return before, unit
    return text, None


class _Unit:
    """Collects the parts of a unit: ``m``, ``/``, ``s``, ``^2`` are ``m s^-2``."""

    def __init__(self) -> None:
        self._parts: dict[str, int] = {}
        self._last: str | None = None
        self._next_power = 1
        self._known = True

    def add(self, word: str | None, power: str | None, slash: str | None) -> None:
        if slash == "/":
            self._next_power = -1
        elif power:
            if self._last is not None:
                sign = -1 if self._parts[self._last] < 0 else 1
                self._parts[self._last] = sign * int(power)
        elif word:
            self._add_word(_CANONICAL.get(word) or _CANONICAL.get(word.lower()))

    def _add_word(self, known: str | None) -> None:
        if known is None:
            self._known = False
        elif known == "per":
            self._next_power = -1
        elif known in ("square", "cubic"):
            self._next_power *= 2 if known == "square" else 3
        elif known != "unit":
            self._parts[known] = self._parts.get(known, 0) + self._next_power
            self._last, self._next_power = known, 1

    @property
    def has_parts(self) -> bool:
        return bool(self._parts)

    @property
    def name(self) -> str:
        if not self._known or not self._parts:
            return "?"
        return " ".join(
            unit if power == 1 else f"{unit}^{power}" for unit, power in sorted(self._parts.items())
        )
