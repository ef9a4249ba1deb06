r"""OpenRLHF's reward takes as the response what is behind the prompt, or what the engine wrote.

A box of the prompt is never paid; where the tokenizer does not give the prompt back, an error is
raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin.grading import OUTCOMES, Grader
from tandem_plugin.grading.rewards import reward_file
from tandem_plugin.grading.rewards.openrlhf_response import GENERATED, Generated, response_of

pytest.importorskip("sympy")

SHOTS = "Q: What is $2+3$?\nA: It is \\boxed{391}.\n\n"
PROMPTS = (
    f"<|im_start|>user\n{SHOTS}Q: What is $17\\cdot 23$?<|im_end|>\n<|im_start|>assistant\n",
    f"{SHOTS}Q: What is $17\\cdot 23$?\nA:",
    f" \n 问题。十七乘以二十三。例。\\boxed{{391}}。 \n{SHOTS}",
)
RESPONSES = {
    " We multiply: it is $\\boxed{391}$.": "correct",
    "\\boxed 391": "correct",
    "I say \\boxed{390}.": "incorrect",
    "no box at all": "no_answer",
    "": "no_answer",
}


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text=text, add_special_tokens=False)["input_ids"])


@pytest.fixture
def qwen(real_tokenizer: Callable[[str], Path]) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    return transformers.AutoTokenizer.from_pretrained(str(real_tokenizer("qwen")))


@pytest.fixture
def t5(real_tokenizer: Callable[[str], Path]) -> Any:
    """A tokenizer that folds blanks and knows no Chinese."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    file = str(real_tokenizer("t5") / "tokenizer.json")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=file, unk_token="<unk>", eos_token="</s>"
    )


@pytest.fixture
def generated() -> Iterator[Callable[[Generated], None]]:
    """Sets what the engine of a run in tandem wrote."""
    yield GENERATED.set  # type: ignore[misc]
    GENERATED.set(None)


def test_the_response_of_a_tokenizer_that_gives_prompts_back_is_graded_alone(
    qwen: Any, grader: Grader
) -> None:
    for prompt in PROMPTS:
        for response, outcome in RESPONSES.items():
            ids = [*ids_of(qwen, prompt), *ids_of(qwen, response), qwen.eos_token_id]
            found = response_of(qwen.decode(ids, skip_special_tokens=False), prompt)
            assert grader.grade(found, "391").outcome == outcome, (prompt, response, found)


def test_no_box_of_a_prompt_that_is_not_given_back_is_taken_for_a_response(t5: Any) -> None:
    for prompt in PROMPTS:
        ids = ids_of(t5, prompt) + ids_of(t5, "I do not know")
        assert response_of(t5.decode(ids, skip_special_tokens=False), prompt) is None
    cut = PROMPTS[0][20:]  # as OpenRLHF cuts a prompt that is too long
    assert response_of(f"{cut} \\boxed{{5}}", PROMPTS[0]) is None


def test_a_run_in_tandem_knows_the_tokens_of_a_response_by_any_tokenizer(
    t5: Any, grader: Grader, generated: Callable[[Generated], None]
) -> None:
    for prompt in PROMPTS:
        for response, outcome in RESPONSES.items():
            asked, written = ids_of(t5, prompt), [*ids_of(t5, response), t5.eos_token_id]
            generated(Generated(t5, asked, written))
            query = t5.decode(asked + written, skip_special_tokens=False)
            found = response_of(query, prompt)
            assert found == t5.decode(written, skip_special_tokens=True)
            if "$" not in response and "\\" not in response:  # which this tokenizer loses
                assert grader.grade(found, "391").outcome == outcome
            assert response_of(f"{query} and more", "another text") is None


@pytest.mark.timeout(60)
def test_nothing_hangs_on_long_ends() -> None:
    for response in (" " * 500_000 + "5", "<|" * 200_000, "\n" * 500_000 + "<|"):
        assert response_of("Add." + response, "Add.") == response


def reward() -> Any:
    """The reward's file, as OpenRLHF loads it once in each engine's process."""
    spec = spec_from_file_location("reward_func", reward_file("openrlhf"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reward_func


def test_the_reward_grades_the_response_alone() -> None:
    torch = pytest.importorskip("torch")
    prompt = r"An example: \boxed{5}. Now add $2+3$."
    rows = [
        (f"{prompt} It is \\boxed{{5}}.", prompt, "5", "correct"),
        (f"{prompt} I do not know.", prompt, "5", "no_answer"),
        (f"{prompt}\\boxed{{6}}", prompt, ["5", "6"], "correct"),
        (f"{prompt} \\boxed{{5}}", prompt, '["5", "6"]', "incorrect"),
        (f"{prompt} \\boxed{{2+3}}", prompt, "5", "copied"),
        (f"{prompt} \\boxed 5<|im_end|>", prompt, "... \n#### 5", "correct"),
        ("x", prompt, "5", "error"),
    ]
    queries, prompts, labels, outcomes = map(list, zip(*rows, strict=True))
    result = reward()(queries, prompts, labels)
    assert result["rewards"].tolist() == [float(one == "correct") for one in outcomes]
    assert result["scores"] is result["rewards"]
    for name in OUTCOMES:
        flags = result["extra_logs"][f"outcome_{name}"]
        assert flags.tolist() == [float(one == name) for one in outcomes]
    assert all(isinstance(value, torch.Tensor) for value in result["extra_logs"].values())


def test_responses_that_are_not_found_raise_and_a_rare_one_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("torch")
    of_run, lost, found = reward(), ("x", "A long prompt.", "5"), ("Add. \\boxed{5}", "Add.", "5")
    for _ in range(3):
        with refused("openrlhf-response-not-found", prompt="A long prompt."):
            of_run(*([value] for value in lost))
    of_run(*(list(value) for value in zip(*[found] * 8, strict=True)))
    caplog.clear()
    for _ in range(3):
        assert of_run(*([value] for value in lost))["extra_logs"]["outcome_error"].tolist() == [1.0]
    of_run(*([value] for value in found))
