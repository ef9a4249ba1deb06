"""The rewards of trainers, and the paths under which trainers load them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.grading import OUTCOMES
from tandem_plugin.grading.rewards.verl_reward import compute_score

pytest.importorskip("sympy")


@pytest.mark.parametrize("framework", ["verl", "openrlhf"])
def test_path_names_a_file_with_the_function_that_the_trainer_calls(framework: str):
    text = CliRunner().invoke(app, ["path", f"reward-{framework}"]).stdout
    function = {"verl": "def compute_score(", "openrlhf": "def reward_func("}[framework]
    assert function in Path(text.strip()).read_text()


def test_the_reward_for_verl_says_every_outcome():
    result = compute_score("s", r"\boxed{5}", ["4", "5"], extra_info={"index": 1})
    flags = {name: value for name, value in result.items() if name.startswith("outcome_")}
    assert flags == {f"outcome_{name}": float(name == "correct") for name in OUTCOMES}
    assert (result["score"], result["acc"]) == (1.0, 1.0)
    assert (result["pred"], result["grading_rule"]) == ("5", "text")
    assert compute_score("s", "none", "5")["pred"] == ""
    copied = compute_score("s", r"\boxed{2+3}", "5", {"question": "What is $2+3$?"})
    assert (copied["score"], copied["outcome_copied"]) == (0.0, 1.0)
