"""The engine that rollouts and evaluations come from: seeded responses to many prompts at once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tandem_plugin.errors import EngineError
from tandem_plugin.lab.rollouts.engine import start_engine

pytestmark = pytest.mark.timeout(300)


def test_seeded_prompts_that_do_not_fit_into_a_step_together_are_answered(
    checkpoints: dict[str, Path],
) -> None:
    """Eight prompts of forty tokens, a hundred tokens a step: vLLM would read some in parts."""
    # In a process of its own: the engine's settings are vLLM's environment, which vLLM keeps.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        together, alone = process.submit(answered, checkpoints["senior"]).result()
    assert [len(ids) for ids in together] == [8] * 8
    assert together == alone


def test_argument_that_vllm_lacks_is_refused_before_anything_is_read() -> None:
    spawn = multiprocessing.get_context("spawn")
    wrong = {"enforce_eager": True, "max_modellen": 64}
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        started = process.submit(start_engine, "there/is-no-model", wrong, None, 16)
        with pytest.raises(EngineError, match="Did you mean 'max_model_len'") as raised:
            started.result()
    assert raised.value.code == "vllm-argument-unknown"


def answered(model: Path) -> tuple[list[list[int]], list[list[int]]]:
    """The responses to all prompts at once, and to one after the other."""
    from vllm import SamplingParams

    settings = {
        "dtype": "float32",
        "enforce_eager": True,
        "gpu_memory_utilization": 0.1,
        "max_model_len": 64,
        "max_num_batched_tokens": 100,
        "max_num_seqs": 8,
    }
    engine = start_engine(str(model), settings, None, 16)
    prompts = [{"prompt_token_ids": list(range(i, i + 40))} for i in range(8)]
    asked = [SamplingParams(seed=i, max_tokens=8, ignore_eos=True) for i in range(8)]
    together = engine.generate(prompts, asked, use_tqdm=False)
    alone = [
        engine.generate([prompt], [params], use_tqdm=False)[0]
        for prompt, params in zip(prompts, asked, strict=True)
    ]
    return written(together), written(alone)


def written(outputs: list[Any]) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in outputs]
