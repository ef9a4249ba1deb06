r"""One mathematical expression, read from LaTeX or ASCII by recursive descent.

A strict reader: what it does not know it refuses, it drops nothing and guesses no operator.
Implicit products bind tighter than ``/`` and ``\cdot``, as in Math-Verify's grammar. Linear in
the length of the text.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tandem_plugin.grading.tree import INFINITY, Node, num

__all__ = ["ExpressionReader", "UnreadableError"]


class UnreadableError(ValueError):
    """A text is nothing that the reader knows."""


_MAX_DIGITS = 1_000
_MAX_EXPONENT = 1_000
_GREEK_WORDS = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "rho varrho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma "
    "Upsilon Phi Psi Omega ell hbar aleph nabla partial imath jmath Re Im odot"
)
_GREEK = frozenset(_GREEK_WORDS.split())
_FUNCTION_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc ln log "
    "lg exp max min gcd lcm mod det floor ceil abs sqrt sgn"
)
_FUNCTIONS = {name: name for name in _FUNCTION_NAMES.split()} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot",
    "arctg": "arctan",
}  # fmt: skip
_INVERTIBLE = {"sin", "cos", "tan", "cot", "sec", "csc"}
_ACCENTS = "vec bar hat dot ddot tilde overline underline widehat overrightarrow"
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_SPACE = re.compile(r" *")
_TIMES = re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])|\*")
_OVER = re.compile(r"\\div(?![A-Za-z])|/")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_LETTERS = re.compile(r"[A-Za-z]+")
_FLOAT = re.compile(r"(\d*)(?:\.(\d+))?[eE]([+-]?\d{1,5})(?!\d)")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot) ?\{ ?(\d{1,60}) ?\}")
_DOTTED = re.compile(r"(\d*)\.(\d*?)(?:(\d)\3\3|(\d{2,12})\4)\d{0,12} ?\\ldots")
_MIXED = re.compile(r"(\d+) (\d+) ?/ ?(\d+)(?![\d.])")
_MIXED_FRAC = re.compile(r"\\frac ?(?:\{ ?(\d+) ?\}|(\d)) ?(?:\{ ?(\d+) ?\}|(\d))")
_GROUPED = r"\d{1,3}(?:\{,\}\d{3})+(?!\d)|\d{1,3}(?: \d{3})+(?!\d)"
_NUMBER = re.compile(rf"({_GROUPED}|\d+)(?:\.(\d+))?|\.(\d+)")
_NUMBER_OUTSIDE = re.compile(rf"({_GROUPED}|\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d+)(?:\.(\d+))?|\.(\d+)")
_DERIVATIVE = re.compile(
    r"\{ ?(?:d|\\partial|\\mathrm ?\{d\}) ?(?:\^ ?\{?\d\}?)? ?[^{}()+=-]{0,20}(?:_ ?\{\w+\})? ?\} ?"
    r"\{ ?(?:d|\\partial|\\mathrm ?\{d\}) ?[A-Za-z\\]{1,8} ?(?:\^ ?\{?\d\}?)? ?\}"
)
_APPLIED = frozenset(("f", "g", "h", "F", "G", "H", "P"))
_ATOM_IN_BRACKETS = re.compile(r"\( ?-?(?:\d+(?:\.\d+)?|\\?[A-Za-z]+)(?: ?, ?-?\w+)* ?\)")
_SUBSCRIPT = re.compile(r"_ ?(?:\{([^{}]{1,24}(?:\{[^{}]{1,12}\}[^{}]{0,12})?)\}|([A-Za-z0-9]))")
_ENVIRONMENT = re.compile(r"\\begin ?\{([pbvBV]?matrix|array|smallmatrix)\} ?(?:\{[lcr| ]+\})?")


class ExpressionReader:
    """Reads from a spelled text at a moving place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.depth = 0
        """Open round and square brackets and sets, in which a comma separates."""
        self.bars = 0
        self.signs: list[int] = []
        """The choice at each plus-minus met so far, the first being the top sign."""
        self.met = 0

    def fail(self) -> UnreadableError:
        return UnreadableError(f"Unknown at character {self.place}.")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.place)
        assert match is not None
        self.place = match.end()

    def peek(self, *starts: str) -> str | None:
        """The first of these that comes next, as a whole command where it is one."""
        self.skip()
        for start in starts:
            if self.text.startswith(start, self.place):
                after = self.text[self.place + len(start) : self.place + len(start) + 1]
                if not (start[0] == "\\" and start[-1].isalpha() and after.isalpha()):
                    return start
        return None

    def take(self, *starts: str) -> str | None:
        if (found := self.peek(*starts)) is not None:
            self.place += len(found)
        return found

    def expect(self, *starts: str) -> str:
        if (found := self.take(*starts)) is None:
            raise self.fail()
        return found

    def matched(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.place)
        if match is not None:
            self.place = match.end()
        return match

    def sum(self) -> Node:
        """Terms between plus and minus signs."""
        terms = [self._signed()]
        while True:
            if self.peek("+", "-"):
                terms.append(self._signed())
            elif self.matched(_PLUS_MINUS) is not None:
                self.place -= 3
                terms.append(self._signed())
            else:
                return terms[0] if len(terms) == 1 else Node("sum", tuple(terms))

    def _signed(self) -> Node:
        negative = False
        while True:
            if (sign := self.take("+", "-")) is not None:
                negative ^= sign == "-"
            elif (match := self.matched(_PLUS_MINUS)) is not None:
                negative ^= self._choice() ^ (match[1] == "mp")
            else:
                break
        term = self._product()
        return Node("neg", (term,)) if negative else term

    def _choice(self) -> bool:
        if not self.signs:
            self.signs.append(0)
        self.met += 1
        return self.signs[0] == 1

    def _product(self) -> Node:
        result = self._implicit()
        while True:
            if self.matched(_TIMES) is not None:
                factor = self._factor_with_sign()
                result = _times(result, factor)
            elif self.matched(_OVER) is not None:
                result = Node("div", (result, self._factor_with_sign()))
            else:
                return result

    def _factor_with_sign(self) -> Node:
        if self.take("-"):
            return Node("neg", (self._implicit(),))
        return self._implicit()

    def _implicit(self, argument: bool = False) -> Node:
        """Factors without a sign between them; no number may follow another factor."""
        result = self._power()
        while self._begins_factor(argument):
            result = _times(result, self._power())
        return result

    def _begins_factor(self, argument: bool) -> bool:
        self.skip()
        rest = self.text[self.place : self.place + 12]
        if not rest:
            return False
        if rest[0] == "(":
            return not argument
        if rest[0] == "{":
            return True
        if rest[0] == "[":
            return not argument and self.depth == 0
        if rest[0] == "|":
            return self.bars == 0 and not argument
        if rest[0].isalpha():
            return True
        match = _COMMAND.match(rest)
        if match is None:
            return False
        name = _COMMAND.match(self.text, self.place)[1]  # type: ignore[index]
        if argument and name in _FUNCTIONS:
            return False
        return (
            name in _GREEK or name in _FUNCTIONS or name in _ACCENTS.split()
            or name in ("frac", "sqrt", "pi", "binom", "mathrm", "mathbf", "mathit", "operatorname",
                        "lfloor", "lceil", "begin", "infty", "sum", "prod", "int", "lim",
                        "angle", "triangle", "mathcal")
        )  # fmt: skip

    def _power(self) -> Node:
        base = self._atom()
        while True:
            if self.take("!"):
                if self.peek("!"):
                    raise self.fail()
                base = Node("call", ("factorial", base))
            elif self.peek("^{\\circ}"):
                if base.kind != "num" and base.kind != "div":
                    raise self.fail()
                self.place += len("^{\\circ}")
                base = Node("degrees", (base,))
            elif self.take("^"):
                base = Node("pow", (base, self._exponent()))
                if self.peek("^"):
                    raise self.fail()
            else:
                return base

    def _exponent(self) -> Node:
        if self.peek("{"):
            return self._braced()
        if self.take("-"):
            return Node("neg", (self._script(),))
        return self._script()

    def _script(self) -> Node:
        """One argument without braces: digits, or one letter or command."""
        if (match := self.matched(re.compile(r"\d+"))) is not None:
            return self._number_of(match[0], None)
        return self._atom(single=True)

    def _braced(self) -> Node:
        self.expect("{")
        depth, bars, self.depth, self.bars = self.depth, self.bars, 0, 0
        inner = self.sum()
        self.depth, self.bars = depth, bars
        self.expect("}")
        return inner

    def argument(self) -> Node:
        r"""What a command applies to: a group in braces, one digit, one letter or one command."""
        if self.peek("{"):
            return self._braced()
        if (match := self.matched(re.compile(r"\d"))) is not None:
            return num(int(match[0]))
        return self._atom(single=True)

    def _atom(self, single: bool = False) -> Node:
        self.skip()
        character = self.text[self.place : self.place + 1]
        if character.isdigit() or character == ".":
            return self._number()
        if character == "\\":
            return self._command()
        if character.isalpha():
            return self._letters(single)
        if character == "{":
            return self._braced()
        if character in "([":
            return self.group()
        if character == "|":
            self.place += 1
            self.bars += 1
            inner = self.sum()
            self.expect("|")
            self.bars -= 1
            return Node("call", ("abs", inner))
        raise self.fail()

    def group(self) -> Node:
        """One expression in round or square brackets."""
        closing = ")" if self.expect("(", "[") == "(" else "]"
        self.depth += 1
        bars, self.bars = self.bars, 0
        inner = self.sum()
        self.bars = bars
        self.expect(closing)
        self.depth -= 1
        return inner

    def all_of(self) -> Node:
        """One expression that is the whole text."""
        if not self.text.isascii():
            raise self.fail()
        result = self.sum()
        self.skip()
        if self.place != len(self.text):
            raise self.fail()
        return result

    # Numbers

    def _number(self) -> Node:
        if (match := self.matched(_REPEATING) or self.matched(_DOTTED)) is not None:
            head, fixed, *cycles = match.groups()
            cycle = next(one for one in cycles if one)
            if len(match[0]) > 200:
                raise self.fail()
            shown = Fraction(int(head + fixed or "0"), 10 ** len(fixed))
            return num(shown + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed)))
        if (match := self.matched(_FLOAT)) is not None:
            return self._number_of(f"{match[1] or '0'}.{match[2] or ''}", int(match[3]))
        if (match := self.matched(_MIXED)) is not None:
            return self._mixed(*match.groups())
        match = self.matched(_NUMBER if self.depth else _NUMBER_OUTSIDE)
        if match is None:
            raise self.fail()
        whole = re.sub(r"[ ,{}]", "", match[1] or "0")
        number = self._number_of(f"{whole}.{match[2] or match[3] or ''}", None)
        if match[1] == match[0] and (found := self.matched(_MIXED_FRAC)) is not None:
            return self._mixed(whole, found[1] or found[2], found[3] or found[4])
        self.skip()
        if self.text[self.place : self.place + 1] in tuple("_0123456789."):
            raise self.fail()
        return number

    def _mixed(self, whole: str, top: str, bottom: str) -> Node:
        if max(map(len, (whole, top, bottom))) > _MAX_DIGITS or int(top) >= int(bottom):
            raise self.fail()
        return Node("sum", (num(int(whole)), Node("div", (num(int(top)), num(int(bottom))))))

    def _number_of(self, digits: str, exponent: int | None) -> Node:
        whole, _, part = digits.partition(".")
        if len(digits) > _MAX_DIGITS or abs(exponent or 0) > _MAX_EXPONENT:
            raise self.fail()
        value = Fraction(int(whole + part), 10 ** len(part)) * Fraction(10) ** (exponent or 0)
        is_measured = exponent is not None or value.denominator != 1
        return num(value, (exponent or 0) - len(part) if is_measured else None)

    # Letters and commands

    def _letters(self, single: bool) -> Node:
        match = _LETTERS.match(self.text, self.place)
        assert match is not None
        run = match[0]
        if not single:
            for name in (run, *(run[:n] for n in range(len(run) - 1, 1, -1))):
                is_whole = name == run
                if name in _FUNCTIONS and (is_whole and len(run) > 1):
                    self.place += len(name)
                    return self._function(_FUNCTIONS[name])
                if is_whole and name in ("pi", *_GREEK) and len(name) > 1:
                    self.place += len(name)
                    return self._symbol(name)
        self.place += 1
        return self._symbol(run[0], single)

    def _symbol(self, name: str, single: bool = False) -> Node:
        if single:
            return _named(name)
        if (subscript := self.matched(_SUBSCRIPT)) is not None:
            inner = re.sub(r"\\(?:text|mathrm|mathbf)|[{} ]", "", subscript[1] or subscript[2])
            name = f"{name}_{inner}"
        primes = self.matched(re.compile(r"'+"))
        name += primes[0] if primes else ""
        if name in _APPLIED and self.peek("^{-1}", "^{ -1 }"):
            self.matched(re.compile(r"\^\{ ?-1 ?\}"))
            name += "^-1"
            if not self.peek("("):
                return Node("sym", (name,))
        if _may_be_function(name) and self.peek("("):
            applied = name[0] in _APPLIED or "'" in name
            if applied or _ATOM_IN_BRACKETS.match(self.text, self.place):
                return Node("apply", (name, *self.arguments()))
        return _named(name)

    def arguments(self) -> tuple[Node, ...]:
        """Expressions between round brackets, separated by commas."""
        closing = ")" if self.expect("(", "\\{") == "(" else "\\}"
        self.depth += 1
        found = [self.sum()]
        while self.take(",", ";"):
            found.append(self.sum())
        self.expect(closing)
        self.depth -= 1
        return tuple(found)

    def _command(self) -> Node:
        match = _COMMAND.match(self.text, self.place)
        if match is None:
            raise self.fail()
        name = match[1]
        self.place = match.end()
        if name in _FUNCTIONS and name != "sqrt":
            return self._function(_FUNCTIONS[name])
        if name == "pi" or name in _GREEK:
            return self._symbol(name)
        if name == "infty":
            return INFINITY
        if name == "frac":
            return self._fraction()
        if name == "sqrt":
            return self._root()
        if name == "binom":
            return Node("call", ("binomial", self.argument(), self.argument()))
        if name in ("lfloor", "lceil"):
            inner = self.sum()
            self.expect("\\r" + name[1:])
            return Node("call", ("floor" if name == "lfloor" else "ceil", inner))
        if name in ("mathrm", "mathbf", "mathit", "operatorname", "mathcal", "text"):
            return self._font(name)
        if name in _ACCENTS.split():
            inner_text = self.matched(re.compile(r" ?(?:\{([^{}]{1,12})\}|([A-Za-z]))"))
            if inner_text is None:
                raise self.fail()
            letter = (inner_text[1] or inner_text[2]).strip().lstrip("\\")
            return self._symbol(f"{name}:{letter}")
        if name in ("angle", "triangle"):
            letters = self.matched(_LETTERS)
            if letters is None:
                raise self.fail()
            return Node("sym", (f"{name}:{letters[0]}",))
        if name in ("sum", "prod", "int", "lim"):
            return self._big(name)
        if name == "begin":
            self.place = match.start()
            return self._matrix()
        raise self.fail()

    def _fraction(self) -> Node:
        if (match := self.matched(_DERIVATIVE)) is not None:
            return Node("sym", (re.sub(r"[{} ]|\\mathrm", "", match[0].replace("}", "/")),))
        return Node("div", (self.argument(), self.argument()))

    def _root(self) -> Node:
        index: Node = num(2)
        if self.take("["):
            index = self.sum()
            self.expect("]")
        base = self.group() if self.peek("(") else self.argument()
        return Node("pow", (base, Node("div", (num(1), index))))

    def _font(self, font: str) -> Node:
        match = self.matched(re.compile(r" ?\{ ?\\?([A-Za-z]{1,20}) ?\}"))
        if match is None or (font == "text" and len(match[1]) > 1):
            raise self.fail()
        name = match[1]
        if font in ("mathrm", "operatorname") and name in _FUNCTIONS:
            return self._function(_FUNCTIONS[name])
        if font == "mathcal" or (font == "mathbf" and len(name) == 1 and self._is_plain(name)):
            return self._symbol(f"{font}:{name}")
        return self._symbol(name)

    def _is_plain(self, name: str) -> bool:
        """Whether the letter occurs without a font, too, and so is another name."""
        plain = re.sub(r"\\[A-Za-z]+ ?(?:\{ ?[A-Za-z] ?\})?", " ", self.text)
        return name in plain

    def _function(self, name: str) -> Node:
        if name == "sqrt":
            return self._root()
        if name in ("max", "min", "gcd", "lcm", "mod"):
            return Node("call", (name, *self.arguments()))
        base: Node | None = None
        power: Node | None = None
        if name == "log" and self.take("_"):
            base = self.argument()
        if self.take("^"):
            power = self._exponent()
        if power is not None and power in (num(-1), Node("neg", (num(1),))):
            if name not in _INVERTIBLE:
                raise self.fail()
            name, power = "arc" + name, None
        if name == "log" and base is None and self.take("_"):
            base = self.argument()
        if name in ("floor", "ceil", "abs", "det", "exp", "sgn") and not self.peek("(", "{", "\\"):
            raise self.fail()
        if self.peek("("):
            argument = self.group()
        elif self.peek("|", "-"):
            argument = self._factor_with_sign()
        else:
            argument = self._implicit(argument=True)
        call = Node("call", (name, argument, base) if base is not None else (name, argument))
        return Node("pow", (call, power)) if power is not None else call

    def _big(self, name: str) -> Node:
        if name == "lim":
            match = self.matched(
                re.compile(r"_ ?\{ ?([A-Za-z]) ?\\(?:to|rightarrow)(?![A-Za-z]) ?([^{}]+)\}")
            )
            if match is None:
                raise self.fail()
            target = ExpressionReader(match[2].strip()).all_of()
            return Node("big", ("lim", self._product(), match[1], target))
        if name == "int":
            bounds: tuple[Node, ...] = ()
            if self.take("_"):
                low = self.argument()
                self.expect("^")
                bounds = (low, self._exponent())
            start = self.place
            end = re.compile(r"(?<![A-Za-z\\])(?:d|\\mathrm ?\{ ?d ?\}) ?([A-Za-z])(?![A-Za-z])")
            found = end.search(self.text, start)
            if found is None or not bounds:
                raise self.fail()
            self.place = found.end()
            body_text = self.text[start : found.start()].strip()
            if body_text.endswith("\\frac{") or body_text.count("{") != body_text.count("}"):
                raise self.fail()
            body = ExpressionReader(body_text).all_of() if body_text else num(1)
            return Node("big", ("int", body, found[1], *bounds))
        match = self.matched(re.compile(r"_ ?\{ ?([A-Za-z]) ?= ?([^{}]+)\} ?\^"))
        if match is None:
            raise self.fail()
        low = ExpressionReader(match[2].strip()).all_of()
        return Node(
            "big", (name, *(lambda h, b: (b, match[1], low, h))(self._exponent(), self._product()))
        )

    def _matrix(self) -> Node:
        match = self.matched(_ENVIRONMENT)
        if match is None:
            raise self.fail()
        kind = match[1]
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        depth, self.depth = self.depth, 0
        while True:
            if self.take("\\end"):
                break
            row.append(self.sum())
            if self.take("&"):
                continue
            rows.append(tuple(row))
            row = []
            if not self.take("\\\\"):
                self.expect("\\end")
                break
        if self.matched(re.compile(r" ?\{\w+\}")) is None or row:
            raise self.fail()
        self.depth = depth
        if len({len(one) for one in rows}) != 1:
            raise self.fail()
        matrix = Node("matrix", tuple(rows))
        if kind in ("vmatrix", "Vmatrix"):
            return Node("call", ("det", matrix))
        return matrix


def _times(first: Node, second: Node) -> Node:
    factors = first.parts if first.kind == "mul" else (first,)
    return Node("mul", (*factors, second))


def _may_be_function(name: str) -> bool:
    return name not in ("e", "i", "pi")


def _named(name: str) -> Node:
    return Node("const" if name in ("pi", "e", "i") else "sym", (name,))
