"""Pairs that a nursery compares once, so that every worker starts with warm parser and caches.

SymPy fills its caches and imports what it needs; workers inherit all of it.
"""

from __future__ import annotations

from tandem_plugin.grading.decide import decide
from tandem_plugin.grading.spelling import spelled
from tandem_plugin.grading.symbolic.proof import proof

__all__ = ["warm_up"]

PAIRS = (
    (r"\frac{\sqrt{3}}{2}+1", r"1+\frac12\sqrt3"),
    (r"2\pi-\frac{3\sqrt{5}}{4}", r"\frac{8\pi-3\sqrt{5}}{4}"),
    (r"x^2+2x+1", r"(x+1)^2"),
    (r"\frac{a+b}{c-d}", r"-\frac{a+b}{d-c}"),
    (r"3x^{2}y-4xy+\frac{y}{2}", r"y(3x^2-4x+0.5)"),
    (r"\sqrt[3]{16}", r"2\cdot 2^{1/3}"),
    (r"\sin^2 x+\cos x", r"1-\cos^{2}(x)+\cos(x)"),
    (r"\log_2 8+\ln 3", r"3+\ln(3)"),
    (r"e^{-\frac{u}{LC}}", r"\exp(-u/(LC))"),
    (r"\binom{5}{2}+4!", r"34"),
    (r"\begin{pmatrix}1&2\\3&x\end{pmatrix}", r"\begin{bmatrix}1 & 2\\ 3 & x\end{bmatrix}"),
    (r"(-\infty,\sqrt{2}]\cup(5,\infty)", r"(5,\infty)\cup(-\infty,\sqrt{2}]"),
    (r"x>2\sqrt{2}", r"2\sqrt{2}<x"),
    (r"1<x<2", r"(1,2)"),
    (r"y=2x+1", r"y-2x=1"),
    (r"x^2+y^2=4", r"x^2+y^2-4=0"),
    (r"|x-1|+2|y|", r"2|y|+|1-x|"),
    (r"2+i\sqrt{7}", r"\sqrt{7}i+2"),
    (r"f(x)=\frac{1}{1+e^{-x}}", r"f(x)=\frac{e^x}{e^x+1}"),
    (r"\frac{3\pi q^{2}S^{3}}{b^{2}\mu^{4}(e^{\frac{pq}{\mu nU}}-2)}", r"3\pi q^2"),
    (r"k_{a}v^{2}(\gamma^{2}+3)\cos^{2}\phi", r"\arccos(0.7\cos\phi_k)"),
    (r"\sum_{k=1}^{n}k", r"\frac{n(n+1)}{2}"),
    (r"\int_0^1 x^2 dx", r"\frac13"),
    (r"\int_0^\infty e^{-x^2} dx", r"\frac{\sqrt{\pi}}{2}"),
    (r"\sum_{n=0}^{\infty} x^n", r"\frac{1}{1-x}"),
    (r"\mathbb{R}\setminus\{0\}", r"(-\infty,0)\cup(0,\infty)"),
    (r"\lfloor\frac{7}{2}\rfloor+\max(1,2)", r"\lceil 4.5\rceil"),
    (r"2^{2024}-1", r"2^{2023}"),
    (r"z^{\prime}-2cz+cu(t)=0", r"\frac{dz}{dt}=cz"),
    (r"\tan 45^\circ", r"1"),
    (r"a_{1}+a_2", r"a_2+a_{1}"),
    (r"(x+1)(x-2)(x+3)", r"x^3+2x^2-5x-6"),
    (r"\frac{1}{2}\left(e^{bx}+e^{-bx}\right)", r"\cosh(bx)"),
    (r"x^5-x-1=0", r"2x^5-2x-2=0"),
    (r"3\cdot 10^{8}\cdot\sqrt{2}", r"424264068.7"),
    (r"\frac{\sinh(2y)}{y}", r"\frac{e^{2y}-e^{-2y}}{2y}"),
    (r"\log_{e}5+\log 100", r"2+\ln 5"),
    (r"\frac{n!}{(n-2)!}", r"n(n-1)"),
    (r"\sqrt{3+2\sqrt{2}}", r"\sqrt{2}+1"),
    (r"\frac{-3+\sqrt{17}}{4}", r"\frac{\sqrt{17}-3}{4}"),
    (r"\frac{2}{1+\sqrt{5}}", r"\frac{\sqrt{5}-1}{2}"),
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
