"""A reward of one's own, as each trainer calls it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin.grading.rewards import own
from tandem_plugin.grading.rewards.own import VARIABLE, OwnReward, own_rewards

SINGLE = """
def score(response, problem):
    return float(problem["gold"] in response)
"""
BATCHED = """
def score(responses, problems):
    return [float(problem["gold"] in response) for response, problem in zip(responses, problems)]
"""
ANNOTATED = """
from __future__ import annotations
def score(texts: list[str], rows: list[dict]) -> list[float]:
    return [float(row["gold"] in text) for text, row in zip(texts, rows)]
"""
PROBLEMS = [{"prompt": "two?", "gold": "2"}, {"prompt": "three?", "gold": "3", "index": 7}]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    for cached in (own._module, own_rewards):
        cached.cache_clear()
    yield
    own_rewards.cache_clear()


def reward(tmp_path: Path, text: str, function: str = "score") -> OwnReward:
    file = tmp_path / "my_reward.py"
    file.write_text(text)
    return OwnReward(file, function)


@pytest.mark.parametrize("text", [SINGLE, BATCHED, ANNOTATED])
def test_plain_function_scores_alone_or_by_lists(text: str, tmp_path: Path) -> None:
    made = reward(tmp_path, text)
    made.check()
    assert made.scores(["it is 2", "it is 4"], PROBLEMS) == [1.0, 0.0]
    assert OwnReward.of(str(made)) == made


@pytest.mark.parametrize(
    "value", ["None", "float('nan')", "float('inf')", "'1'", "{}", "[1.0]", "object()"]
)
@pytest.mark.parametrize("batched", [False, True])
def test_what_is_no_number_names_the_row(value: str, batched: bool, tmp_path: Path) -> None:
    names = "responses, problems" if batched else "response, problem"
    result = f"[1.0, {value}]" if batched else f"1.0 if problem['gold'] == '2' else {value}"
    made = reward(tmp_path, f"def score({names}):\n    return {result}\n")
    with refused("reward-not-number", row="7: 'three?'"):
        made.scores(["a", "b"], PROBLEMS)


@pytest.mark.parametrize("value", ["[1.0]", "[1.0, 1.0, 1.0]", "1.0", "None", "{0: 1.0, 1: 1.0}"])
def test_another_number_of_rewards_names_a_row(value: str, tmp_path: Path) -> None:
    made = reward(tmp_path, f"def score(responses, problems):\n    return {value}\n")
    with refused("reward-count-differs", responses=2):
        made.scores(["a", "b"], PROBLEMS)


def test_arrays_and_bools_are_numbers(tmp_path: Path) -> None:
    text = "import numpy\ndef score(responses, problems):\n    return numpy.array([1, 0])\n"
    assert reward(tmp_path, text).scores(["a", "b"], PROBLEMS) == [1.0, 0.0]
    other = tmp_path / "other.py"
    other.write_text("def score(response, problem):\n    return response == 'a'\n")
    assert OwnReward(other, "score").scores(["a", "b"], PROBLEMS) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("text", "function", "code"),
    [
        ("import nowhere_at_all", "score", "reward-file-broken"),
        ("def score(:", "score", "reward-file-broken"),
        ("raise SystemExit(3)", "score", "reward-file-broken"),
        ("def scores(response, problem): ...", "score", "reward-function-missing"),
        ("score = 3", "score", "reward-function-missing"),
    ],
)
def test_file_without_the_function_is_named(
    text: str, function: str, code: str, tmp_path: Path
) -> None:
    with refused(code):
        reward(tmp_path, text, function).check()


def test_verl_gets_one_score(tmp_path: Path) -> None:
    from tandem_plugin.grading.rewards.own_verl import compute_score

    text = 'def score(response, problem):\n    return len(problem["problem"]) + problem["index"]\n'
    made = str(reward(tmp_path, text))
    extra = {"problem": "abc", "index": 4}
    assert compute_score("mine", "x", None, extra, reward=made) == {"score": 7.0, "acc": 7.0}


def test_trl_gets_each_function_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    from tandem_plugin.grading.rewards import own_trl

    file = tmp_path / "mine.py"
    file.write_text(f"{SINGLE}\ndef brief(response, problem):\n    return -len(response)\n")
    monkeypatch.setenv(VARIABLE, json.dumps([f"{file}:score", f"{file}:brief"]))
    functions: list[Any] = [getattr(own_trl, f"reward_{number}") for number in (0, 1)]
    assert [function.__name__ for function in functions] == ["score", "brief"]
    batch = {
        "completions": [
            [{"role": "assistant", "content": "a 2"}],
            [{"role": "assistant", "content": "4"}],
        ],
        "prompts": [[{"role": "user", "content": "two?"}], [{"role": "user", "content": "three?"}]],
        "reward_model": [{"ground_truth": "2"}, {"ground_truth": "3"}],
        "extra_info": [{"index": 0}, {"index": 1}],
        "trainer_state": object(),
    }
    assert functions[0](**batch) == [1.0, 0.0]
    assert functions[1](**batch) == [-3.0, -1.0]
    with refused("reward-number-missing", number=2, count=2):
        own_trl.reward_2  # noqa: B018
    with pytest.raises(AttributeError):
        own_trl.nothing  # noqa: B018


def test_rows_without_a_gold_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    from tandem_plugin.grading.rewards import own_trl

    made = reward(tmp_path, "def score(response, problem):\n    return problem['gold'] is None\n")
    monkeypatch.setenv(VARIABLE, json.dumps([str(made)]))
    rows = {"reward_model": [{"ground_truth": None}]}
    assert own_trl.reward_0(completions=["a"], prompts=["b"], **rows) == [1.0]
    assert own_trl.reward_0(completions=["a"], prompts=["b"]) == [1.0]


def test_openrlhf_gets_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from tandem_plugin.grading.rewards.own_openrlhf import reward_func

    monkeypatch.setenv(VARIABLE, json.dumps([str(reward(tmp_path, SINGLE))]))
    result = reward_func(["two? 2", "three? 2"], ["two?", "three?"], ["2", "3"])
    assert torch.equal(result["rewards"], torch.tensor([1.0, 0.0]))
    assert list(result["extra_logs"]) == ["score"]
    with refused("openrlhf-response-not-found"):
        reward_func(["an answer"], ["What is the question of all?"], ["2"])


def test_process_that_does_not_know_the_reward_says_so() -> None:
    with refused("reward-variable-missing", variable=VARIABLE):
        own_rewards()


def test_file_may_import_what_is_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "helper_of_mine.py").write_text("YES = 1.0\n")
    text = "from helper_of_mine import YES\ndef score(response, problem):\n    return YES\n"
    assert reward(tmp_path, text).scores(["1"], PROBLEMS[:1]) == [1.0]


def test_function_may_import_what_is_installed(tmp_path: Path) -> None:
    text = (
        "import re\ndef score(response, problem):\n    return bool(re.search('[0-9]', response))\n"
    )
    assert reward(tmp_path, text).scores(["1"], PROBLEMS[:1]) == [1.0]
    assert "my_reward" not in sys.modules
