r"""LaTeX to SymPy through Math-Verify's parser, with every number exact and nothing evaluated.

Math-Verify 0.9 parses with latex2sympy2_extended 1.11. Of that parser this module replaces what
evaluates text or misreads it; docs/grading.md describes each point, and tests hold them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex

from tandem_plugin.grading.numerals import MAX_DIGITS

__all__ = ["UnreadableError", "has_decimal", "read_latex"]


class UnreadableError(ValueError):
    """A text is no mathematics that the parser knows."""


_NORMALISATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none"
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_FORBIDDEN = re.compile(r"[^A-Za-z0-9\s\\{}()\[\]|+\-*/^_=<>!,.;:&'~]|__|%")
_DECIMAL = re.compile(r"\d\.\d|(?<!\d)\.\d")
_NUMBER = re.compile(r"(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,4}))?")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?) ?\^\{\\circ\}")
_GAMMA = re.compile(r"\\gamma(?![A-Za-z])")
_NAME = re.compile(
    r"(\\(?:text|mathrm|variable|operatorname|begin|end|mathbb|mathcal|overline|bar|vec|hat|dot|ddot)\s*"
    r"\{[^{}]*\})|(\\[A-Za-z]+|[A-Za-z])(?:_\{([A-Za-z0-9]{1,16})\})?(?=(\s*\^)?)"
)
_GREEK_NAMES = (
    "alpha beta delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon "
    "phi chi psi omega Delta Theta Lambda Xi Sigma Phi Psi Omega varepsilon vartheta varphi"
)
_GREEK = frozenset(_GREEK_NAMES.split())
_SUBSCRIPT = "zzz"
"""Stands for an underscore, which the parser does not know inside of ``\\variable``."""
_OPENS_BAR = frozenset(["", *"(+-*/=<>,[{^"])
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_BOUND_I = re.compile(r"\\(?:sum|prod|int)(?![A-Za-z])")


class _Reader(_Latex2Sympy):  # type: ignore[misc]
    """The parser without what is unsafe or wrong in it."""

    def __init__(self, mode: int) -> None:
        super().__init__(is_real=True, config=_CONVERSION)
        self._mode = mode

    def create_parser(self, latex_str: str) -> Any:
        """With ANTLR's fast prediction, tried first, or its full one."""
        parser = super().create_parser(latex_str)
        parser._interp.predictionMode = self._mode
        return parser

    def parse_number(self, text: str) -> Any:
        """The parser's own calls ``sympy.Number(text)``, which evaluates the text."""
        return exact_number(text)

    def convert_atom(self, atom: Any) -> Any:
        """A subscript of a number is its base: the parser's own drops it."""
        number = atom.number_subexpr()
        if number and number.subexpr():
            raise UnreadableError("A number with a subscript.")
        return super().convert_atom(atom)

    def convert_binom(self, binom: Any) -> Any:
        """The parser's own computes, however large."""
        top, bottom = self.convert_expr(binom.upper), self.convert_expr(binom.lower)
        return sympy.binomial(top, bottom, evaluate=False)

    def convert_postfix_list(self, arr: Any, i: int = 0) -> Any:
        r"""``2\frac{1}{3}`` is a mixed number, ``2(3)`` a product: the parser's own adds both."""
        if i + 1 >= len(arr):
            return super().convert_postfix_list(arr, i)
        head = self.convert_postfix(arr[i])
        if not isinstance(head, sympy.Expr | sympy.MatrixBase):
            return super().convert_postfix_list(arr, i)
        rest = self.convert_postfix_list(arr, i + 1)
        if getattr(head, "is_Matrix", False) or getattr(rest, "is_Matrix", False):
            return self.mat_mul_flat(head, rest)
        is_mixed = (
            i + 2 == len(arr)
            and arr[i].getText().isdigit()
            and arr[i + 1].getText().startswith("\\frac")
            and isinstance(rest, sympy.Rational)
            and not rest.is_Integer
            and rest > 0
        )
        return head + rest if is_mixed else self.mul_flat(head, rest)


def exact_number(text: str) -> Any:
    """The exact number that a token of digits, point and exponent is."""
    match = _NUMBER.fullmatch(text.replace(",", "").replace(" ", ""))
    if match is None or len(text) > MAX_DIGITS or not (match[1] or match[2]):
        raise UnreadableError("This is no number.")
    whole, part, exponent = match[1], match[2] or "", int(match[3] or 0)
    if abs(exponent) > MAX_DIGITS:
        raise UnreadableError("The exponent is too large.")
    value = Fraction(int(whole + part), 10 ** len(part)) * Fraction(10) ** exponent
    return sympy.Rational(value.numerator, value.denominator)


latex2sympy2.convert_number = exact_number
"""The module's own calls ``sympy.Number(text)`` for numbers with thousands separators."""


@lru_cache(maxsize=256)
def read_latex(text: str) -> Any:
    """The SymPy object that a canonical text is. Raises :class:`UnreadableError`."""
    if _FORBIDDEN.search(text):
        raise UnreadableError("A character that no answer needs.")
    is_complex = re.search(r"(?<![A-Za-z\\])i(?![A-Za-z])", text) is not None
    text = _GAMMA.sub(r"\\variable{zgamma}", text)
    if _TRIGONOMETRY.search(text):
        text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    text = text.replace("^{\\circ}", "")
    parsed = _parsed(_with_paired_bars(normalize_latex(text, _NORMALISATION)))
    if parsed is None or isinstance(parsed, list | tuple | dict | str):
        raise UnreadableError("This is no expression.")
    return _with_imaginary_unit(parsed) if is_complex and not _BOUND_I.search(text) else parsed


def _parsed(text: str) -> Any:
    message = ""
    unambiguous = _NAME.sub(_one_token, text)
    for spelling, mode in ((unambiguous, PredictionMode.SLL), (text, PredictionMode.LL)):
        try:
            return _plainly_named(_Reader(mode).parse(spelling))
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            message = str(error).split("\n")[0]
    raise UnreadableError(message)


def _plainly_named(parsed: Any) -> Any:
    """With one name for a variable, however the parser came to it."""
    names = {
        symbol: sympy.Symbol(plain, real=True)
        for symbol in getattr(parsed, "free_symbols", ())
        if (plain := re.sub(r"[{}]", "", symbol.name.replace(_SUBSCRIPT, "_"))) != symbol.name
    }
    return parsed.xreplace(names) if names else parsed


def _one_token(match: re.Match[str]) -> str:
    r"""``x_{1}`` as ``\variable{xzzz1}``, ``x^`` as ``{x}^``: the same, without an ambiguity.

    The parser's grammar has two readings of a variable with a sub- or superscript, and takes ten
    times as long to choose.
    """
    verbatim, name, subscript, power = match.groups()
    if verbatim is not None or (name[0] == "\\" and name[1:] not in _GREEK):
        return match.group()
    if subscript:
        name = f"\\variable{{{name.removeprefix(chr(92))}{_SUBSCRIPT}{subscript}}}"
    return f"{{{name}}}" if power and name != "e" else name


def _with_paired_bars(text: str) -> str:
    r"""Absolute bars as ``\lvert`` and ``\rvert``, which can only be read in one way."""
    if text.count("|") % 2:
        return text
    parts: list[str] = []
    depth = 0
    for piece in re.split(r"(\|)", text):
        if piece != "|":
            parts.append(piece)
            continue
        before = "".join(parts[-2:]).rstrip()
        opens = depth == 0 or before[-1:] in _OPENS_BAR or before.endswith("\\lvert")
        depth += 1 if opens else -1
        parts.append("\\lvert " if opens else "\\rvert ")
    return "".join(parts) if depth == 0 else text


def has_decimal(text: str) -> bool:
    """Whether a number with a decimal point is written in the text."""
    return _DECIMAL.search(text) is not None


def _with_imaginary_unit(parsed: Any) -> Any:
    """The parser reads ``i`` as a variable."""
    symbol = sympy.Symbol("i", real=True)
    try:
        return parsed.xreplace({symbol: sympy.I}) if parsed.has(symbol) else parsed
    except Exception:  # a relation of complex numbers
        return parsed
