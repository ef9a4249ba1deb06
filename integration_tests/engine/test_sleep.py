"""Sleeps of level 2, which discard every weight: the junior comes back bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import gpu_worker, sleeping, worker
from support.device import on_gpu
from support.engine import tandem_engine
from support.parity import reference_of
from support.reference import Reference, alternating
from support.requests import PROMPTS, greedy
from support.speculation import ENGINES

pytestmark = pytest.mark.long

LENGTH = 6
PROMPT = "import numpy\n"
LEAST_GIB = 0.2
"""What a sleep on a GPU must give back at least: the KV cache alone has more."""


@pytest.mark.parametrize("kind", ENGINES, ids="-".join)
def test_rounds_of_sleep_and_sync_keep_every_bit_of_the_junior(
    kind: tuple[str, str], checkpoints: dict[str, Path], tokenizer: Any
) -> None:
    runner, mode = kind
    tandem = {
        "schedule": "step", "boundaries": "every", "junior": checkpoints["other"], "mode": mode,
    }  # fmt: skip
    prompt = tokenizer(PROMPT).input_ids
    with tandem_engine(runner, checkpoints["senior"], tandem) as engine:
        call = engine.collective_rpc
        call(sleeping.prepare)
        (before,) = call(sleeping.junior_bits)
        for senior, tags in (("junior", ["weights"]), ("senior", None), ("junior", ["weights"])):
            call(sleeping.sleep)
            assert call(sleeping.junior_bits) != [before], "nothing was discarded"
            if tags is not None:
                assert call(sleeping.wake_up, args=(["kv_cache"],)) == [["weights"]]
                assert call(sleeping.junior_bits) != [before], "woken too early"
            assert call(sleeping.wake_up, args=(tags,)) == [[]]
            assert call(sleeping.junior_bits) == [before]
            call(sleeping.pack_the_junior_anew)
            call(worker.sync, args=(str(checkpoints[senior]), 1_000))
            engine.reset_prefix_cache()
            expected = Reference(checkpoints[senior], checkpoints["other"]).greedy(
                prompt, LENGTH, alternating(True)
            )
            assert greedy(engine, [prompt], [{"seed": 1}], LENGTH) == [expected]


@pytest.mark.parametrize(
    "kind", [on_gpu("v2", "lockstep"), on_gpu("v2", "speculative", gib=5), on_gpu("v1", "lockstep")]
)
def test_sleeps_of_both_levels_give_memory_back_and_keep_every_bit_of_the_junior(
    kind: tuple[str, str], checkpoints: dict[str, Path], tokenizer: Any
) -> None:
    """Weights are woken, then synced, then the cache is woken: as trainers do it."""
    runner, mode = kind
    tandem = {
        "schedule": "step", "boundaries": "every", "junior": checkpoints["other"], "mode": mode,
    }  # fmt: skip
    prompts = [tokenizer(prompt).input_ids for prompt in PROMPTS]
    options = {"dtype": "bfloat16", "enable_sleep_mode": True}
    with tandem_engine(runner, checkpoints["senior"], tandem, **options) as engine:
        (junior,) = engine.collective_rpc(worker.junior_digest)
        for level, senior in ((1, "senior"), (2, "junior"), (2, "senior")):
            engine.sleep(level=level)
            assert engine.collective_rpc(gpu_worker.asleep_gib)[0] >= LEAST_GIB
            engine.wake_up(["weights"])
            if level == 2:
                engine.collective_rpc(worker.sync, args=(str(checkpoints[senior]), 1_000))
            engine.wake_up(["kv_cache"])
            assert engine.collective_rpc(gpu_worker.asleep_gib) == [0]
            engine.reset_prefix_cache()
            assert engine.collective_rpc(worker.junior_digest) == [junior]
            responses = greedy(engine, prompts, [{"seed": 1}] * len(prompts), 24)
            reference_of(checkpoints[senior], checkpoints["other"], "bfloat16").check(
                (prompt, response, lambda: alternating(True))
                for prompt, response in zip(prompts, responses, strict=True)
            )
