r"""One spelling for texts that differ only in how they are typeset.

Every rule keeps the value: brackets, letters, units, signs, subscripts, case, and the space between
two numbers stay. Unknown commands are left for the reader to reject. Linear in the length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, groupby

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True))
_SIGNS = {
    "\u2062": "\\cdot ", "\u2063": ",", "−": "-", "∶": ":", "、": ", ", "∗": "*", "⋯": "\\ldots ",
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
    letter: name.lower() if letter.islower() else name.capitalize()
    for letter in "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
    for name in [unicodedata.name(letter).split()[-1].replace("LAMDA", "LAMBDA")]
} | {"µ": "mu", "ϕ": "phi"}

_COMMANDS = {
    r"\frac": "dfrac tfrac cfrac nicefrac sfrac xfrac", r"\binom": "dbinom tbinom",
    r"\le ": "le leq leqq leqslant", r"\mathbb": "Bbb",
    r"\ge ": "ge geq geqq geqslant", r"\ne ": "ne neq", "<": "lt", ">": "gt", r"\{": "lbrace",
    r"\}": "rbrace", "[": "lbrack", "]": "rbrack", "|": "vert lvert rvert mid",
    r"\emptyset ": "varnothing O", r"\setminus ": "backslash smallsetminus", r"\infty ": "infin",
    r"\mathbb{R}": "R Reals", r"\mathbb{Z}": "Z", r"\mathbb{N}": "N natnums", r"\mathbb{Q}": "Q",
    "$": "textdollar", "£": "textsterling pounds", "€": "texteuro euro",
    r"\text{ or }": "lor vee", r"\text{ and }": "land",
    r"\approx ": "approxeq thickapprox simeq doteq",
    r"\ldots ": "dots dotsb dotsc dotsm dotsi dotso cdots",
    "": "displaystyle textstyle scriptstyle limits nolimits boldmath mathstrut strut allowbreak "
        "tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge rm bf it sf tt "
        "sl sc em rmfamily sffamily ttfamily bfseries mdseries upshape itshape slshape normalfont "
        "therefore because noindent par centering protect nonumber notag nobreak relax hfill "
        "ensuremath smash mathord mathop mathrel mathbin mathopen mathclose underline uline "
        "framebox smallskip medskip bigskip",
}  # fmt: skip
"""How commands are spelled here that mean the same, or nothing."""
_SPELLED_COMMANDS = {
    name: spelling for spelling, names in _COMMANDS.items() for name in names.split()
}


def _spelled_command(command: re.Match[str]) -> str:
    return _SPELLED_COMMANDS.get(command[1], command[0])


_END = r"(?![A-Za-z])"
_LAYOUT = "equation|align|aligned|alignat|gather|gathered|split|multline|displaymath|math|center"
_ANSWER = (
    "(?:[tT]he )?(?:final )?(?:[aA]nswer|[aA]ns[.]?|[rR]espuesta|[rR]éponse|[aA]ntwort|[rR]esposta"
    "|[rR]isposta|[оО]твет|[cC]evap|答案|答|答え|정답|답)"
)
_FONTS = "rm|it|sf|tt|sl|sc|em|rmfamily|itshape|upshape|normalfont"
_LENGTH = r"-?[\d.]+ ?(?:pt|em|ex|mm|cm|in|mu)"
_INNER = r"\{(?:[^{}]|\{[^{}]*\})*\}"
CONJUNCTIONS = {
    "or": "or ou oder lub ili veya eller или 或 或者 或是 または 又は 또는 혹은 أو หรือ या",
    "and": "and et und och ve và и та 和 与 及 以及 と 及び 그리고 와 과 و และ और",
}
"""What joins two values in the languages of most problem sets."""
_LETTERS = {"or": " [ou] ", "and": " [yei] "}
"""Conjunctions that are also names: only between spaces."""


def _conjunction(word: str) -> str:
    words = "|".join(CONJUNCTIONS[word].split())
    return rf"\\text ?\{{(?: ?,? ?(?:{words}) ?|{_LETTERS[word]})\}}"


def _parts(text: re.Match[str]) -> str:
    """``(a) 3, (b) 5`` as ``(3; 5)``, if no letter is left out."""
    pieces = re.split(r"(?:^|[,;]? ?)(?<![\w)\\])\(?([a-h])\) ?", text[0].strip())
    is_whole = "".join(pieces[1::2]) == "abcdefgh"[: len(pieces) // 2] and all(pieces[2::2])
    return f"({'; '.join(piece.strip() for piece in pieces[2::2])})" if is_whole else text[0]


def _laid_out(environment: re.Match[str]) -> str:
    """The content of an environment that only places it: rows, without their columns."""
    return re.sub(r"\\\\ *(?==)", " ", environment[3].replace("&", "  "))


_ORDINAL = "(?:st|nd|rd|th)"
RULES: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (name, re.compile(pattern), replacement)
    for name, pattern, replacement in (
        ("row ends", rf"\\\\ ?(?:\*|\[ ?{_LENGTH} ?\])|\\(?:cr|newline){_END}", r"\\\\"),
        ("starred matrices", r"\\(begin|end) ?\{([pbvBV]?matrix)\*\} ?(?:\[ ?[lcr] ?\])?",
                             r"\\\1{\2}"),
        ("ends of proofs", rf"(?:\\q?quad)? ?\\(?:qed|qedsymbol|blacksquare){_END} ?$", ""),
        ("conclusions", rf"^ ?(?:=|\\(?:implies|Longrightarrow|[Rr]ightarrow|to){_END}) ?", ""),
        ("environments", rf"\\begin ?\{{({_LAYOUT})(\*?)\}}((?:(?!\\begin|\\end).)*)"
                         r"\\end ?\{\1\2\}", _laid_out),
        ("lengths", rf"\\[hm]space\*? ?\{{[^{{}}]*\}}|\\(?:[hm]skip|m?kern) ?{_LENGTH}", "  "),
        ("labels", r"\\(?:label|tag|vspace|vphantom)\*? ?\{[^{}]*\}", "  "),
        ("braces", rf"\\underbrace ?({_INNER}) ?_ ?{_INNER}|\\overbrace ?({_INNER}) ?\^ ?{_INNER}",
                   r"\1\2"),
        ("emphasis", r"^ ?(\*\*|__|[`\"*])([^*`\"]+)\1[ .]?$", r"\2"),
        ("empty switches", rf"\{{ ?\\(?:{_FONTS}|bf){_END}([^{{}}A-Za-z]*)\}}", r"{\1}"),
        ("switches", rf"\{{ ?\\(?:{_FONTS}){_END} ?", r"\\mathrm{"),
        ("bold switches", r"\{ ?\\(?:bf|bfseries)(?![A-Za-z]) ?", r"\\mathbf{"),
        ("bare arguments", r"\\(math(?:bb|rm|bf|it|cal)|Bbb|boldsymbol|bm|pmb) *([A-Za-z])"
                           r"(?![A-Za-z])", r"\\\1{\2}"),
        ("thousands", r",\\! ?(?=\d{3}(?!\d))|\{ ?, ?\} ?(?=\d{3}(?!\d))", r"{,}"),
        ("colons", r"\{ ?: ?\}|\\(?:text|mathrm) ?\{ ?: ?\}|\\colon(?![A-Za-z])", ":"),
        ("thin spaces", r"(?<!\\)\\[,;:> ]|~|\\(?:thinspace|medspace|enspace)" + _END, " "),
        ("negative space", r"\\!", ""),
        ("wide spaces", rf"\\q?quad(?:{_END}|(?=[a-z]_))", "  "),
        ("delimiters", r"(?<!\\)\\[()\[\]]", " "),
        ("empty delimiters", r"\\(?:left|right|[bB]igg?[lrm]?) ?\.", ""),
        ("sizes", rf"\\(?:left|right|middle|[bB]igg?[lrm]?){_END}", ""),
        ("systems", r"(?:\\\{ ?)?\\begin ?\{(?:cases|array)\} ?(?:\{[lcr]+\})?"
                    r"([^&<>{}]{1,200}=[^&{}]{1,200})\\end ?\{(?:cases|array)\}", r"\1"),
        ("empty set", r"\\\{ ?\\\}", r"\\emptyset "),
        ("commands", r"\\([A-Za-z]+)", _spelled_command),
        ("colours", r"\\(?:textcolor|colorbox|fcolorbox ?\{\w{1,20}\}|raisebox) ?"
                    r"\{[\w.-]{1,20}\} ?(?=\{)|\\color ?\{\w{1,20}\}", ""),
        ("signs in braces", r"\{ ?([+=<>]) ?\}", r"\1"),
        ("quotients", r"\{ ?([^{}\\]{1,40}) ?\\over(?![A-Za-z]) ?([^{}\\]{1,40})\}",
                      r"\\frac{\1}{\2}"),
        ("chosen", r"\{ ?([^{}\\]{1,40}) ?\\choose ?([^{}\\]{1,40})\}", r"\\binom{\1}{\2}"),
        ("at most", "<=", r"\\le "),
        ("at least", ">=", r"\\ge "),
        ("unequal", r"!=|\\not ?=", r"\\ne "),
        ("infinity", rf"(?<![A-Za-z\\])(?:infinity|oo|inf){_END}", r"\\infty "),
        ("reals", r"\\(?:mathbf|bf) ?\{ ?R ?\}", r"\\mathbb{R}"),
        ("transposes", r"\^ ?(\{ ?)?\\(?:top|intercal|(?:math(?:sf|rm|bf)|text) ?\{ ?T ?\})"
                       r"(?![A-Za-z]) ?(?(1)\})", "^{T}"),
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
        ("conjunctions", rf"\\&|{_conjunction('and')}", r"\\text{ and }"),
        ("alternatives", _conjunction("or"), r"\\text{ or }"),
        ("plus or minus", r"\+/-|\+-", r"\\pm "),
        ("times ten", r"(?<=\d) ?[xX] ?(?=10 ?\^)", r"\\times "),
        ("moduli", r"\\pmod ?(\d)", r"\\pmod{\1}"),
        ("introductions", rf"^ ?\\text ?\{{ ?{_ANSWER}(?: is)? ?(?:: ?)?\}} ?:? ?"
                          rf"|^ ?{_ANSWER}(?: is)?:? (?=[^A-Za-z])", ""),
        ("ohms", r"\\(text|mathrm) ?\{ ?([kMm]?) ?\\Omega ?\}", r"\\\1{\2ohm}"),
        ("micro in text", r"\\(?:text|mathrm) ?\{ ?\\mu ?(?=[A-Za-z])", r"\\text{µ"),
        ("micro", r"\\mu ?\\(?:text|mathrm) ?\{ ?(?=[A-Za-z])", r"\\text{µ"),
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
        ("parts", r"^ ?\(?a\) ?[^ ].*[ ,;]\(?b\) .*$", _parts),
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
_FLOAT = re.compile(r" ?-?[\d.]+[eE][-+]?\d+ ?")
_STRING = re.compile(r" ?0\d+ ?")
"""Digits that may be no number."""
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


_TYPESETTING = [
    (pattern, replacement)
    for name, pattern, replacement in RULES
    if name in ("lengths", "negative space", "thin spaces", "wide spaces", "empty delimiters",
                "sizes", "commands", "chosen", "quotients")
]  # fmt: skip
_FONT = re.compile(r"\\(?:math|text)[a-z]* ?(?=\{)|\\(?:boldsymbol|bm|operatorname|emph)\b")
_BARE_FRACTION = re.compile(r"\\frac *(\d|\{[^{}]*\}) *(\d|\{[^{}]*\})")


def without_typesetting(text: str) -> str:
    """Prose and mathematics without what TeX only typesets: sizes, spaces, fonts, other spellings.

    For comparing problems, not values: signs of a product are one.
    """
    text = "".join(_SIGNS.get(character, character) for character in text)
    if "\\" not in text:
        return text
    for pattern, replacement in _TYPESETTING:
        text = pattern.sub(replacement, text)
    text = _BARE_FRACTION.sub(r"\\frac{\1}{\2}", _FONT.sub("", text))
    return re.sub(r"\\(?:times|ast)(?![A-Za-z])", r"\\cdot ", text)


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


def is_letter(character: str) -> bool:
    """Whether a character is a letter of some script, or a mark on one."""
    return unicodedata.category(character)[0] in "LM"


_GROUP = re.compile(rf"(\\(?:text\w*|math(?:rm|normal)|operatorname|[mh]box) ?{_INNER})")
_RUN = re.compile(r"(?<![\\A-Za-z])[A-Za-z]*(?:[^\x00-\x7f]+[A-Za-z]*)+")


def _ascii(text: str) -> str:
    r"""ASCII, but for words: letters that TeX's mathematics does not have go into ``\text``."""
    if text.isascii():
        return text
    text = _ROOT.sub(r"\\sqrt{\1}", unicodedata.normalize("NFC", text))
    text = "".join(map(_folded_character, text))
    for mark, raised in (("^", _SUPERSCRIPTS), ("_", _SUBSCRIPTS)):
        pieces = re.split(f"([{''.join(raised)}]+)", text)
        pieces[1::2] = (
            f"{mark}{{{''.join(raised[character] for character in run)}}}" for run in pieces[1::2]
        )
        text = "".join(pieces)
    pieces = _GROUP.split(text)
    pieces[::2] = (_RUN.sub(_in_text, piece) for piece in pieces[::2])
    pieces = _GROUP.split("".join(pieces))
    return "".join(
        piece if n % 2 and _is_foreign(piece) else "".join(map(_sign, piece))
        for n, piece in enumerate(pieces)
    )


def _in_text(run: re.Match[str]) -> str:
    pieces = ("".join(piece) for _, piece in groupby(run[0], _is_of_words))
    return "".join(rf"\text{{{piece}}}" if _is_foreign(piece) else piece for piece in pieces)


def _is_of_words(character: str) -> bool:
    is_word = is_letter(character) or unicodedata.category(character) == "Sc"
    return is_word and character not in _SIGNS and character not in "£€¥"


def _is_foreign(piece: str) -> bool:
    """Whether letters, or a group of text, have any that is no mathematics, or a unit's sign."""
    letters = (letter for letter in piece if not letter.isascii() and letter not in GREEK)
    return bool(re.search("[°µ·] ?[A-Za-z]", piece)) or any(map(_is_of_words, letters))


def _sign(character: str) -> str:
    if character in GREEK:
        return f"\\{GREEK[character]} "
    return _SIGNS.get(character, character)


def _folded_character(character: str) -> str:
    """A character without its width and font; a space or a dash of any kind as the common one."""
    if character.isascii() or character in _KEPT:
        return character
    category = unicodedata.category(character)
    if category in _COMMON:
        return _COMMON[category]
    if category == "Nd":
        return str(unicodedata.digit(character))
    decomposed = unicodedata.decomposition(character)
    if decomposed.startswith("<fraction>"):
        top, bottom = unicodedata.normalize("NFKC", character).split("\u2044")
        return f"\\frac{{{top}}}{{{bottom}}}" if top and bottom else character
    folded = unicodedata.normalize("NFKC", character)
    is_worded = decomposed.startswith(("<square>", "<compat>")) and folded.strip("°/").isalpha()
    is_font = decomposed.startswith(("<wide>", "<font>", "<narrow>", "<small>"))
    return folded if is_font or (is_worded and category != "Nl") else character


_KEPT = frozenset((*_SUPERSCRIPTS, *_SUBSCRIPTS, *_SIGNS, *GREEK))
_COMMON = {"Zs": " ", "Pd": "-", "Cf": ""}
"""Spaces; dashes; and what is not seen: zero widths, directions, soft hyphens."""


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
            and (any(map(is_letter, inner)) or _STRING.fullmatch(inner))
            and "," not in inner
            and "\\" not in inner
            and not _FLOAT.fullmatch(inner)
        ):
            break  # words and upright names stay what they are
        text = inner
    return text


def _braced(text: str, start: int) -> str | None:
    """The content of a brace at ``start`` that closes at the very end of the text."""
    signs = re.sub(r"\\[{}]", "  ", text)[start:]
    *depths, last = accumulate([(sign == "{") - (sign == "}") for sign in signs] or [1])
    is_whole = last == 0 and min(depths, default=0) > 0
    return text[start + 1 : -1] if is_whole else None
