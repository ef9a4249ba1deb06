r"""Every rule of spelling keeps the value, and none makes two values one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem_plugin.grading.answers import UnreadableError, read
from tandem_plugin.grading.equality import decide
from tandem_plugin.grading.spelling import RULES, same_text, spelled

# Of every rule what it reads, and the same without it; A and B stand for numbers below 1,000.
EXAMPLES = {
    "row ends": (
        r"\begin{pmatrix}A\\[4pt]B\end{pmatrix}",
        r"\begin{pmatrix}A\\B\end{pmatrix}",
    ),
    "starred matrices": (
        r"\begin{pmatrix*}[r]A\\B\end{pmatrix*}",
        r"\begin{pmatrix}A\\B\end{pmatrix}",
    ),
    "ends of proofs": (r"Ax+B \quad\blacksquare", "Ax+B"),
    "conclusions": (r"\implies Ax+B", "Ax+B"),
    "transposes": (r"Ax^{\intercal}+B", "Ax^T+B"),
    "signs in braces": ("Ax{+}B", "Ax+B"),
    "quotients": (r"{A\over B}", r"\frac{A}{B}"),
    "ohms": (r"A\text{ k\Omega}", r"A\text{ kohm}"),
    "micro in text": (r"A\text{ \mu m}", "A µm"),
    "environments": (r"\begin{align*}x&=A\\y&=B\end{align*}", "x=A, y=B"),
    "lengths": (r"x=A,\hspace{1em}y=B", "x=A, y=B"),
    "labels": (r"Ax+B\tag{3}", "Ax+B"),
    "braces": (r"\underbrace{Ax}_{\text{first}}+B", "Ax+B"),
    "emphasis": ("**Ax+B**", "Ax+B"),
    "empty switches": (r"\frac{\rm A}{\bf B}", r"\frac{A}{B}"),
    "switches": (r"A{\rm cm}", r"A\text{ cm}"),
    "bold switches": (r"A{\bf x}+B", "Ax+B"),
    "bare arguments": (r"A\mathrm x+B", "Ax+B"),
    "thousands": (r"A,\!217", r"A217"),
    "colons": (r"A{:}B", "A:B"),
    "systems": (r"\begin{cases}x=A\\y=B\end{cases}", "x=A, y=B"),
    "commands": (r"\displaystyle\dfrac{A}{x}\leqslant B", r"\frac{A}{x}\le B"),
    "thin spaces": (r"A\,x+B\;y", "Ax+By"),
    "negative space": (r"A\!x+\!B", "Ax+B"),
    "wide spaces": (r"x=A,\quad y=B", "x=A, y=B"),
    "delimiters": (r"\(A x+B\)", "Ax+B"),
    "empty delimiters": (r"\left.Ax+B\right.", "Ax+B"),
    "sizes": (r"\left(A,\bigl(B+x\bigr)\right)", "(A,B+x)"),
    "colours": (r"\textcolor{red}{A}x+\color{blue}B", "Ax+B"),
    "chosen": (r"{n \choose A}+B", r"\binom{n}{A}+B"),
    "at most": ("Ax+y<=B", r"Ax+y\le B"),
    "at least": (r"Ax+y>=B", r"Ax+y\ge B"),
    "unequal": ("Ax!=B", r"Ax\ne B"),
    "empty set": (r"\{A,B\}\cup\{\}", r"\{A,B\}\cup\emptyset"),
    "infinity": (r"(A,inf)\cup\{-B\}", r"(A,\infty)\cup\{-B\}"),
    "reals": (r"\mathbf{R}\setminus\{A,B\}", r"\mathbb{R}\setminus\{A,B\}"),
    "fonts": (r"A\mbox{ cm}", r"A\text{ cm}"),
    "upright": (r"A\mathit{x}+B", "Ax+B"),
    "bold": (r"A\boldsymbol{x}+B", "Ax+B"),
    "degrees": (r"A^\circ", r"A\text{ degrees}"),
    "primes": (r"Ay^{\prime\prime}+B", "Ay''+B"),
    "prime": (r"Ay^\prime+B", "Ay'+B"),
    "percent": (r"A\%", r"A\text{ percent}"),
    "dollars": (r"\$A", r"A\text{ dollars}"),
    "conjunctions": (r"x=A\&y=B", r"x=A\text{ and }y=B"),
    "alternatives": (r"A\text{ oder }B", r"A\text{ or }B"),
    "plus or minus": ("A+/-x", r"A\pm x"),
    "times ten": ("A x 10^{7}", r"A\times 10^7"),
    "moduli": (r"x\equiv A\pmod 7", r"x\equiv A\pmod{7}"),
    "introductions": (r"\text{The answer is }A", "A"),
    "micro": (r"A\ \mu\text{m}", "A µm"),
    "parts": ("(a) A, (b) B", "(A; B)"),
    "ordinals in text": (r"\text{Ath}", r"A\text{th}"),
    "ordinals": (r"A^{\text{th}}", r"A\text{th}"),
    "plain ordinals": ("Ath", r"A\text{th}"),
    "counted things": (r"\text{A ways}", r"A\text{ ways}"),
    "ascii powers": ("x**A+B", "x^{A}+B"),
    "underscores": (r"x\_1+A", "x_1+A"),
    "dots": ("A,B,x...", r"A,B,x\ldots"),
}
NUMBERS = st.integers(11, 997)
TEXTS = (
    "4:30 a.m.", r"50\%:√2", "1:2", "204_5", "3-0", "5/5/1999", "0xFF", "7th",
    r"\{1,2\}", "[0,1)", "x>5", "x=5", "5 cm", r"30^\circ",
    r"\text{yes}", "(1,2)", r"\mathbb{R}", r"\begin{pmatrix}1\\2\end{pmatrix}", r"\pm 3",
    "x^2+y^2=4",
    r"\frac13\approx0.333", r"\$5", r"x\in[0,1]", "a<b", r"\infty", "B",
)  # fmt: skip


def filled(template: str, a: int, b: int) -> str:
    """With numbers for the capitals that stand for them."""
    marked = template.replace("\\R", "\0").replace("mathbb{R}", "\1")
    marked = marked.replace("A", str(a)).replace("B", str(b))
    return marked.replace("\0", "\\R").replace("\1", "mathbb{R}")


def test_every_rule_has_an_example():
    assert {name for name, *_ in RULES} == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
@given(a=NUMBERS, b=NUMBERS, other=NUMBERS)
@settings(max_examples=20, deadline=None)
def test_a_rule_keeps_the_value_and_makes_no_two_one(name: str, a: int, b: int, other: int):
    written, plain = (spelled(filled(text, a, b)) for text in EXAMPLES[name])
    pattern = next(pattern for its_name, pattern, _ in RULES if its_name == name)
    assert pattern.search(filled(EXAMPLES[name][0], a, b)) or name in ("sizes", "systems")
    assert same_text(written, plain) or read(written) == read(plain)
    changed = spelled(filled(EXAMPLES[name][0], other, b))
    if other != a:
        decision = decide(written, changed)
        assert decision is None or not decision.is_equal


@given(st.text(alphabet="0123456789x+- .,()\\{}^_|&$%", max_size=30))
@settings(deadline=None)
def test_no_text_breaks_the_reader(text: str):
    decision = decide("7", spelled(text))
    assert decision is None or decision.rule


@given(st.integers(0, 10**9), st.integers(0, 10**9))
@settings(deadline=None)
def test_spaces_between_numbers_are_never_dropped(a: int, b: int):
    for space in (" ", r"\ ", r"\quad ", r"\;", "~", "\u2003"):
        decision = decide(f"{a}{b}", spelled(f"{a}{space}{b}"))
        grouped = len(str(b)) == 3 and len(str(a)) <= 3
        assert grouped or decision is None or not decision.is_equal


@given(st.integers(0, 9999), st.integers(0, 99), st.integers(0, 99))
@settings(deadline=None)
def test_a_decimal_comma_is_a_point_beside_a_point_alone(a: int, b: int, other: int):
    def is_equal(gold: str, answer: str) -> bool:
        decision = decide(gold, answer)
        return decision is not None and decision.is_equal

    comma, point = f"{a},{b:02}", f"{a}.{b:02}"
    assert is_equal(comma, point)
    assert is_equal(point, comma)
    assert read(comma).kind == "list"
    assert not is_equal(point, f"({comma})")
    assert not is_equal(point, comma.replace(",", ", "))
    assert not is_equal(f"{a}{b:02}", comma)
    assert b == other or not is_equal(f"{a}.{other:02}", comma)


@given(st.integers(-50, 50), st.integers(1, 50), st.booleans(), st.booleans())
@settings(deadline=None)
def test_the_bounds_of_a_negated_variable_change_sign_and_place(
    low: int, width: int, is_low_closed: bool, is_high_closed: bool
):
    signs = ["\\le " if closed else "<" for closed in (is_low_closed, is_high_closed)]
    gold = f"{low}{signs[0]}x{signs[1]}{low + width}"
    assert read(f"{-low - width}{signs[1]}-x{signs[0]}{-low}") is not None
    decision = decide(gold, f"{-low - width}{signs[1]}-x{signs[0]}{-low}")
    assert decision is not None
    assert decision.is_equal
    wrong = decide(gold, f"{-low - width - 1}{signs[1]}-x{signs[0]}{-low}")
    assert wrong is not None
    assert not wrong.is_equal


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "tail",
    ["1-" * 900, "1/" * 900, "1111 " * 380, "A" * 1900 + "_", "1{,}111" * 270, "th, 1" * 380,
     "a" * 1900 + "?", "per " * 400 + "?", r"\text{m" * 200, "m^2" * 600],
)  # fmt: skip
def test_nothing_hangs_on_what_follows_a_number(tail: str):
    for number in ("5 ", r"5\text{ m} "):
        decision = decide("7", spelled(number + tail))
        assert decision is None or not decision.is_equal


@pytest.mark.parametrize("text", ["(" * 900, "|" * 900, r"\sqrt" * 400, "-" * 1900, "1/" * 900])
def test_deep_texts_are_refused_without_an_error(text: str):
    assert decide("7", spelled(text)) is None or not decide("7", spelled(text)).is_equal  # type: ignore[union-attr]


def test_what_is_not_known_is_refused():
    for text in (r"\phantom{5}", r"5\ldots", "5?", r"\text{(maybe 6)}", r"1\quad 2", "x2", "5;;6"):
        with pytest.raises(UnreadableError):
            read(spelled(text))


@given(
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3), st.sampled_from(TEXTS), st.booleans()
)
@settings(deadline=None)
def test_no_two_kinds_break_the_comparison(parts: list[str], gold: str, is_list: bool):
    answer = spelled((",".join if is_list else ":".join)(parts))
    for pair in ((spelled(gold), answer), (answer, spelled(gold))):
        decision = decide(*pair)
        assert decision is None or decision.rule
