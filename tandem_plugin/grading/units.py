"""The units that may follow a number, and which spellings are the same unit.

A bare letter is a factor, unless in ``\\text`` or ``\\mathrm``. Nothing is converted.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from pathlib import Path

from tandem_plugin.grading.spelling import is_letter

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
    "atmosphere", "V": "volt", "A": "ampere amp", "ohm": "Ω", "C": "coulomb", "T": "tesla",
    "K": "kelvin", "degC": "celsius °C", "degF": "fahrenheit °F", "deg": "degree °",
    "rad": "radian", "arcsec": "arcsecond", "angstrom": "Å", "mol": "mole", "L": "liter litre",
    "mL": "milliliter millilitre ml", "$": "dollar usd", "cent": "", "€": "euro eur",
    "£": "gbp", "mph": "", "kmh": "kmph", "M": "molar", "µm": "um micron micrometer micrometre μm",
    "千米": "公里", "千克": "公斤", "毫米": "", "厘米": "", "km/h": "",
}  # fmt: skip
_CANONICAL = {
    alias: unit for unit, aliases in _ALIASES.items() for alias in (unit, *aliases.split())
} | {"unit": "", "units": ""}
_TIMES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED = {"squared": 2, "cubed": 3}
_REFUSED_WORDS = (
    "and or to not if when where with without for plus minus half twice thrice over "
    "zero one two three four five six seven eight nine ten eleven twelve maybe "
    "perhaps about approximately at more less than least most between except no none all i e pi x "
    "y z is are was but wrong false choose mod modulo divided times point root sqrt "
    "base factorial through incorrect invalid impossible rejected guess estimate approx roughly "
    "nearly almost mn mln mio mrd bn tsd млрд тыс ou oder lub или ni и et und nicht non не 或 和 "
    "不 半 gross score ppm ppb permille dutzend dozzina dozzine duzina tuzin tucet дюжина дюжины "
    "дюжин halves"
)
_REFUSED = frozenset(_REFUSED_WORDS.split())
"""Words after a number that change its meaning; so do characters that are numbers, like 万."""
_COUNT_WORDS = (
    "third quarter fourth fifth sixth seventh eighth ninth tenth hundredth thousandth millionth "
    "billionth hundred dozen thousand lakh crore douzaine docena dúzia"
)
_COUNTS = frozenset(_COUNT_WORDS.split())
"""The same, with a plural in s."""
_NUMBER_WORDS = frozenset(
    Path(__file__).with_name("number_words.txt").read_text(encoding="utf-8").split()
)
"""Words for thousands and more in the languages that Unicode's CLDR covers (its long compact
decimal formats; Unicode License)."""
_UNSPACED = tuple(word for word in _NUMBER_WORDS if "\u0e00" <= word < "\u1800")
"""Those of scripts without spaces, where what is counted follows in the same word."""
_HANGUL_NUMBER = re.compile("[십백천만억조]{2,}.{0,4}|[백천만억조](?:원|달러|명)?")
_NUMBER_STEM = re.compile("mill?[ij]?(?:[oó]n|ard)")
"""How other forms of million and milliard begin."""
_PIECE = re.compile(
    r" ?(?:\\(?:text|mathrm|operatorname) ?\{ ?"
    r"(?P<text>(?:[^{}\\]|\{-?\d\}){1,60})\}"
    r"|(?P<power>\^ ?(?:\{ ?-?\d ?\}|\d))|(?P<sign>[/.]|\\cdot(?![A-Za-z]))"
    r"|(?P<bare>(?<![A-Za-z])[A-Za-z]{1,20}(?![A-Za-z])))"
)
_START = re.compile(
    r" ?(?:\\(?:text|mathrm|operatorname) ?\{|(?<=[\d})])[A-Za-z]{2}|(?<=[\d})] )[A-Za-z]{2})"
)
_END = re.compile(
    r" *(?:$|[,;:=<>)\]%|]|\\[}|]|\\(?:le|ge|ne|approx|cup|cap|in|end|rangle)(?![A-Za-z])|&|\\\\"
    r"|\\text ?\{ ?,? ?(?:and|or|to|:) ?\}|(?:and|or)(?![A-Za-z]))"
)
_WORD = re.compile(r"\^ ?\{? ?(-?\d) ?\}?|(/)|([^\s\d/^{}().'\u2019·-]+)|(\d)")
_MAX_PIECES = 24


@lru_cache(maxsize=2048)
def unit_at(text: str, place: int) -> tuple[str, int] | None:
    """One name for the unit that ends a value here, empty for ``units``, and where it ends."""
    if _START.match(text, place) is None:
        return None
    words: list[str] = []
    begins_with_text = "\\" in text[place : place + 2]
    for _ in range(_MAX_PIECES):
        piece = None if _END.match(text, place) and words else _PIECE.match(text, place)
        if piece is None:
            break
        bare = piece["bare"]
        if bare and bare not in ("and", "or") and not (
            _is_known(bare) and (len(bare) > 1 or begins_with_text)
        ):  # fmt: skip
            return None
        words.append(piece["text"] or piece["power"] or piece["sign"] or bare)
        place = piece.end()
    if not words or not _END.match(text, place) or (name := _named(" ".join(words))) is None:
        return None
    return name, place


def _named(text: str) -> str | None:
    """One name for a unit's powers, in order; None for what is no unit."""
    powers: dict[str, int] = {}
    last, sign, times = None, 1, 1
    for power, slash, word, digit in _WORD.findall(text):
        if digit or not all(map(_is_of_units, word)):
            return None
        if slash or word == "per":
            sign = -1
        elif power or word in _RAISED:
            if last is None:
                return None
            exponent = int(power) if power else _RAISED[word]
            powers[last] += (exponent - 1) * (1 if powers[last] > 0 else -1)
        elif word in _TIMES:
            times = _TIMES[word]
        elif word.lower() in _REFUSED or _is_number(word):
            return None
        else:
            last = _canonical(word)
            powers[last] = powers.get(last, 0) + sign * times
            sign = times = 1
    return " ".join(f"{name}^{power}" if power != 1 else name
                    for name, power in sorted(powers.items()) if name and power)  # fmt: skip


def _is_of_units(character: str) -> bool:
    return is_letter(character) or character in "°%$" or unicodedata.category(character) == "Sc"


def _is_number(word: str) -> bool:
    """Whether a word that is no known unit is, or may be, a number: 万, k, Millionen."""
    is_unknown = _canonical(word) not in _CANONICAL.values()
    is_short = len(word) == 1 and word.isascii()
    numeric = any(unicodedata.numeric(letter, None) is not None for letter in word)
    return is_unknown and (is_short or numeric or _is_large_number(word.lower()))


def _is_large_number(word: str) -> bool:
    if word in _NUMBER_WORDS or word.removesuffix("s") in _COUNTS:
        return True
    is_stem = _NUMBER_STEM.match(word) or _HANGUL_NUMBER.fullmatch(word)
    return bool(is_stem) or word.startswith(_UNSPACED)


def _is_known(word: str) -> bool:
    return _canonical(word) in _CANONICAL.values() or word == "per" or word in _TIMES


def _canonical(word: str) -> str:
    lower = word.lower() if len(word) > 2 else word
    for form in (word, lower, lower.removesuffix("s")):
        if form in _CANONICAL:
            return _CANONICAL[form]
    return lower.removesuffix("s") if len(word) > 2 else word
