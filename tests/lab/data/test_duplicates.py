"""One problem in other spellings stays on one side, and what is nearly one is reported."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from made_pictures import picture, stored
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.data import INSTRUCTION, Problem
from tandem_plugin.lab.data.duplicates import near_duplicates, spelling_of, words_of
from tandem_plugin.lab.data.pictures import read_picture
from tandem_plugin.lab.data.preparation import split


def problem(text: str, row: int = 1) -> Problem:
    return Problem(row, ({"role": "user", "content": text},), ("3",))


PROBLEM = (
    r"Let $x \leq \frac{1}{2}$ and $f(x) = (x^2 + 1) \cdot 1,000$ for a real number $\alpha$ "
    r"in the caf" + "\u00e9" + r". Find the value of $f(x)$."
)
RESPELLED = (
    PROBLEM.replace("x^2", "x\u00b2"),
    PROBLEM.replace("1,000", r"1{,}000"),
    PROBLEM.replace("$", ""),
    PROBLEM.replace(" $", r" \(").replace("$ ", r"\) "),
    PROBLEM.replace(" = ", r"\,=\;"),
    PROBLEM.replace(" ", "\u00a0"),
    PROBLEM.replace("real", "re\u200bal"),
    PROBLEM.replace(". ", ".\r\n"),
    unicodedata.normalize("NFD", PROBLEM),
    PROBLEM.replace("Find", "FIND"),
    PROBLEM.replace("1", "\uff11"),
    PROBLEM.replace(r"\frac", r"\dfrac"),
    PROBLEM.replace(r"\frac{1}{2}", r"\frac12"),
    PROBLEM.replace("(x^2 + 1)", r"\left(x^2+1\right)"),
    PROBLEM.replace(r"\cdot", r"\times"),
    PROBLEM.replace("value", r"\textbf{value}"),
    PROBLEM.replace(r"\leq", "≤"),
    f"{PROBLEM} {INSTRUCTION}",
    f"{PROBLEM} Put your final answer within \\boxed{{}}.",
    f'{PROBLEM} Let\'s think step by step and output the final answer after "####".',
    f"Solve the following problem step by step. {PROBLEM}",
)


NEAR = (
    PROBLEM.replace("1,000", "1000"),
    PROBLEM.replace(r"\frac{1}{2}", "1/2"),
    PROBLEM.replace("real", "positive real"),
)
SHORT = (
    (r"Compute $\frac{1}{2}+\frac{1}{3}$.", r"Compute $\dfrac12+\tfrac{1}{3}$."),
    (r"Let $f(x)=x^2$. Find $f(3)$.", r"Let $f\left(x\right)=x^2$. Find $f\bigl(3\bigr)$."),
    (r"Solve $x\le 5$ and $x\geq 2$.", "Solve $x ≤ 5$ and $x ≥ 2$."),
    (r"What is $\sqrt{16}$?", r"What is $\displaystyle √16$?"),
    (r"Find $x$ if $x\cdot 3=6$.", r"Find $\mathrm{x}$ if $\mathit{x}\times 3\,=\,6$."),
)
"""Too short to be found by likeness."""


@pytest.mark.parametrize("text", NEAR, ids=range(len(NEAR)))
def test_problem_that_is_written_otherwise_is_a_near_duplicate(text: str):
    assert spelling_of(problem(text)) != spelling_of(problem(PROBLEM))
    long = " How many such numbers are there below the hundred, and what is their sum, if any is?"
    (pair,) = near_duplicates([problem(PROBLEM + long, 1)], [problem(text + long, 2)])
    assert (pair.heldout, pair.train) == (2, 1)


@pytest.mark.parametrize("text", RESPELLED, ids=range(len(RESPELLED)))
def test_spellings_that_a_reader_takes_for_one_problem_are_one(text: str):
    assert text != PROBLEM
    assert spelling_of(problem(text)) == spelling_of(problem(PROBLEM))


@pytest.mark.parametrize(("first", "second"), SHORT, ids=range(len(SHORT)))
def test_short_problem_in_other_tex_is_one_problem(first: str, second: str):
    assert spelling_of(problem(first)) == spelling_of(problem(second))


DIFFERENT = (
    r"Is $x\le 1$?",
    r"Is $x\ge 1$?",
    r"Is $x \ne 1$?",
    "What is 1 + 23?",
    "What is 12 + 3?",
    "What is 123?",
    "What is x + 23?",
    "Is 1 23?",
)


def test_one_question_of_two_pictures_is_two_problems():
    """As in sets of figures, of which most ask to find x."""
    light, dark = (read_picture(stored(picture(size=(n, 8)))) for n in (8, 9))
    of = lambda row, *images: replace(problem("<image>Find x.", row), images=images)  # noqa: E731
    assert spelling_of(of(1, light)) != spelling_of(of(2, dark)) != spelling_of(of(2, dark, dark))
    assert spelling_of(of(1, light)) == spelling_of(of(2, light))
    long = replace(problem(PROBLEM, 1), images=(light,))
    near = replace(problem(PROBLEM.replace("1,000", "1000"), 2), images=(light,))
    assert len([*near_duplicates([long], [near])]) == 1
    assert not [*near_duplicates([long], [replace(near, images=(dark,))])]


def test_held_out_pictures_do_not_depend_on_their_order():
    images = [read_picture(stored(picture(size=(n, 8)))) for n in range(8, 28)]
    problems = [replace(problem("<image>Find x.", n), images=(i,)) for n, i in enumerate(images)]
    parts, duplicates = split(problems, 5, seed=1)
    turned, _ = split(problems[::-1], 5, seed=1)
    other, _ = split(problems, 5, seed=2)
    rows = lambda parts: {p.row for p in parts["heldout"]}  # noqa: E731
    assert duplicates == 0
    assert rows(parts) == rows(turned) != rows(other)


def test_other_problems_are_others():
    assert len({spelling_of(problem(text)) for text in DIFFERENT}) == len(DIFFERENT)
    for change in (("1,000", "2,000"), (r"\frac{1}{2}", r"\frac{1}{3}"), (r"\leq", r"\geq")):
        assert spelling_of(problem(PROBLEM.replace(*change))) != spelling_of(problem(PROBLEM))


@pytest.mark.parametrize("seed", range(5))
def test_spellings_of_one_problem_are_never_on_both_sides(seed: int):
    others = [problem(f"How many of {n} apples are green?", n) for n in range(40)]
    spelled = [problem(text, 100 + row) for row, text in enumerate((PROBLEM, *RESPELLED))]
    both = [*others, *spelled]
    parts, duplicates = split(both, 20, seed)
    assert duplicates == len(RESPELLED)
    assert sum(map(len, parts.values())) == len(both)
    sides = [
        {name for name, part in parts.items() for other in part if other is one} for one in spelled
    ]
    assert all(side == sides[0] for side in sides)


def test_near_duplicates_are_the_nearest_problem_of_the_other_side():
    long = "A train leaves the station at noon and travels north at a speed of {} miles per hour, "
    long += "while a second train leaves the same station one hour later. When do they meet?"
    train = [
        problem("Find the sum of two primes.", 1),
        problem(long.format("sixty"), 2),
        problem(long.format("sixty").replace("noon", "noon today"), 3),
    ]
    heldout = [problem(long.format("ninety"), 7), problem("Another one.", 8), problem("Hm", 9)]
    (pair,) = near_duplicates(train, heldout)
    assert (pair.heldout, pair.train) == (7, 2)
    assert 0.7 <= pair.likeness < 1
    assert list(near_duplicates(train, heldout[1:])) == []
    assert [one.likeness for one in near_duplicates(train, train[:2])] == [1.0, 1.0]


def test_prepare_lists_near_duplicates_by_row(tmp_path: Path):
    text = "A farmer has {} cows and wants to share them among his three daughters so that each "
    text += "of them gets a prime number of cows. In how many ways can the farmer do it?"
    rows = [{"problem": text.format(n), "answer": n} for n in ("ten", "eleven", "twelve")]
    file, out = tmp_path / "a.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["data", "prepare", str(file), "--to", "openrlhf", "--out", str(out)]
    done = CliRunner().invoke(app, [*command, "--heldout", "1"])
    assert done.exit_code == 0, done.output
    assert "near duplicates on both sides: 1" in done.stdout
    (pair,) = json.loads((out / "manifest.json").read_text())["near_duplicates"]
    assert f"held-out row {pair['heldout']} is like row {pair['train']}" in done.stdout
    assert pair["heldout"] != pair["train"]


@pytest.mark.parametrize(
    "text",
    [
        "Find $a$,  given B=3.\nPut it in \\boxed{}.",
        f"find A given b = 3 {INSTRUCTION}",
        "Find a, given b = 3\nEnd with Answer: $Answer.",
    ],
)
def test_words_are_those_of_the_question_alone(text: str):
    assert words_of(problem(text)) == ("find", "a", "given", "b", "3")
