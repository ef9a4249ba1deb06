"""The engine that rollouts and evaluations come from: seeded responses to many prompts at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem_plugin.rollouts.engine import start_engine

pytestmark = pytest.mark.timeout(300)


def test_seeded_prompts_that_do_not_fit_into_a_step_together_are_answered(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight prompts of forty tokens, a hundred tokens a step: vLLM would read some in parts."""
    from vllm import SamplingParams

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "WARNING")
    settings = {
        "dtype": "float32",
        "enforce_eager": True,
        "gpu_memory_utilization": 0.1,
        "max_model_len": 64,
        "max_num_batched_tokens": 100,
        "max_num_seqs": 8,
    }
    engine = start_engine(str(checkpoints["senior"]), settings, None)
    prompts = [{"prompt_token_ids": list(range(i, i + 40))} for i in range(8)]
    asked = [SamplingParams(seed=i, max_tokens=8, ignore_eos=True) for i in range(8)]
    together = engine.generate(prompts, asked, use_tqdm=False)
    alone = [
        engine.generate([p], [a], use_tqdm=False)[0] for p, a in zip(prompts, asked, strict=True)
    ]
    written = [one.outputs[0].token_ids for one in together]
    assert [len(ids) for ids in written] == [8] * 8
    assert written == [one.outputs[0].token_ids for one in alone]
