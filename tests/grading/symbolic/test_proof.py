"""What is proven, what is not, and how long it may take."""

from __future__ import annotations

import pytest

pytest.importorskip("sympy")

import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem_plugin.grading import Grader
from tandem_plugin.grading.equality import decide
from tandem_plugin.grading.symbolic.algebra import is_zero, separation_bits
from tandem_plugin.grading.symbolic.proof import are_equal, proof

x, y, z = sympy.symbols("x y z", real=True)
ROOTS = st.integers(2, 40)


@given(ROOTS, ROOTS, ROOTS)
@settings(max_examples=30, deadline=None)
def test_a_sum_of_roots_is_equal_to_itself_squared_and_rooted(a: int, b: int, c: int):
    first = sympy.sqrt(a) + sympy.sqrt(b)
    second = sympy.sqrt(a + b + 2 * sympy.sqrt(sympy.Integer(a * b)))
    assert is_zero(first - second)
    assert not is_zero(first - second + sympy.Rational(1, 10**40 + c))


def test_a_difference_of_a_thousand_digits_is_seen():
    tiny = sympy.Rational(1, 10**900)
    assert not is_zero(sympy.sqrt(2) + tiny - sympy.sqrt(2) + sympy.sqrt(3) - sympy.sqrt(3 + tiny))
    assert not are_equal(sympy.pi, sympy.pi + tiny)
    assert not are_equal(sympy.cos(tiny), sympy.Integer(1))
    assert not are_equal(sympy.sqrt(x) + tiny, sympy.sqrt(x))
    assert not are_equal(x + tiny, x)


def test_the_bound_is_below_what_it_bounds():
    # Close pairs of sums of square roots, from the literature on the sum of square roots problem.
    for first, second in (
        ((10, 11), (5, 18)),
        ((5, 6, 18), (4, 12, 12)),
        ((7, 14, 39), (13, 16, 27)),
    ):
        gap = sum(map(sympy.sqrt, first)) - sum(map(sympy.sqrt, second))
        size = abs(gap.evalf(60))
        assert size > sympy.Float(2, 60) ** -separation_bits(gap)
        assert not is_zero(gap)


@given(st.tuples(*[st.integers(-9, 9)] * 3), st.tuples(*[st.integers(-9, 9)] * 3))
@settings(max_examples=60, deadline=None)
def test_linear_forms_are_equal_only_where_they_are(
    first: tuple[int, ...], second: tuple[int, ...]
):
    forms = [a * x + b * y + c * z for a, b, c in (first, second)]
    assert are_equal(*forms) == (first == second)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("a+b+c", "3b"), ("x+z", "2y"), (r"\frac{a+b+c}{3}", "b"), ("x=y", "x=z"), ("a<b", "a<c"),
     ("x-2y+z", "0"), ("a+d", "b+c")],
)  # fmt: skip
def test_points_are_in_general_position(grader: Grader, gold: str, answer: str):
    assert grader.grade(f"\\boxed{{{answer}}}", gold).outcome == "incorrect"


@pytest.mark.parametrize(
    "answer",
    [r"\int_0^\infty e^{-x^2}dx", r"\sum_{n=0}^\infty x^n", r"\lim_{n\to\infty}\frac{n+1}{n}",
     r"\prod_{k=2}^{\infty}\frac{k^2-1}{k^2}", r"\int_1^2 \frac{\ln x}{x} dx"],
)  # fmt: skip
def test_the_seal_refuses_no_legal_mathematics(grader: Grader, answer: str):
    lost = grader.deaths
    for gold in (r"\frac{\sqrt\pi}{2}", r"\frac{1}{1-x}"):
        assert grader.grade(f"\\boxed{{{answer}}}", gold).outcome in ("correct", "incorrect")
    assert grader.deaths == lost


@given(st.integers(-9, 9), st.integers(1, 9), st.booleans(), st.sampled_from("<>"))
@settings(max_examples=5, deadline=None)
def test_an_unsolved_gold_takes_its_solution_alone(
    center: int, radius: int, is_closed: bool, way: str
):
    low, high, equal = center - radius, center + radius, "\\le " if is_closed else "<"
    left, right = "[]" if is_closed else "()"
    sign = equal if way == "<" else equal.replace("<", ">").replace("\\le", "\\ge")

    def solved(low: int, high: int, left: str, right: str) -> str:
        if way == "<":
            return f"{left}{low},{high}{right}"
        ends = {"[": "]", "(": ")", "]": "[", ")": "("}
        return f"(-\\infty,{low}{ends[left]}\\cup{ends[right]}{high},\\infty)"

    def is_right(answer: str) -> bool:
        decision = decide(f"|x-({center})|{sign}{radius}", answer, proof)
        return decision is not None and decision.is_equal

    assert is_right(solved(low, high, left, right))
    assert is_right(f"x\\in{solved(low, high, left, right)}")
    assert not is_right(f"y\\in{solved(low, high, left, right)}")
    assert not is_right(solved(low, high + 1, left, right))
    assert not is_right(solved(low, high, "(" if is_closed else "[", right))
    assert not is_right(f"{low},{high}")
