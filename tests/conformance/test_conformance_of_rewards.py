"""Forty golds by forty responses: the rewards of all trainers and the grader give one verdict.

Golds reach each reward as they are in a user's columns, and as ``tandem data prepare`` writes them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tandem_plugin.grading import default_grader
from tandem_plugin.lab.data import prepare
from tandem_plugin.lab.data.sources import problems_of

pytest.importorskip("sympy")
pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")

from tandem_plugin.grading.rewards.openrlhf_reward import reward_func  # noqa: E402
from tandem_plugin.grading.rewards.trl_reward import math_reward  # noqa: E402
from tandem_plugin.grading.rewards.verl_reward import compute_score  # noqa: E402

PROBLEM = r"What is $17\cdot 23$, or another thing?"
N = "391 391. 391.0 $391$ bare two-boxes x=391 letter-with-391"
"""The responses that say 391."""
HALF = r"0.5 \frac{1}{2} 1/2 \dfrac12 50\%"
BLANK = (None, " ", math.nan, [])
"""Golds that mean that a row has none."""
GOLDS: tuple[tuple[Any, str], ...] = (
    ("391", N),
    (391, N),
    (391.0, N),
    (Decimal("391.0"), N),
    ("17 * 23 = <<17*23=391>>391\n#### 391", N),
    ("#### $391$", N),
    ("We multiply.\nThe answer is 391.", N),
    ("**Final answer:** $391$", N),
    (r"So the answer is \boxed{391}.", N),
    ("<think>17 * 23</think> <answer>391</answer>", N),
    (["391"], N),
    (["7", "#### 391"], N),
    (("391", Decimal("0.5")), f"{N} {HALF}"),
    ("A) 391", f"{N} A (A)"),
    (r"\textbf{(A)}\ 391", f"{N} A (A)"),
    (r"x = 391", N),
    (r"391\text{ cm}", f"{N} 391cm"),
    ("1,391", "1391 1,391"),
    ("... \n#### 1,391", "1391 1,391"),
    ("0.5", HALF),
    (Fraction(1, 2), HALF),
    (r"\frac{1}{2}", HALF),
    (r"50\%", HALF),
    ("-4", "-4"),
    ("(1, 2)", "(1,2) 1,2"),
    (r"\{1, 2\}", r"\{2,1\} 1,2"),
    ("[1, 2]", "[1,2]"),
    ('["A", "C"]', "A,C C,A json-A-C"),
    ("A", "A (A) letter-with-391"),
    (True, "Yes True"),
    ("x > 1", "x>1 (1,\\infty)"),
    (r"\sqrt{8}", r"\sqrt8 2\sqrt2"),
    ("3:2", "3:2"),
    *((blank, "") for blank in BLANK),
    ({"x": 391}, ""),
    ("She sold 391 clips altogether.", ""),
    (r"\boxed{391", ""),
)  # fmt: skip
"""Each gold, and the names of the responses that are right for it."""
_BOXED = (
    r"391 391. 391.0 $391$ 1391 1,391 392 -391 -4 4 0.5 0.6 \frac{1}{2} 1/2 \dfrac12 50\% A (A) B "
    r"A,C C,A (1,2) [1,2] \{2,1\} 1,2 Yes True x=391 x>1 (1,\infty) \sqrt8 2\sqrt2 3:2"
)
RESPONSES = {name: rf"We multiply. The answer is \boxed{{{name}}}." for name in _BOXED.split()} | {
    "bare": r"It is \boxed 391",
    "two-boxes": r"First \boxed{5}. No, it is $\boxed{391}$",
    "copied": r"The answer is \boxed{17\cdot 23}.",
    "no-box": "The answer is 391.",
    "truncated": r"The answer is \boxed{391",
    "letter-with-391": r"\boxed{(A) 391}",
    "json-A-C": r'\boxed{["A","C"]}',
}


def is_blank(gold: Any) -> bool:
    return any(gold is blank for blank in BLANK)


def outcome_in(flags: dict[str, Any]) -> str:
    """The outcome that a reward's flags or shares name."""
    (name,) = (name for name, value in flags.items() if float(value) == 1.0)
    return name.removeprefix("outcome_").removeprefix("grading/")


def by_verl(response: str, gold: Any, extra_info: Any) -> str:
    result = compute_score("a set", response, gold, extra_info)
    return outcome_in({name: one for name, one in result.items() if "outcome_" in name})


def by_trl(response: str, prompt: Any, **columns: Any) -> str:
    shares: dict[str, float] = {}
    completion = [{"role": "assistant", "content": response}]
    each = {name: [value] for name, value in columns.items()}
    (reward,) = math_reward([completion], prompts=[prompt], log_metric=shares.__setitem__, **each)
    assert (reward is None) == (not shares)
    return outcome_in(shares) if shares else "none"


def by_openrlhf(response: str, turns: list[dict[str, str]], gold: Any) -> str:
    prompt = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in turns)
    prompt += "<|im_start|>assistant\n"
    result = reward_func([f"{prompt}{response}<|im_end|>"], [prompt], [gold])
    logs = {name: one[0] for name, one in result["extra_logs"].items() if "outcome_" in name}
    return outcome_in(logs)


def doors(gold: Any, folder: Path) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Every way to grade a response by one gold, by name."""
    from pyarrow.parquet import read_table

    asked = [{"role": "user", "content": PROBLEM}]
    yield "OpenRLHF", lambda text: by_openrlhf(text, asked, gold)
    yield "verl", lambda text: by_verl(text, gold, {"question": PROBLEM})
    for column in ("answer", "solution", "ground_truth"):
        yield f"TRL, {column}", partial(by_trl, prompt=asked, **{column: gold})
    if is_blank(gold) or isinstance(gold, dict):
        return  # a bad row, which is not prepared
    problems = problems_of([(1, {"problem": PROBLEM, "answer": gold})], "one")
    prepare(problems, "openrlhf", folder / "openrlhf")
    prepare(problems, "verl", folder / "verl")
    line = json.loads((folder / "openrlhf" / "train.jsonl").read_text())
    (row,) = read_table(folder / "verl" / "train.parquet").to_pylist()
    answer = row["reward_model"]["ground_truth"]
    yield "OpenRLHF, prepared", lambda text: by_openrlhf(text, line["input"], line["label"])
    yield "verl, prepared", lambda text: by_verl(text, answer, row["extra_info"])
    columns = {name: row[name] for name in ("reward_model", "extra_info", "ability")}
    yield "TRL, prepared", partial(by_trl, prompt=row["prompt"], **columns)


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Counter[str]]:
    """How often each outcome was all doors' verdict, printed at the end (pytest -s)."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\n{sum(counted.values())} pairs, all doors: {dict(counted.most_common())}")


def test_the_table_has_forty_golds_and_forty_responses() -> None:
    assert (len(GOLDS), len(RESPONSES)) == (40, 40)


@pytest.mark.parametrize(("gold", "right"), GOLDS, ids=[repr(gold) for gold, _ in GOLDS])
def test_every_door_gives_one_verdict(
    gold: Any, right: str, tmp_path: Path, verdicts: Counter[str]
) -> None:
    every = dict(doors(gold, tmp_path))
    for name, response in RESPONSES.items():
        verdict = default_grader().grade(response, gold, PROBLEM).outcome
        assert (verdict == "correct") == (name in right.split()), (name, verdict)
        given = {door: grade(response) for door, grade in every.items()}
        wanted = dict.fromkeys(every, verdict)
        if is_blank(gold):
            wanted |= {door: "none" for door in wanted if door.startswith("TRL")}
        assert given == wanted, (name, given)
        verdicts[verdict] += 1
