"""Pairs that a nursery compares once, so that every worker starts with warm parser and caches.

SymPy fills its caches and imports what it needs; workers inherit all of it.
"""

from __future__ import annotations

from tandem_plugin.grading.equality import decide
from tandem_plugin.grading.spelling import spelled
from tandem_plugin.grading.symbolic.proof import proof

__all__ = ["warm_up"]

PAIRS = (
    (r"\frac{\sqrt{3}}{2}+1", r"1+\frac12\sqrt3"),
    (r"x^2+2x+1", r"(x+1)^2"),
    (r"\sqrt[3]{16}", r"2\cdot 2^{1/3}"),
    (r"\sin^2 x+\cos x", r"1-\cos^{2}(x)+\cos(x)"),
    (r"\log_2 8+\ln 3", r"3+\ln(3)"),
    (r"e^{-\frac{u}{LC}}", r"\exp(-u/(LC))"),
    (r"\binom{5}{2}+4!", r"34"),
    (r"\begin{pmatrix}1&2\\3&x\end{pmatrix}", r"\begin{bmatrix}1 & 2\\ 3 & x\end{bmatrix}"),
    (r"(-\infty,\sqrt{2}]\cup(5,\infty)", r"(5,\infty)\cup(-\infty,\sqrt{2}]"),
    (r"x^2+y^2=4", r"x^2+y^2-4=0"),
    (r"|x-1|+2|y|", r"2|y|+|1-x|"),
    (r"2+i\sqrt{7}", r"\sqrt{7}i+2"),
    (r"\sum_{k=1}^{n}k", r"\frac{n(n+1)}{2}"),
    (r"\int_0^1 x^2 dx", r"\frac13"),
    (r"\int_0^\infty e^{-x^2} dx", r"\frac{\sqrt{\pi}}{2}"),
    (r"\sum_{n=0}^{\infty} x^n", r"\frac{1}{1-x}"),
    (r"\mathbb{R}\setminus\{0\}", r"(-\infty,0)\cup(0,\infty)"),
    (r"\lfloor\frac{7}{2}\rfloor+\max(1,2)", r"\lceil 4.5\rceil"),
    (r"\tan 45^\circ", r"1"),
    (r"\frac{n!}{(n-2)!}", r"n(n-1)"),
    (r"\sqrt{3+2\sqrt{2}}", r"\sqrt{2}+1"),
    (r"4^{n+1}-\frac{1}{2^{k}}", r"4\cdot 4^n-2^{-k}"),
)


UNSOLVED = (
    ("5", "2x=10"),
    (r"(5,\infty)", r"\frac{1}{x-5}>0"),
    ("2", r"\lim_{x\to 0}\frac{\sin 2x}{x}"),
    (r"\frac{1}{3}", r"\prod_{k=2}^{\infty}\frac{k^2-1}{k^2}"),
)


def warm_up() -> None:
    """Compare every pair; what they come to does not matter here.

    SymPy imports modules and builds tables by evaluating text of its own when it first integrates
    or solves: a sealed worker could not.
    """
    for gold, answer in (*PAIRS, *UNSOLVED):
        decide(spelled(gold), spelled(answer), proof, lenient=(gold, answer) in UNSOLVED)
