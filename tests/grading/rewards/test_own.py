"""A reward of one's own, as each trainer calls it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin.grading.rewards import own
from tandem_plugin.grading.rewards.own import VARIABLE, OwnReward, OwnRewards, own_rewards

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
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    own._module.cache_clear()


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
    "value", ["None", "float('nan')", "float('inf')", "'1'", "b'1'", "{}", "[1.0]", "object()"]
)
@pytest.mark.parametrize("batched", [False, True])
def test_what_is_no_number_names_the_row(value: str, batched: bool, tmp_path: Path) -> None:
    names = "responses, problems" if batched else "response, problem"
    result = f"[1.0, {value}]" if batched else f"1.0 if problem['gold'] == '2' else {value}"
    made = reward(tmp_path, f"def score({names}):\n    return {result}\n")
    with refused("reward-not-number", row="7: 'three?'"):
        made.scores(["a", "b"], PROBLEMS)


@pytest.mark.parametrize(
    "value",
    ["[1.0]", "[1.0, 1.0, 1.0]", "1.0", "None", "{0: 1.0, 1: 1.0}", "{0.0, 1.0}", "iter([1, 1])"],
)
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
        ("def score(response): ...", "score", "reward-function-parameters"),
        ("def score(response, problem, more): ...", "score", "reward-function-parameters"),
        ("def score(response, *, problem): ...", "score", "reward-function-parameters"),
    ],
)
def test_file_without_the_function_is_named(
    text: str, function: str, code: str, tmp_path: Path
) -> None:
    with refused(code):
        reward(tmp_path, text, function).check()


@pytest.mark.parametrize("names", ["response, problem", "responses, problems"])
def test_function_that_raises_names_the_row(names: str, tmp_path: Path) -> None:
    made = reward(tmp_path, f"def score({names}):\n    return {names.split()[-1]}['answer']\n")
    with refused("reward-function-failed") as caught:
        made.scores(["a", "b"], PROBLEMS)
    assert caught.value.fields["row"] == "'two?'"
    assert "Error: " in str(caught.value)


def test_several_functions_are_summed_by_their_weights(tmp_path: Path) -> None:
    text = f"{SINGLE}\ndef brief(responses, problems):\n    return [-len(r) for r in responses]\n"
    file = reward(tmp_path, text).file
    made = OwnRewards.of(json.dumps({f"{file}:score": 2, f"{file}:brief": 0.5}))
    assert OwnRewards.of(str(made)) == made
    sums, parts = made.scores(["a 2", "b"], PROBLEMS)
    assert sums == [2 * 1.0 - 0.5 * 3, -0.5]
    assert parts == {"score": [1.0, 0.0], "brief": [-3.0, -1.0]}
    assert OwnRewards.of(f"{file}:score").scores(["a 2", "b"], PROBLEMS)[0] == [1.0, 0.0]
    huge = reward(tmp_path, "def score(response, problem):\n    return 1e308\n")
    own._module.cache_clear()
    with refused("reward-not-number", row="'two?'"):
        OwnRewards((huge,), (10.0,)).scores(["a", "b"], PROBLEMS)


BAD = {
    "none": "None",
    "nan": "float('nan')",
    "text": "'1'",
    "list": "[1.0]",
    "raises": "1 / 0",
}
"""What a function of one response returns wrongly."""


@pytest.mark.parametrize("door", ["verl", "trl", "openrlhf"])
@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_every_trainer_names_the_row_of_a_bad_reward(
    door: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reward(tmp_path, f"def score(response, problem):\n    return {value}\n")
    monkeypatch.setenv(VARIABLE, str(made))
    with refused("reward-not-number", "reward-function-failed") as caught:
        _call(door, str(made))
    assert "'two?'" in caught.value.fields["row"]


@pytest.mark.parametrize("door", ["verl", "trl", "openrlhf"])
def test_every_trainer_names_the_row_of_a_list_of_the_wrong_length(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reward(tmp_path, "def score(responses, problems):\n    return []\n")
    monkeypatch.setenv(VARIABLE, str(made))
    with refused("reward-count-differs", responses=1) as caught:
        _call(door, str(made))
    assert "'two?'" in caught.value.fields["row"]


def _call(door: str, made: str) -> None:
    """One response to one problem, as the trainer calls its reward."""
    if door == "verl":
        from tandem_plugin.grading.rewards.own_verl import compute_score

        compute_score("mine", "2", "2", {"problem": "two?"}, reward=made)
    elif door == "trl":
        pytest.importorskip("sympy", reason="SymPy is not installed")
        from tandem_plugin.grading.rewards import own_trl

        own_trl.reward_0(completions=["2"], prompts=["two?"], answer=["2"])
    else:
        pytest.importorskip("torch")
        from tandem_plugin.grading.rewards.own_openrlhf import reward_func

        reward_func(["two? 2"], ["two?"], ["2"])


def test_verl_gets_the_sum_and_each_part(tmp_path: Path) -> None:
    from tandem_plugin.grading.rewards.own_verl import compute_score

    file = reward(tmp_path, f"{SINGLE}\ndef acc(response, problem):\n    return 3\n").file
    made = json.dumps({f"{file}:score": 1, f"{file}:acc": 0.5})
    assert compute_score("mine", "2", "2", None, reward=made) == {
        "score": 2.5, "acc": 2.5, "reward_score": 1.0, "reward_acc": 3.0
    }  # fmt: skip


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
    monkeypatch.setenv(VARIABLE, json.dumps({f"{file}:score": 1, f"{file}:brief": 1}))
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
    monkeypatch.setenv(VARIABLE, str(made))
    rows = {"reward_model": [{"ground_truth": None}]}
    assert own_trl.reward_0(completions=["a"], prompts=["b"], **rows) == [1.0]
    assert own_trl.reward_0(completions=["a"], prompts=["b"]) == [1.0]


def test_openrlhf_gets_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from tandem_plugin.grading.rewards.own_openrlhf import reward_func

    text = f"{SINGLE}\ndef brief(response, problem):\n    return -len(response)\n"
    file = reward(tmp_path, text).file
    monkeypatch.setenv(VARIABLE, json.dumps({f"{file}:score": 1, f"{file}:brief": 0.5}))
    result = reward_func(["two? 2", "three? 2"], ["two?", "three?"], ["2", "3"])
    assert torch.equal(result["rewards"], torch.tensor([0.0, -1.0]))  # " 2" is the response
    assert result["extra_logs"]["score"].tolist() == [1.0, 0.0]
    assert result["extra_logs"]["brief"].tolist() == [-2.0, -2.0]
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
