"""A text, a place in it, the numbers read there, and the signs and names that are known."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from tandem_plugin.grading.relation_kinds import UnreadableError
from tandem_plugin.grading.tree import Node, num

__all__ = [
    "ACCENTS",
    "FUNCTIONS",
    "GREEK",
    "NAMES",
    "SIGNS",
    "SUBSCRIPTS",
    "SUPERSCRIPTS",
    "Scanner",
]

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True))
SIGNS = {
    "−": "-", "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "﹣": "-",
    "×": "\\times ", "✕": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "∙": "\\cdot ",
    "÷": "\\div ", "⁄": "/", "∕": "/", "±": "\\pm ", "∓": "\\mp ",
    "≤": "\\le ", "⩽": "\\le ", "≥": "\\ge ", "⩾": "\\ge ", "≠": "\\ne ", "≈": "\\approx ",
    "∞": "\\infty ", "√": "\\sqrt ", "∪": "\\cup ", "∩": "\\cap ", "∅": "\\emptyset ",
    "∈": "\\in ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}",
    "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}", "⟨": "\\langle ", "⟩": "\\rangle ",
    "°": "^{\\circ}", "º": "^{\\circ}", "′": "'", "″": "''", "’": "'", "‘": "'", "“": '"',
    "”": '"', "…": "\\ldots ", "，": ",", "。": ".", "Å": "Å",
}  # fmt: skip
GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "µ": "mu",
    "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "υ": "upsilon",
    "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi",
    "Ω": "Omega",
}  # fmt: skip
_OTHER_NAMES = (
    "varepsilon vartheta varrho varphi Upsilon ell hbar aleph nabla partial imath jmath Re Im odot"
)
NAMES = frozenset((*GREEK.values(), *_OTHER_NAMES.split()))
"""The commands that are letters."""
_FUNCTION_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc ln log "
    "lg exp max min gcd lcm mod det floor ceil abs sqrt sgn"
)
FUNCTIONS = {name: name for name in _FUNCTION_NAMES.split()} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot",
    "arctg": "arctan",
}  # fmt: skip
"""The functions' names, and what they are called here."""
ACCENTS = "vec bar hat dot ddot tilde overline underline widehat overrightarrow angle triangle"


_MAX_DIGITS = 1_000
_MAX_EXPONENT = 1_000
_GROUPED = r"[1-9]\d{0,2}(?:(?:\{,\}\d{3})+|(?: \d{3})+)(?!\d)"
_NUMBER = rf"({_GROUPED}|\d+)(?:\.(\d+))?|\.(\d+)"
_NUMBER_OUTSIDE = rf"({_GROUPED}|[1-9]\d{{0,2}}(?:,\d{{3}})+(?!\d)|\d+)(?:\.(\d+))?|\.(\d+)"
_FLOAT = r"(\d*)(?:\.(\d+))?[eE]([+-]?\d{1,5})(?!\d)"
_MIXED = r"(\d{1,99}) (\d{1,99}) ?/ ?(\d{1,99})(?![\d.])"
_MIXED_FRAC = r"\\frac ?(?:\{ ?(\d{1,99}) ?\}|(\d)) ?(?:\{ ?(\d{1,99}) ?\}|(\d))"
_REPEATING = (
    r"(\d{0,99})\.(\d{0,99})\\(?:overline|bar|dot) ?\{ ?(\d{1,60}) ?\}",
    r"(\d{0,99})\.(\d{0,99}?)(?:(\d)\3\3|(\d{2,12})\4)\d{0,12} ?\\ldots",
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(f" *(?:{pattern})", re.ASCII)


class Scanner:
    """A text that is read from a moving place. Everything raises :class:`UnreadableError`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.brackets = 0
        """Open round and square brackets and sets, in which a comma separates."""

    def fail(self) -> UnreadableError:
        return UnreadableError(f"Unknown at character {self.place}.")

    def peek(self, pattern: str) -> re.Match[str] | None:
        return _compiled(pattern).match(self.text, self.place)

    def sees(self, pattern: str) -> bool:
        return _compiled(pattern).match(self.text, self.place) is not None

    def take(self, pattern: str) -> re.Match[str] | None:
        if (match := _compiled(pattern).match(self.text, self.place)) is not None:
            self.place = match.end()
        return match

    def expect(self, pattern: str) -> str:
        if (match := self.take(pattern)) is None:
            raise self.fail()
        return match[0].strip()

    def all_of(self, rule: Callable[[], Node]) -> Node:
        """What a rule reads, where that is the whole text."""
        node = rule()
        self.expect("$")
        return node

    def number(self) -> Node:
        for pattern in _REPEATING:
            if (found := self.take(pattern)) is not None:
                head, fixed, *cycles = (group or "" for group in found.groups())
                cycle = "".join(cycles)
                shown = Fraction(int(head + fixed or "0"), 10 ** len(fixed))
                return num(shown + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed)))
        if (found := self.take(_FLOAT)) is not None:
            return self.value_of(f"{found[1] or '0'}.{found[2] or ''}", int(found[3]))
        if (found := self.take(_MIXED)) is not None:
            return self._mixed(*found.groups())
        found = self.take(_NUMBER if self.brackets else _NUMBER_OUTSIDE)
        if found is None:
            raise self.fail()
        whole = re.sub(r"[ ,{}]", "", found[1] or "0")
        number = self.value_of(f"{whole}.{found[2] or found[3] or ''}", None)
        if found[1] and not found[2] and (frac := self.take(_MIXED_FRAC)) is not None:
            return self._mixed(whole, frac[1] or frac[2], frac[3] or frac[4])
        if self.sees(r"[_\d.]"):
            raise self.fail()
        return number

    def _mixed(self, whole: str, top: str, bottom: str) -> Node:
        if int(top) >= int(bottom):
            raise self.fail()
        return Node("sum", (num(int(whole)), Node("div", (num(int(top)), num(int(bottom))))))

    def value_of(self, digits: str, exponent: int | None) -> Node:
        whole, _, part = digits.partition(".")
        if len(digits) > _MAX_DIGITS or abs(exponent or 0) > _MAX_EXPONENT:
            raise self.fail()
        value = Fraction(int(whole + part), 10 ** len(part)) * Fraction(10) ** (exponent or 0)
        is_measured = exponent is not None or value.denominator != 1
        return num(value, (exponent or 0) - len(part) if is_measured else None)
