"""What TRL's engine is sent of prompts with images, and what it must have read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from refused import refused

from tandem_plugin.training.calls import Trajectory
from tandem_trl.engine import LLMInTandem, TandemPrompt, answered

PLACEHOLDER = 9


class LLM:
    """Expands the first placeholder of each prompt into as many as its image has, as vLLM does."""

    def __init__(self, tokens: int) -> None:
        config = SimpleNamespace(hf_config=SimpleNamespace(image_token_id=PLACEHOLDER))
        self.llm_engine = SimpleNamespace(
            vllm_config=SimpleNamespace(
                additional_config={"tandem": {"images": True}}, model_config=config
            )
        )
        self.tokens, self.sent = tokens, list[list[int]]()

    def generate(self, prompts: Any, **_: Any) -> list[Any]:
        outputs = []
        for prompt in prompts:
            ids = list(prompt["prompt_token_ids"])
            self.sent.append(list(ids))
            if "multi_modal_data" in prompt:
                first = ids.index(PLACEHOLDER)
                ids[first : first + 1] = [PLACEHOLDER] * self.tokens
            outputs.append(SimpleNamespace(prompt_token_ids=ids))
        return outputs


class Params:
    extra_args = None

    def clone(self) -> Params:
        return Params()


def prompt(*ids: int, shown: bool = True) -> dict[str, Any]:
    images = {"multi_modal_data": {"image": object()}} if shown else {}
    return {"prompt_token_ids": TandemPrompt(ids), **images}


def test_the_engine_reads_what_trl_will_train_with() -> None:
    llm = LLM(3)
    engine = LLMInTandem(llm)
    prompts = [prompt(1, 9, 9, 9, 2), prompt(9, 9, 4, shown=False)]
    (output, _) = engine.generate(prompts, Params())
    assert llm.sent == [[1, 9, 2], [9, 9, 4]]
    assert output.prompt_token_ids == [1, 9, 9, 9, 2]
    with refused("image-prompt-differs", sent=4, read=5):
        engine.generate([prompt(1, 9, 9, 2)], Params())


def test_pictures_are_checked_before_any_prompt_is_sent() -> None:
    sent = []

    def answer(images: bool) -> Any:
        rows = [Trajectory(None, lambda call: call, images=images) for _ in range(2)]
        prompts = [TandemPrompt([1], row) for row in rows]
        return answered(generate, {}, prompts, images=[None, ["a picture"]])

    def generate(prompts: Any, images: Any, **_: Any) -> Any:
        sent.append(images)
        return prompts, [[4], [5]]

    with refused("prompt-images-off"):
        answer(False)
    assert not sent
    answer(True)
    assert sent == [[None, ["a picture"]]]
