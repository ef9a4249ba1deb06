r"""One spelling for texts that differ only in how they are typeset.

Every rule keeps the value: brackets, letters, units, signs, subscripts, case, and the space between
two numbers stay. Unknown commands are left for the reader to reject. Linear in the length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True))
_SIGNS = {
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

_COMMANDS = {
    r"\frac": "dfrac tfrac cfrac", r"\binom": "dbinom tbinom", r"\le ": "le leq leqq leqslant",
    r"\ge ": "ge geq geqq geqslant", r"\ne ": "ne neq", "<": "lt", ">": "gt", r"\{": "lbrace",
    r"\}": "rbrace", "[": "lbrack", "]": "rbrack", "|": "vert lvert rvert mid",
    r"\emptyset ": "varnothing O", r"\setminus ": "backslash smallsetminus", r"\infty ": "infin",
    r"\mathbb{R}": "R Reals", "$": "textdollar", "£": "textsterling pounds", "€": "texteuro euro",
    r"\text{ or }": "lor vee", r"\text{ and }": "land",
    r"\approx ": "approxeq thickapprox simeq doteq",
    r"\ldots ": "dots dotsb dotsc dotsm dotsi dotso cdots",
    "": "displaystyle textstyle scriptstyle limits nolimits boldmath mathstrut strut large Large "
        "huge small normalsize allowbreak",
}  # fmt: skip
"""How commands are spelled here that mean the same, or nothing."""
_SPELLED_COMMANDS = {
    name: spelling for spelling, names in _COMMANDS.items() for name in names.split()
}


def _spelled_command(command: re.Match[str]) -> str:
    return _SPELLED_COMMANDS.get(command[1], command[0])


_END = r"(?![A-Za-z])"
_ORDINAL = "(?:st|nd|rd|th)"
RULES: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (name, re.compile(pattern), replacement)
    for name, pattern, replacement in (
        ("thousands", r",\\! ?(?=\d{3}(?!\d))|\{ ?, ?\} ?(?=\d{3}(?!\d))", r"{,}"),
        ("colons", r"\{ ?: ?\}|\\(?:text|mathrm) ?\{ ?: ?\}|\\colon(?![A-Za-z])", ":"),
        ("thin spaces", r"(?<!\\)\\[,;:> ]|~|\\(?:thinspace|medspace|enspace)" + _END, " "),
        ("negative space", r"\\!", ""),
        ("wide spaces", rf"\\q?quad(?:{_END}|(?=[a-z]_))", "  "),
        ("delimiters", r"(?<!\\)\\[()\[\]]", " "),
        ("empty delimiters", r"\\(?:left|right|[bB]igg?[lrm]?) ?\.", ""),
        ("sizes", rf"\\(?:left|right|middle|[bB]igg?[lrm]?){_END}", ""),
        ("systems", r"(?:\\\{ ?)?\\begin ?\{(?:cases|array|aligned)\} ?(?:\{[lcr]+\})?"
                    r"([^&<>{}]{1,200}=[^&{}]{1,200})\\end ?\{(?:cases|array|aligned)\}", r"\1"),
        ("empty set", r"\\\{ ?\\\}", r"\\emptyset "),
        ("commands", r"\\([A-Za-z]+)", _spelled_command),
        ("colours", r"\\textcolor ?\{\w{1,20}\} ?(?=\{)|\\color ?\{\w{1,20}\}", ""),
        ("chosen", r"\{ ?([^{}\\]{1,40}) ?\\choose ?([^{}\\]{1,40})\}", r"\\binom{\1}{\2}"),
        ("at most", "<=", r"\\le "),
        ("at least", ">=", r"\\ge "),
        ("unequal", r"!=|\\not ?=", r"\\ne "),
        ("infinity", rf"(?<![A-Za-z\\])(?:infinity|oo|inf){_END}", r"\\infty "),
        ("reals", r"\\(?:Bbb|mathbf|bf) ?\{ ?R ?\}", r"\\mathbb{R}"),
        ("fonts", r"\\(?:text(?:bf|it|rm|sf|tt|normal|up|md|sc)|[mh]box|emph)(?= ?\{)", r"\\text"),
        ("upright", r"\\math(?:it|sf|tt|normal|up)(?= ?\{)", r"\\mathrm"),
        ("bold", r"\\(?:boldsymbol|bm|pmb)(?= ?\{)", r"\\mathbf"),
        ("degrees", rf"\\(?:degrees?|textdegree){_END}(?:\{{\}})?|\^ ?\\circ{_END}|"
                    r"\^ ?\{ ?\\circ ?\}", r"^{\\circ}"),
        ("primes", r"\^ ?\{ ?\\prime ?\\prime ?\}", "''"),
        ("prime", rf"\^ ?\\prime{_END}|\^ ?\{{ ?\\prime ?\}}", "'"),
        ("percent", rf"\\%|\\textpercent{_END}"
                    r"|\\?(?:text|mathrm) ?\{ ?(?:\\?%|percent|percentage|pct) ?\}"
                    r"|(?<=[\d\s}])(?:percentage|percent|pct)(?![A-Za-z])", "%"),
        ("dollars", r"\\\$", "$"),
        ("conjunctions", r"\\&", r"\\text{ and }"),
        ("plus or minus", r"\+/-|\+-", r"\\pm "),
        ("times ten", r"(?<=\d) ?[xX] ?(?=10 ?\^)", r"\\times "),
        ("moduli", r"\\pmod ?(\d)", r"\\pmod{\1}"),
        ("introductions", r"^ ?\\text ?\{ ?(?:[tT]he )?(?:final )?[aA]nswer(?: is)?:? ?\} ?"
                          r"|^ ?(?:[tT]he )?(?:final )?[aA]nswer(?: is)?:? (?=[^A-Za-z])", ""),
        ("ordinals in text", rf"\\(?:text|mathrm) ?\{{ ?(\d{{1,99}}) ?-?{_ORDINAL} ?\}}",
                             r"\1\\text{th}"),
        ("ordinals", rf"(?<=\d) ?-? ?\^? ?(\{{ ?)?\\(?:text|mathrm|textsuperscript) ?"
                     rf"\{{ ?-?{_ORDINAL} ?\}}(?(1) ?\}})"
                     r"|(?<=\d) ?\^ ?\{ ?th ?\}|(?<=(?<!1)1) ?\^ ?\{ ?st ?\}", r"\\text{th}"),
        ("plain ordinals", r"(^ ?|[,;] ?|(?<![A-Za-z])(?:and|or) )"
                           r"(\d{0,98}(?:\d(?=-?th)|(?<!1)(?:1(?=-?st)|2(?=-?nd)|3(?=-?rd))))-?[a-z]{2}"
                           r"(?= ?(?:$|[,;.]|and |or |\\text))", r"\1\2\\text{th}"),
        ("counted things", r"^ ?\\text ?\{ ?(-?\d[\d,]{0,99}(?:\.\d{1,99})?) ([A-Za-z]{2,20}"
                           r"(?: [A-Za-z]{1,20}){0,4} ?)\} ?$", r"\1\\text{ \2}"),
        ("ascii powers", r"\*\*", "^"),
        ("underscores", r"\\_", "_"),
        ("dots", r"\.\.\.", r"\\ldots "),
    )
)  # fmt: skip
"""(name, what is written, how it is spelled here), applied in this order."""

_PLAIN = re.compile(r"[0-9 ,()/.-]*(?<!\.)")
_SPACES = re.compile(r"[ \t\n\r\v\f]+")
_CONTROL_SPACE = re.compile(r"(\\[A-Za-z]+) +(?![A-Za-z])")
_WRAPPER = re.compile(r"\\(?:text|mathrm|boxed|fbox|mathbf) ?(?=\{)")
_ESCAPED_TWICE = re.compile(r"\\\\(?=[A-Za-z]{2})")
_ROOT = re.compile(r"√ ?(\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z]))")
_FOLDABLE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")


@lru_cache(maxsize=4096)
def spelled(text: str) -> str:
    """The text in one spelling, without dollars around mathematics and final punctuation."""
    text = _ascii(text)
    text = _without_math_dollars(text)
    if "\\begin" not in text:
        text = _ESCAPED_TWICE.sub(r"\\", text)
    text = text.replace("\t", " ").replace("\n", " ").replace("\r", " ")
    if not _PLAIN.fullmatch(text):
        for _, pattern, replacement in RULES:
            text = pattern.sub(replacement, text)
    return _unwrapped(text)


def same_text(first: str, second: str) -> bool:
    """Whether two spelled texts differ in space alone, and in none between letters or digits."""
    return first == second or (
        first.replace(" ", "") == second.replace(" ", "") and _folded(first) == _folded(second)
    )


def _folded(text: str) -> str:
    return _FOLDABLE.sub("", _CONTROL_SPACE.sub(r"\1", _SPACES.sub(" ", text)))


def is_readable(text: str) -> bool:
    """Whether every character is one that a person could have meant to write."""
    return all(
        character in "\t\n\r\v\f" or unicodedata.category(character) not in ("Cc", "Cs", "Co", "Cn")
        for character in text
    )


def nesting(text: str) -> int:
    """How deep brackets nest at most."""
    steps = ((character in "([{") - (character in ")]}") for character in text)
    return max(accumulate(steps, initial=0))


def _without_math_dollars(text: str) -> str:
    """Dollars in pairs delimit mathematics; a single one is money."""
    if "$" not in text:
        return text
    pieces = re.split(r"(?<!\\)\$", text)
    return " ".join(pieces) if len(pieces) % 2 or "$$" in text else text


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    text = _ROOT.sub(r"\\sqrt{\1}", unicodedata.normalize("NFC", text))
    for mark, raised in (("^", _SUPERSCRIPTS), ("_", _SUBSCRIPTS)):
        pieces = re.split(f"([{''.join(raised)}]+)", text)
        pieces[1::2] = (f"{mark}{{{''.join(raised[one] for one in run)}}}" for run in pieces[1::2])
        text = "".join(pieces)
    return "".join(map(_one_ascii, text))


def _one_ascii(character: str) -> str:
    if character.isascii():
        return character
    if character in _SIGNS:
        return _SIGNS[character]
    if character in GREEK:
        return f"\\{GREEK[character]} "
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
        text = text.strip()
        if not text.endswith(("a.m.", "p.m.", "\\ldots")):
            text = text.rstrip(".,;:\\").strip()
        match = _WRAPPER.match(text)
        inner = _braced(text, match.end() if match else 0)
        if inner is None:
            break
        if (
            match
            and match.group().startswith(("\\text", "\\math"))
            and re.search(r"[A-Za-z]", inner)
            and "," not in inner
            and "\\" not in inner
        ):
            break  # words and upright names stay what they are
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
