"""SkyRL's environment by tandem's rewards: a row's right answer, or functions of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refused import refused

pytest.importorskip("skyrl_gym", reason="SkyRL is not installed: make test-skyrl")

pytest.importorskip("sympy", reason="SymPy is not installed")

from tandem_plugin.grading.rewards import own
from tandem_plugin.grading.rewards.own import VARIABLE
from tandem_skyrl.environment import MathEnv

CHAT = [{"role": "user", "content": "two?"}]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    own._module.cache_clear()


def environment(gold: Any = "2") -> MathEnv:
    """As SkyRL's generator makes it: the columns of the row, then its prompt."""
    extras = {"reward_model": {"ground_truth": gold}, "extra_info": {"index": 7}, "max_turns": 1}
    made = MathEnv(None, extras)
    made.init(CHAT)
    return made


def mine(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(text)
    return file


def test_answer_is_graded() -> None:
    assert environment().step("It is \\boxed{2}.")["reward"] == 1.0
    assert environment().step("It is \\boxed{3}.")["reward"] == 0.0
    assert environment().get_metrics() == {}
    with refused("skyrl-row-without-answer"):
        environment(None).step("It is 2.")


def test_functions_of_the_users_are_summed_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = mine(
        tmp_path,
        "def right(response, problem):\n"
        "    assert (problem['prompt'], problem['index']) == ('two?', 7)\n"
        "    return problem['gold'] is None\n"
        "def brief(responses, problems):\n    return [-len(text) for text in responses]\n",
    )
    monkeypatch.setenv(VARIABLE, json.dumps({f"{file}:right": 1, f"{file}:brief": 0.5}))
    made = environment(None)
    step = made.step("abcd")
    assert (step["reward"], step["done"]) == (1.0 - 2.0, True)
    assert made.get_metrics() == {"right": 1.0, "brief": -4.0}


def test_functions_see_a_response_without_special_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyRL's client returns it with the end of the turn."""
    skyrl_gym = pytest.importorskip("skyrl_gym")
    name = "with_special_tokens"
    entry, kwargs = "tandem_skyrl.environment:MathEnv", {"special_tokens": ["<|im_end|>", "<s>"]}
    skyrl_gym.register(id=name, entry_point=entry, kwargs=kwargs)
    file = mine(tmp_path, "def f(response, problem): return response == 'a <b> |im_end|'\n")
    monkeypatch.setenv(VARIABLE, json.dumps({f"{file}:f": 1}))
    made = skyrl_gym.make(name, env_config=None, extras={"prompt": CHAT})
    made.init(CHAT)
    assert made.step("<s>a <b> |im_end|<|im_end|>")["reward"] == 1.0
    assert made.step("a <b> |im_end|<|other|>")["reward"] == 0.0


def test_special_tokens_are_all_that_decoding_leaves_out() -> None:
    """Also one that no role of the tokenizer names, and one that begins with another."""
    from small_tokenizers import byte_level_bpe
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    from tandem_skyrl.experiment import special_tokens_of

    tokens = byte_level_bpe()
    tokens.add_special_tokens([AddedToken(t, special=True) for t in ("<|a|>", "<|a|>b", "<|eom|>")])
    tokens.add_tokens([AddedToken("<plain>", special=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="<|a|>")
    special = special_tokens_of(tokenizer)
    assert {"<|a|>", "<|a|>b", "<|eom|>"} <= set(special)
    assert "<plain>" not in special
    assert "<|eom|>" not in tokenizer.all_special_tokens
    made = MathEnv(None, {"reward_model": {"ground_truth": "2"}}, special)
    assert made.step("\\boxed{<|a|>b2<|eom|>}<|a|>")["reward"] == 1.0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(response, problem): return None", "reward-not-number"),
        ("def f(response, problem): return float('nan')", "reward-not-number"),
        ("def f(response, problem): return '1'", "reward-not-number"),
        ("def f(response, problem): return [1.0]", "reward-not-number"),
        ("def f(response, problem): return 1 / 0", "reward-function-failed"),
        ("def f(responses, problems): return []", "reward-count-differs"),
    ],
)
def test_bad_reward_names_the_row(
    text: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"{mine(tmp_path, text)}:f")
    with refused(code, row="7: 'two?'"):
        environment().step("2")
