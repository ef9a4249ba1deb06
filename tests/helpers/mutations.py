"""Golds with one thing changed, and golds written otherwise: what a grader must tell apart."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

_OPERATORS = {"+": "-", "-": "+", "*": "+", "/": "+"}
_ENDS = {"(": "[", ")": "]", "[": "(", "]": ")"}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def mutations(gold: str, seed: int = 0) -> Iterator[tuple[str, str]]:
    """(what was changed, the changed gold): one of each kind that the gold has a place for."""
    draw = random.Random(f"{seed}{gold}")
    for kind, changed in (
        ("digit", _at(gold, r"\d", draw, lambda d: str((int(d) + draw.randrange(1, 10)) % 10))),
        ("sign", gold[1:] if gold.startswith("-") else f"-{gold}"),
        ("letter", _at(gold, r"(?<![\\A-Za-z{])[a-zA-Z](?![A-Za-z}])", draw, _other_letter)),
        ("operator", _at(gold, r"(?<=[\w)}] )[+-](?= ?[\w\\(])|(?<=[\w)}])[+-](?=[\w\\(])", draw,
                         lambda o: _OPERATORS[o])),
        ("exponent", _at(gold, r"(?<=\^)\d|(?<=\^\{)\d", draw, lambda d: str((int(d) + 1) % 10))),
        ("entry", _at(gold, r"(?<=, )[^,(){}]+|(?<=,)[^,(){}]+", draw, lambda e: f"{e}+1")),
        ("end", _at(gold, r"^[\[(](?=.*,.*[\])]$)", draw, lambda e: _ENDS[e])),
        ("factor", f"2({gold})" if re.fullmatch(r"[^,=<>:]+", gold) else gold),
        ("term", f"{gold}+1" if re.fullmatch(r"[^,=<>:]+", gold) else gold),
    ):  # fmt: skip
        if changed != gold and (gold != "0" or kind not in ("sign", "factor")):
            yield kind, changed


def _at(gold: str, pattern: str, draw: random.Random, change: object) -> str:
    places = list(re.finditer(pattern, gold))
    if not places:
        return gold
    place = draw.choice(places)
    return gold[: place.start()] + change(place.group()) + gold[place.end() :]  # type: ignore[operator]


def _other_letter(letter: str) -> str:
    letters = "abcdghkmnpqrstuvwxyz"
    after = letters[(letters.find(letter.lower()) + 1) % len(letters)]
    return after.upper() if letter.isupper() else after


def restyled(gold: str) -> Iterator[tuple[str, str]]:
    """(what was done, the gold written otherwise, with the same value)."""
    yield "dollars", f"${gold}$"
    yield "delimiters", rf"\({gold}\)"
    yield "spaces", f" {gold} "
    yield "final point", f"{gold}."
    yield "display", rf"\displaystyle {gold}"
    if re.fullmatch(r"-?\d+", gold):
        yield "text", rf"\text{{{gold}}}"
        yield "name", f"x = {gold}"
        yield "decimal", f"{gold}.0"
        yield "fraction", rf"\frac{{{2 * int(gold)}}}{{2}}"
        yield "unit", rf"{gold} \text{{ cm}}"
        yield "brackets", f"({gold})"
        if len(gold) > 3:
            yield "thousands", f"{int(gold):,}"
            yield "thin spaces", f"{int(gold):,}".replace(",", r"{,}")
    if re.fullmatch(r"-?\d*\.\d+", gold):
        digits = len(gold.partition(".")[2])
        yield "fraction", rf"\frac{{{int(gold.replace('.', ''))}}}{{{10**digits}}}"
        yield "zero", f"{gold}0"
    if "\\frac" in gold:
        yield "small fractions", gold.replace("\\frac", "\\tfrac")
        yield "display fractions", gold.replace("\\frac", "\\dfrac")
    if re.fullmatch(r"\\frac\{-?\w+\}\{\w+\}", gold):
        top, bottom = re.findall(r"\{(-?\w+)\}", gold)
        yield "slash", f"{top}/{bottom}"
    if "(" in gold:
        yield "sizes", re.sub(r"\)", r"\\right)", re.sub(r"\(", r"\\left(", gold))
    if "\\times" in gold:
        yield "dot", gold.replace("\\times", "\\cdot")
    if "^" in gold and "{" not in gold and "circ" not in gold:
        yield "double stars", gold.replace("^", "**")
    if "+" in gold and re.fullmatch(r"[^=<>,()\[\]]+", gold):
        yield "spaces around signs", gold.replace("+", " + ")
