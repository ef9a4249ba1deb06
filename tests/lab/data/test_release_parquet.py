"""The Parquet files of the paper's release, read as its builders write them.

``data/build_deepscaler.py`` and ``data/build_evals.py`` of the release (7ba85e0) have the columns.
Its traces are completions in vLLM's memory, which it writes to no Parquet file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.grading import grade
from tandem_plugin.lab.data import PromptTemplate
from tandem_plugin.lab.evaluation.inputs import read_benchmark
from tandem_plugin.lab.protocols import defaults

BOXED = (
    " Solve the following math problem step by step. Put your final answer "
    "inside \\boxed{}, like \\boxed{42} or \\boxed{\\frac{1}{2}}."
)
PROBLEMS = {"How much is 20 + 7? ": "27.0", "Halve $1$.": "\\frac{1}{2}", "Simplify $x + x$.": "2x"}
"""By question, white space included; ``str`` of a column of floats is a gold as well."""


def row(index: int, problem: str, answer: str, **more: str) -> dict[str, Any]:
    return {
        "data_source": "amc23_25" if more else "deepscaler",
        "prompt": [{"role": "user", "content": problem + BOXED}],
        "ability": "MATH" if more else "math",
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"index": index, **more},
    }


@pytest.fixture(params=[{}, {"subset": "amc24_12A"}], ids=["training", "evaluation"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow writes the release's Parquet")
    from pyarrow.parquet import write_table

    rows = [row(i, *one, **request.param) for i, one in enumerate(PROBLEMS.items())]
    path = tmp_path / "test.parquet"
    write_table(arrow.Table.from_pylist(rows), path)
    return path


def test_evaluations_ask_the_same_text_and_grade_by_the_same_gold(file: Path) -> None:
    stated = defaults("release")
    release = PromptTemplate(stated["template"], stated["instruction"], always=True)
    for template in (release, PromptTemplate()):
        questions = read_benchmark(f"AMC={file}", template).questions()
        asked = [question["messages"] for question in questions]
        assert asked == [[{"role": "user", "content": text + BOXED}] for text in PROBLEMS]
        assert [question["golds"] for question in questions] == [[one] for one in PROBLEMS.values()]
    answers = ("27", "0.5", "2 x")
    for answer, gold in zip(answers, PROBLEMS.values(), strict=True):
        assert grade(f"It is \\boxed{{{answer}}}.", gold).reward == 1


@pytest.mark.parametrize("protocol", [[], ["--protocol", "release", "--heldout", "0"]])
def test_prepared_rows_are_those_of_the_release(
    file: Path, tmp_path: Path, protocol: list[str]
) -> None:
    from pyarrow.parquet import read_table

    command = ["data", "prepare", str(file), *protocol]
    for trainer in ("verl", "openrlhf"):
        out = str(tmp_path / trainer)
        done = CliRunner().invoke(app, [*command, "--to", trainer, "--out", out])
        assert done.exit_code == 0, done.output
    ours = read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    theirs = read_table(file).to_pylist()
    for name in ("prompt", "reward_model"):
        assert [one[name] for one in ours] == [one[name] for one in theirs]
    lines = (tmp_path / "openrlhf" / "train.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [one["input"] for one in rows] == [one["prompt"] for one in theirs]
    assert [one["label"] for one in rows] == list(PROBLEMS.values())
