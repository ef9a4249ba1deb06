r"""The grammar of expressions, by recursive descent, from what binds least.

Products without a sign bind tighter than ``/`` and ``\cdot``, as in Math-Verify's grammar.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from tandem_plugin.grading.spelling import GREEK
from tandem_plugin.grading.tree import INFINITY, INVERSE, SCALARS, Node, UnreadableError, num
from tandem_plugin.grading.units import unit_at

_OTHER_NAMES = (
    "varepsilon vartheta varrho varphi Upsilon ell hbar aleph nabla partial imath jmath Re Im odot"
)
_NAMES = frozenset((*GREEK.values(), *_OTHER_NAMES.split()))
_FUNCTION_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc ln log "
    "lg exp max min gcd lcm mod det floor ceil abs sqrt sgn"
)
_FUNCTIONS = {name: name for name in _FUNCTION_NAMES.split()} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot",
    "arctg": "arctan",
}  # fmt: skip
_ACCENTS = "vec bar hat dot ddot tilde overline widehat overrightarrow angle triangle"
_VECTOR = re.compile(r"\\(?:vec|hat|mathbf|overrightarrow)(?![A-Za-z])")
_BOLD = re.compile(r"\\mathbf ?\{ ?[A-Z] ?\}")
_INVERTIBLE = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
_OF_SEVERAL = frozenset(("max", "min", "gcd", "lcm", "mod"))
_BRACKETED = frozenset(("floor", "ceil", "abs", "det", "exp", "sgn"))
_APPLIED = frozenset(("f", "g", "h", "F", "G", "H", "P"))
_NAMED_SETS = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}
_CLOSINGS = dict.fromkeys("([]", r"[)\]\[]") | {"\\{": r"\\\}", "\\langle": r"\\rangle"}

JOINER = (
    r",? ?\\text ?\{ ?,? ?(and|or) ?\}|,? ?(?<![A-Za-z])(and|or)(?![A-Za-z])"
    r"|([,;]?) ?(\\\\)(?!end)|([,;])"
)
COLON = r":(?!=)|\\text ?\{ ?(?:to|:) ?\}"
SCALE = r"(?:\\text ?\{)? ?(thousand|million|billion|trillion)s?(?![A-Za-z]) ?\}?"
"""What ends a product, except signs: a joiner, a colon, a scale."""
_TIMES = r"\\(?:cdot|times|ast)(?![A-Za-z])|\*"
_OVER = r"\\div(?![A-Za-z])|/"
_ADDED = r"[+-]|\\(?:pm|mp)(?![A-Za-z])"
DEGREES = r"\^\{\\circ\}"
TEMPERATURE = rf"{DEGREES} ?(?:\\(?:text|mathrm) ?\{{ ?([CFK]) ?\}}|([CFK])(?![A-Za-z]))"
_BUILDER = r"([A-Za-z])(?: ?\\in ?\\mathbb ?\{R\})? ?[|:]"
_SUBSCRIPT = r"_ ?(?:\{([^{}]{1,24}(?:\{[^{}]{1,12}\}[^{}]{0,12})?)\}|([A-Za-z0-9]))"
_ATOM_IN_BRACKETS = r"\( ?-?(?:\d+(?:\.\d+)?|\\?[A-Za-z]+)(?: ?, ?-?\w+)* ?\)"
_D = r"(?:d|\\partial|\\mathrm ?\{ ?d ?\})"
_DERIVATIVE = (
    rf" ?\{{ ?{_D} ?(?:\^ ?\{{?\d\}}?)? ?[^{{}}()+=-]{{0,20}}(?:_ ?\{{\w+\}})? ?\}} ?"
    rf"\{{ ?{_D} ?[A-Za-z\\]{{1,8}} ?(?:\^ ?\{{?\d\}}?)? ?\}}"
)
_DIFFERENTIAL = re.compile(
    r"(?<![A-Za-z\\])(?:d|\\mathrm ?\{ ?d ?\}) ?([A-Za-z])(?![A-Za-z])", re.ASCII
)
_MATRIX = r" ?\{([pbvBV]?matrix|array|smallmatrix)\} ?(?:\{[lcr| ]+\})?"
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


class Expressions(ABC):
    """Reads what arithmetic applies to, from a moving place in a text.

    Raises :class:`UnreadableError`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.brackets = 0
        """Open round and square brackets and sets, in which a comma separates."""
        self.bars = 0
        self.turned = False
        """Whether a plus-minus stands for its lower sign."""
        self.chosen: list[str] = []
        """Every plus-minus of this part that was read."""

    @abstractmethod
    def listed(self) -> Node:
        """Parts between commas; one alone is no list."""

    @abstractmethod
    def items(self, expands: bool) -> tuple[list[Node], str]:
        """Parts, and the strongest joiner. expands: a plus-minus stands for two parts."""

    def fail(self) -> UnreadableError:
        return UnreadableError(f"Unknown at character {self.place}.")

    def peek(self, pattern: str) -> re.Match[str] | None:
        return _compiled(pattern).match(self.text, self.place)

    def sees(self, pattern: str) -> bool:
        return self.peek(pattern) is not None

    def take(self, pattern: str) -> re.Match[str] | None:
        if (match := self.peek(pattern)) is not None:
            self.place = match.end()
        return match

    def expect(self, pattern: str) -> re.Match[str]:
        if (match := self.take(pattern)) is None:
            raise self.fail()
        return match

    def all_of(self, rule: Callable[[], Node]) -> Node:
        """What a rule reads, where that is the whole text."""
        node = rule()
        self.expect("$")
        return node

    # Sums, products, powers

    def sum(self) -> Node:
        """Terms between plus and minus signs."""
        terms = [self._signed()]
        while self.sees(_ADDED):
            terms.append(self._signed())
        return self._made("sum", *terms) if len(terms) > 1 else terms[0]

    def _signed(self) -> Node:
        negative, start = False, self.place
        while (match := self.take(_ADDED)) is not None:
            sign = match[0].strip()
            if sign[0] == "\\":
                self.chosen.append(sign[1:])
                negative ^= self.turned ^ (sign == "\\mp")
            negative ^= sign == "-"
        has_sign = self.place > start
        term = self._product()
        if has_sign and term.kind not in SCALARS:  # no set in it is read twice
            raise self.fail()
        return self._made("neg", term) if negative else term

    def _product(self) -> Node:
        start, factors = self.place, [self._implicit()]
        while True:
            if (sign := self.take(_TIMES)) is not None:
                middle = self.place
                factors.append(self._factor())
                sides = self.text[start:middle], self.text[middle : self.place]
                if "times" in sign[0] and all(map(_VECTOR.search, sides)):
                    factors[-2:] = [_crossed(*factors[-2:])]
            elif self.take(_OVER):
                factors = [self._made("div", self._times(factors), self._factor())]
            else:
                return self._times(factors)

    def _factor(self) -> Node:
        return self._made("neg", self._implicit()) if self.take("-") else self._implicit()

    def _implicit(self, is_argument: bool = False) -> Node:
        """Factors without a sign between them; no number may follow a factor."""
        start, factors = self.place, [self._power()]
        while self._begins_factor(is_argument):
            factors.append(self._power())
        return self._times(factors, len(_BOLD.findall(self.text[start : self.place])) > 1)

    def _begins_factor(self, is_argument: bool) -> bool:
        if self.sees(r"\{|\\[a-z]*(?:floor|ceil)"):
            return not self.sees(r"\\r|\{ ?[\d.]")
        if self.sees(r"\(") or (self.brackets == 0 and self.sees(r"\[")):
            return not is_argument
        if self.sees(r"\|"):
            return self.bars == 0 and not is_argument
        name = self.peek(r"\\?([A-Za-z]+)")
        if name is None or any(map(self.sees, (JOINER, SCALE, COLON))):
            return False
        if unit_at(self.text, self.place) is not None:
            return False
        if "\\" not in name[0]:
            return True
        if name[1] in _FUNCTIONS:
            return not is_argument
        return name[1] in _NAMES or name[1] in _COMMANDS

    def _times(self, factors: list[Node], are_bold: bool = False) -> Node:
        """are_bold: capitals among them are matrices, as inverses and transposes are."""
        if len(factors) == 1:
            return factors[0]
        flat = [part for factor in factors for part in _factors_of(factor)]
        matrices = [factor for factor in flat if _letter_of(factor)]
        is_ordered = are_bold or any(map(_is_inverse, matrices))
        if len(set(map(_letter_of, matrices))) < 2 or not is_ordered:
            return self._made("mul", *flat)
        product = Node("apply", (_PRODUCT, *matrices))
        scalars = [factor for factor in flat if factor not in matrices]
        return self._made("mul", *scalars, product) if scalars else product

    def _power(self) -> Node:
        base = self._atom()
        while True:
            if self.take(r"!(?!!)"):
                base = self._made("call", "factorial", base)
            elif base.kind in ("num", "div") and self.sees(DEGREES):
                if self.sees(TEMPERATURE):
                    return base
                self.take(DEGREES)
                base = Node("degrees", (base,))
            elif not self.sees(DEGREES) and self.take(r"\^"):
                base = self._raised(base, self._exponent())
                if self.sees(r"\^(?!\{\\circ)"):
                    raise self.fail()
            else:
                return base

    def _raised(self, base: Node, power: Node) -> Node:
        """A power; the inverse of a product of matrices is its factors' inverses, reversed."""
        factors = _factors_of(base)
        if len(factors) < 2 or power not in INVERSE or not all(map(_is_capital, factors)):
            return self._made("pow", base, power)
        return self._times([Node("pow", (factor, power)) for factor in reversed(factors)])

    def _exponent(self) -> Node:
        if self.take("-"):
            return Node("neg", (self._script(r"\d+"),))
        return self._script(r"\d+")

    def _script(self, digits: str = r"\d") -> Node:
        r"""What a command applies to: a group in braces, digits, one letter or one command."""
        if self.sees(r"\{"):
            return self._braced()
        if (match := self.take(digits)) is not None:
            return self.value_of(match[0].strip(), None)
        return self._atom(is_single=True)

    def _braced(self) -> Node:
        self.expect(r"\{")
        outer, self.brackets, self.bars = (self.brackets, self.bars), 0, 0
        inner = self.sum()
        self.brackets, self.bars = outer
        self.expect(r"\}")
        return inner

    def _atom(self, is_single: bool = False) -> Node:
        if self.sees(r"[\d.]"):
            return self.number()
        if (match := self.take(r"\(|\[|\]|\\\{|\\langle(?![A-Za-z])")) is not None:
            return self._bracketed(match[0].strip())
        if (command := self.take(r"\\([A-Za-z]+)")) is not None:
            return self._command(command[1])
        if (letters := self.peek(r"[A-Za-z]+")) is not None:
            run = letters[0].strip()
            if not is_single and len(run) > 1 and (run in _FUNCTIONS or run in _NAMES):
                self.place = letters.end()
                return self._command(run)
            self.place = letters.end() - len(run) + 1
            return _named(run[0]) if is_single else self._symbol(run[0])
        if self.sees(r"\{"):
            return self._braced()
        self.expect(r"\|")
        self.bars += 1
        inner = self.sum()
        self.bars -= 1
        self.expect(r"\|")
        return self._made("call", "abs", inner)

    def _bracketed(self, opening: str) -> Node:
        """One thing in brackets, a tuple, an interval or a set."""
        self.brackets, bars, self.bars = self.brackets + 1, self.bars, 0
        builder = self.take(_BUILDER) if opening == "\\{" else None
        is_nested = self.sees(r"\[")
        if builder is not None:
            nodes, joiner = [self._described(builder[1])], ","
        else:
            nodes, joiner = self.items(expands=opening == "\\{")
        closing = self.expect(_CLOSINGS[opening])[0].strip()
        self.brackets, self.bars = self.brackets - 1, bars
        if opening == "\\{":
            return nodes[0] if builder is not None else Node("set", tuple(nodes))
        if opening + closing in ("()", "[]") and len(nodes) == 1:
            return nodes[0]
        if opening + closing == "[]" and is_nested and (rows := _rows_of(nodes)):
            return Node("matrix", rows)
        # Brackets that face outward exclude an end: ]1,2[ is (1,2), but never a point.
        faces_outward = "]" in opening or "[" in closing
        opening, closing = opening.replace("]", "("), closing.replace("[", ")")
        if (not faces_outward and opening + closing in ("()", r"\langle\rangle")) or (
            opening + closing == "[]" and len(nodes) != 2
        ):
            return Node("tuple", tuple(nodes))
        if len(nodes) != 2 or joiner not in ",;":
            raise self.fail()
        return Node("interval", (*nodes, opening, closing))

    def _described(self, letter: str) -> Node:
        """A set by the condition on its members, whose letter is bound."""
        name, condition = _named(letter), self.listed()
        if condition.kind != "solved" or condition.parts[0] != name:
            raise self.fail()
        return Node("solved", (None, condition.parts[1]))

    def _made(self, kind: str, *parts: Node | str) -> Node:
        if any(isinstance(part, Node) and part.kind not in SCALARS for part in parts):
            raise self.fail()
        return Node(kind, parts)

    # Numbers, names and commands

    def number(self) -> Node:
        for pattern in _REPEATING:
            if (match := self.take(pattern)) is not None:
                head, fixed, *cycles = (group or "" for group in match.groups())
                cycle = "".join(cycles)
                shown = Fraction(int(head + fixed or "0"), 10 ** len(fixed))
                return num(shown + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed)))
        if (match := self.take(_FLOAT)) is not None:
            return self.value_of(f"{match[1] or '0'}.{match[2] or ''}", int(match[3]))
        if (match := self.take(_MIXED)) is not None:
            return self._mixed(*match.groups())
        match = self.expect(_NUMBER if self.brackets else _NUMBER_OUTSIDE)
        integer = re.sub(r"[ ,{}]", "", match[1] or "0")
        number = self.value_of(f"{integer}.{match[2] or match[3] or ''}", None)
        if match[1] and not match[2] and (frac := self.take(_MIXED_FRAC)) is not None:
            return self._mixed(integer, frac[1] or frac[2], frac[3] or frac[4])
        if self.sees(r"[_\d.]"):
            raise self.fail()
        return number

    def _mixed(self, integer: str, top: str, bottom: str) -> Node:
        if int(top) >= int(bottom):
            raise self.fail()
        return Node("sum", (num(int(integer)), Node("div", (num(int(top)), num(int(bottom))))))

    def value_of(self, digits: str, exponent: int | None) -> Node:
        integer, _, part = digits.partition(".")
        if len(digits) > _MAX_DIGITS or abs(exponent or 0) > _MAX_EXPONENT:
            raise self.fail()
        value = Fraction(int(integer + part), 10 ** len(part)) * Fraction(10) ** (exponent or 0)
        is_measured = exponent is not None or value.denominator != 1
        return num(value, (exponent or 0) - len(part) if is_measured else None)

    def _symbol(self, name: str) -> Node:
        if (subscript := self.take(_SUBSCRIPT)) is not None:
            inner = re.sub(r"\\(?:text|mathrm|mathbf)|[{} ]", "", subscript[1] or subscript[2])
            name = f"{name}_{inner}"
        if (primes := self.take("'+")) is not None:
            name += primes[0].strip()
        if name in _APPLIED and self.take(r"\^\{ ?-1 ?\}"):
            name += "^-1"
            if not self.sees(r"\("):
                return Node("sym", (name,))
        if name not in ("e", "i", "pi") and (
            self.sees(r"\(" if name[0] in _APPLIED or "'" in name else _ATOM_IN_BRACKETS)
        ):
            return Node("apply", (name, *self._arguments()))
        return _named(name)

    def _arguments(self) -> tuple[Node, ...]:
        opening = self.expect(r"\(|\\\{")[0].strip()
        self.brackets += 1
        nodes, _ = self.items(expands=False)
        self.expect(_CLOSINGS[opening])
        self.brackets -= 1
        if any(node.kind not in SCALARS for node in nodes):
            raise self.fail()
        return tuple(nodes)

    def _command(self, name: str) -> Node:
        if name == "sqrt":
            return self._root(name)
        if name in _FUNCTIONS:
            return self._function(_FUNCTIONS[name])
        if name in _NAMES:
            return self._symbol(name)
        if name in _COMMANDS:
            return _COMMANDS[name](self, name)
        raise self.fail()

    def _fraction(self, _: str) -> Node:
        if (match := self.take(_DERIVATIVE)) is not None:
            return Node("sym", (re.sub(r"[{} ]|\\mathrm", "", match[0].replace("}", "/")),))
        return self._made("div", self._script(), self._script())

    def _root(self, _: str) -> Node:
        index: Node = num(2)
        if self.take(r"\["):
            index = self.sum()
            self.expect(r"\]")
        base = self._atom() if self.sees(r"\(") else self._script()
        return self._made("pow", base, self._made("div", num(1), index))

    def _binomial(self, _: str) -> Node:
        return self._made("call", "binomial", self._script(), self._script())

    def _rounded(self, name: str) -> Node:
        inner = self.sum()
        self.expect(r"\\r" + name[1:])
        return self._made("call", name[1:], inner)

    def _font(self, font: str) -> Node:
        match = self.take(r"\{ ?\\?([A-Za-z]{1,20}) ?\}")
        if match is None or (font == "text" and len(match[1]) > 1):
            raise self.fail()
        name = match[1]
        if font == "mathbb":
            if name not in _NAMED_SETS:
                raise self.fail()
            return Node(_NAMED_SETS[name])
        if font in ("mathrm", "operatorname") and name in _FUNCTIONS:
            return self._command(name)
        is_other = font == "mathbf" and name in re.sub(r"\\[A-Za-z]+ ?(?:\{\w\})?", " ", self.text)
        return self._symbol(f"{font}:{name}" if font == "mathcal" or is_other else name)

    def _accented(self, accent: str) -> Node:
        match = self.expect(r"\{([^{}]{1,12})\}|([A-Za-z]+)")
        return self._symbol(f"{accent}:{(match[1] or match[2]).strip().lstrip(chr(92))}")

    def _function(self, name: str) -> Node:
        if name in _OF_SEVERAL:
            return Node("call", (name, *self._arguments()))
        base = self._script() if name == "log" and self.take("_") else None
        power = self._exponent() if not self.sees(DEGREES) and self.take(r"\^") else None
        if power in (num(-1), Node("neg", (num(1),))):
            if name not in _INVERTIBLE:
                raise self.fail()
            name, power = "arc" + name, None
        if base is None and name == "log" and self.take("_"):
            base = self._script()
        if name in _BRACKETED and not self.sees(r"[({\\]" + "|[A-Z]" * (name == "det")):
            raise self.fail()
        if self.sees(r"\("):
            argument = self._atom()
        elif self.sees("-"):
            argument = self._factor()
        else:
            argument = self._implicit(is_argument=True)
        call = self._made("call", name, argument, *((base,) if base is not None else ()))
        return call if power is None else self._made("pow", call, power)

    def _index(self, sign: str) -> tuple[str, Node]:
        """The variable of a sum or a limit, and where it begins or goes."""
        match = self.expect(rf"_ ?\{{ ?([A-Za-z]) ?(?:{sign})")
        start = self.sum()
        self.expect(r"\}")
        return match[1], start

    def _limit(self, _: str) -> Node:
        variable, end = self._index(r"\\(?:to|rightarrow)(?![A-Za-z])")
        return self._made("big", "lim", self._product(), variable, end)

    def _series(self, name: str) -> Node:
        variable, low = self._index("=")
        self.expect(r"\^")
        high = self._exponent()
        return self._made("big", name, self._product(), variable, low, high)

    def _integral(self, _: str) -> Node:
        self.expect("_")
        low = self._script()
        self.expect(r"\^")
        high = self._exponent()
        end = _DIFFERENTIAL.search(self.text, self.place)
        if end is None:
            raise self.fail()
        body = type(self)(self.text[self.place : end.start()].strip() or "1")
        self.place = end.end()
        return self._made("big", "int", body.all_of(body.sum), end[1], low, high)

    def _matrix(self, _: str) -> Node:
        match = self.expect(_MATRIX)
        rows: list[list[Node]] = [[]]
        outer, self.brackets = self.brackets, 0
        while not self.take(r"\\end ?\{\w+\}"):
            rows[-1].append(self.sum())
            if not self.take("&") and self.take(r"\\\\") and not self.sees(r"\\end(?![A-Za-z])"):
                rows.append([])
        self.brackets = outer
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            raise self.fail()
        matrix = Node("matrix", tuple(map(tuple, rows)))
        return Node("call", ("det", matrix)) if match[1] in ("vmatrix", "Vmatrix") else matrix


_PRODUCT, _CROSS = "ordered product", "cross product"
"""Functions that stand for a product whose factors keep their order."""


def _factors_of(node: Node) -> tuple[Node, ...]:
    if node.kind == "apply" and node.parts[0] == _PRODUCT:
        return node.parts[1:]
    return node.parts if node.kind == "mul" else (node,)


def _is_capital(node: Node) -> bool:
    return node.kind == "sym" and node.parts[0][:1].isupper()


def _is_inverse(node: Node) -> bool:
    """The inverse or the transpose of a capital letter, which may be a matrix."""
    if node.kind == "sym":
        return str(node.parts[0]).endswith("^-1")
    if node.kind != "pow" or not _is_capital(node.parts[0]):
        return False
    return node.parts[1] in INVERSE or node.parts[1].kind == "neg"


def _letter_of(node: Node) -> str:
    """The capital letter that a factor is, or is a power of; else nothing."""
    base = node.parts[0] if node.kind == "pow" else node
    return base.parts[0][:1] if _is_capital(base) else ""


def _crossed(first: Node, second: Node) -> Node:
    """Turned around, a cross product is its negative."""
    if repr(first) > repr(second):
        return Node("neg", (Node("apply", (_CROSS, second, first)),))
    return Node("apply", (_CROSS, first, second))


def _rows_of(nodes: list[Node]) -> tuple[tuple[Node, ...], ...]:
    """Lists of equally many entries in a list as the rows of a matrix; empty for anything else."""
    rows = [node.parts[:2] if node.kind == "interval" else node.parts for node in nodes]
    are_lists = all(
        (node.kind == "interval" and node.parts[2:] == ("[", "]")) or node.kind == "tuple"
        for node in nodes
    )
    is_even = len({len(row) for row in rows}) == 1
    entries = [entry for row in rows for entry in row]
    are_numbers = all(isinstance(entry, Node) and entry.kind in SCALARS for entry in entries)
    return tuple(rows) if are_lists and is_even and are_numbers else ()


def _named(name: str) -> Node:
    return Node("const" if name in ("pi", "e", "i") else "sym", (name,))


_COMMANDS: dict[str, Callable[[Expressions, str], Node]] = {
    "infty": lambda *_: INFINITY,
    "emptyset": lambda *_: Node("empty"),
    "frac": Expressions._fraction,
    "sqrt": Expressions._root,
    "binom": Expressions._binomial,
    "lim": Expressions._limit,
    "int": Expressions._integral,
    "begin": Expressions._matrix,
    **dict.fromkeys(("sum", "prod"), Expressions._series),
    **dict.fromkeys(("lfloor", "lceil"), Expressions._rounded),
    **dict.fromkeys(
        ("mathrm", "mathbf", "mathit", "operatorname", "mathcal", "mathbb", "text"),
        Expressions._font,
    ),
    **dict.fromkeys(_ACCENTS.split(), Expressions._accented),
}
"""What stands behind a command that is neither a function nor a Greek letter."""
