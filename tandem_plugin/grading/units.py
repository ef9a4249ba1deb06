"""The units that may follow a number, and which spellings are the same unit.

Only what stands in ``\\text`` or ``\\mathrm``, or is a known unit of two letters and more, can be a
unit: a letter is otherwise a factor. Nothing is converted.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["split_unit"]

_ALIASES = {
    "m": "metre meter", "cm": "centimetre centimeter", "mm": "millimetre millimeter",
    "km": "kilometre kilometer", "nm": "nanometre nanometer", "in": "inch inches",
    "ft": "foot feet", "yd": "yard", "mi": "mile", "pc": "parsec", "kpc": "kiloparsec", "AU": "au",
    "ly": "lightyear", "g": "gram gm", "mg": "milligram", "kg": "kilogram kilo", "lb": "pound",
    "oz": "ounce", "ton": "tonne", "s": "sec second", "ms": "millisecond", "min": "minute",
    "h": "hr hour", "day": "", "week": "", "month": "", "yr": "year", "Hz": "hertz",
    "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "N": "newton", "J": "joule",
    "kJ": "kilojoule", "cal": "calorie", "kcal": "kilocalorie", "eV": "electronvolt", "keV": "",
    "MeV": "", "W": "watt", "kW": "kilowatt", "erg": "", "Pa": "pascal", "kPa": "", "atm":
    "atmosphere", "V": "volt", "A": "ampere amp", "ohm": "", "C": "coulomb", "T": "tesla",
    "K": "kelvin", "degC": "celsius", "degF": "fahrenheit", "deg": "degree", "rad": "radian",
    "arcsec": "arcsecond", "angstrom": "Å", "mol": "mole", "L": "liter litre",
    "mL": "milliliter millilitre ml", "$": "dollar usd", "cent": "", "€": "euro eur",
    "£": "gbp", "mph": "", "kmh": "kmph",
}  # fmt: skip
_CANONICAL = {
    alias: unit for unit, aliases in _ALIASES.items() for alias in (unit, *aliases.split())
}
_EMPTY = frozenset(("unit", "units"))
_REFUSED_WORDS = (
    "and or to not if when where with without for plus minus half third quarter twice thrice over "
    "zero one two three four five six seven eight nine ten eleven twelve hundred dozen maybe "
    "perhaps about approximately at more less than least most between except no none all i e pi x "
    "y z is are was but wrong false choose mod modulo divided times point root sqrt "
    "base factorial through thousand million billion trillion"
)
_REFUSED = frozenset(_REFUSED_WORDS.split())
"""Words behind a number that change what it says."""
_TAIL = re.compile(
    r"(?: ?(?:\\(?:text|mathrm|operatorname) ?\{ ?[A-Za-zÅ][A-Za-zÅ .'/^0-9{}-]{0,60}\}"
    r"|\^ ?(?:\{ ?-?\d ?\}|\d)|[/.]|\\cdot(?![A-Za-z])"
    r"|(?<![A-Za-zÅ])[A-Za-zÅ]{1,20}(?![A-Za-zÅ])))+ ?"
)
_START = re.compile(r" ?\\(?:text|mathrm|operatorname) ?\{|(?<=[\d})]) ?(?=[A-Za-z]{2})")
_WORD = re.compile(r"([A-Za-zÅ]+)|\^ ?\{? ?(-?\d) ?\}?|(/)")
_GROUP = re.compile(r"\\(?:text|mathrm|operatorname) ?\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_UNFINISHED = frozenset(["", *"+-*/^_=<>,;:([{&\\|"])


@lru_cache(maxsize=2048)
def split_unit(text: str) -> tuple[str, str] | None:
    """A spelled expression and the name of the unit behind it, or None where there is no unit.

    The name is the same for every spelling of a unit, and empty for ``units``.
    """
    for start in _START.finditer(text):
        before, behind = text[: start.start()].rstrip(), text[start.start() :]
        if before[-1:] in _UNFINISHED:
            continue
        if _TAIL.fullmatch(behind) and (unit := _unit(behind)) is not None:
            return before, unit
        if not behind.lstrip().startswith("\\"):
            continue
    return None


def _unit(text: str) -> str | None:
    bare = _GROUP.sub(" ", text)
    follows_words = text.lstrip().startswith("\\")
    for word, _, _ in _WORD.findall(bare):
        if word and not (_is_known(word) and (len(word) > 1 or follows_words)):
            return None
    powers: dict[str, int] = {}
    last, sign = None, 1
    pending = 1
    for word, power, slash in _WORD.findall(re.sub(r"\\[a-z]+", " ", text)):
        if slash or word == "per":
            sign = -1
        elif power or word in ("squared", "cubed"):
            if last is None:
                return None
            exponent = int(power) if power else 2 if word == "squared" else 3
            powers[last] += (exponent - 1) * (1 if powers[last] > 0 else -1)
        elif word in ("square", "sq", "cubic", "cu"):
            pending = 2 if word.startswith("s") else 3
        else:
            if word.lower() in _REFUSED:
                return None
            name = _name(word)
            if name:
                powers[name] = powers.get(name, 0) + sign * pending
            last, sign, pending = name or last, 1, 1
            if not name:
                powers.setdefault("", 0)
                last = ""
    return " ".join(f"{name}^{power}" if power != 1 else name
                    for name, power in sorted(powers.items()) if name and power)  # fmt: skip


def _is_known(word: str) -> bool:
    return _name(word) in _ALIASES or word in ("per", "square", "sq", "cubic", "cu", *_EMPTY)


def _name(word: str) -> str:
    if word.lower() in _EMPTY:
        return ""
    if word in _CANONICAL:
        return _CANONICAL[word]
    folded = word.lower().removesuffix("s") if len(word) > 2 else word
    return _CANONICAL.get(word.lower() if len(word) > 2 else word) or _CANONICAL.get(folded, folded)
