"""The adapter that docs/architecture.md shows, over a real engine: two steps and a weight sync."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support import worker
from support.records import recorded

from tandem_plugin import Vocabulary

sys.path.append(str(Path(__file__).parents[2] / "tests" / "conformance"))

from adapter_of_the_page import adapter_of_the_page
from toy_trainer import Client, Sample

pytestmark = pytest.mark.long
FEEDBACK = [11, 12, 13]
LONGEST = 24


class EngineClient:
    """What a trainer's client does: tokens in, tokens out, and whatever extra arguments it got."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm

    def generate(self, prompt_ids: Sequence[int], extra: dict[str, Any]) -> list[int]:
        from vllm import SamplingParams

        params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True, extra_args=extra)
        prompt = {"prompt_token_ids": list(prompt_ids)}
        (output,) = self._llm.generate(prompt, params, use_tqdm=False)
        return list(output.outputs[0].token_ids)


def two_turns(number: int) -> Any:
    """An agent loop: a call, feedback that no model wrote, a call on all of it."""

    def loop(client: Client) -> Sample:
        prompt = [5, 6, 7 + number // 2]
        first = client.generate(prompt, {})
        second = client.generate([*prompt, *first, *FEEDBACK], {})
        mask = [1] * len(first) + [0] * len(FEEDBACK) + [1] * len(second)
        reward = float(number % 2)  # so that every group has something to learn
        return Sample(number // 2, prompt, [*first, *FEEDBACK, *second], mask, reward)

    return loop


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def llm(checkpoints: dict[str, Path], record: Path) -> Any:
    from tandem_plugin.engine import TandemLLM

    return TandemLLM(
        str(checkpoints["senior"]),
        tandem={
            "cap": 4,
            "junior": str(checkpoints["other"]),
            "record": str(record),
            "require": True,
        },
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=4,
        gpu_memory_utilization=0.1,
        dtype="float32",
    )


def test_toy_trainer_learns_from_what_the_engine_says_the_senior_wrote(
    llm: Any, record: Path, checkpoints: dict[str, Path], tokenizer: Any, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    page = adapter_of_the_page()
    trained: list[Sample] = []

    class Watched(page.TandemTrainer):  # type: ignore[misc, name-defined]
        def update(self, samples: Sequence[Sample]) -> dict[str, float]:
            trained.extend(samples)
            return super().update(samples)

    model = AutoModelForCausalLM.from_pretrained(checkpoints["senior"], dtype=torch.float32)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    trainer = Watched({"cap": 4, "seed": 3}, vocabulary, EngineClient(llm), model, LONGEST)
    loops = [two_turns(number) for number in range(4)]
    metrics = trainer.step(loops)
    assert 0 < metrics["tandem/senior_share"] < 1

    model.save_pretrained(tmp_path)
    before = llm.collective_rpc(worker.senior_digest), llm.collective_rpc(worker.junior_digest)
    llm.collective_rpc(worker.sync, args=(str(tmp_path), 1))
    llm.reset_prefix_cache()
    assert llm.collective_rpc(worker.senior_digest) != before[0]
    assert llm.collective_rpc(worker.junior_digest) == before[1]
    trainer.step(loops)

    assert len(trained) == 8
    seeds = [seed for sample in trained for seed, *_ in sample.extra["tandem"]["segments"]]
    rows = recorded(record, seeds)
    assert len(set(seeds)) == len(seeds) == 16
    for sample in trained:
        expected = [0] * LONGEST
        for seed, start, stop in sample.extra["tandem"]["segments"]:
            written = rows[seed]["response_ids"][: stop - start]
            assert sample.response_ids[start:stop] == written
            expected[start:stop] = rows[seed]["authorship"][: stop - start]
        assert sample.mask == expected
