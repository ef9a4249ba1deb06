"""Sleeps of level 2, which discard every weight: the junior comes back from one copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import sleeping, worker
from support.drafting import has_drafting
from support.engine import RUNNERS, tandem_engine
from support.reference import Reference, alternating
from support.requests import greedy

LENGTH = 6
PROMPT = "import numpy\n"
ENGINES = [*((runner, "lockstep") for runner in RUNNERS)]
if has_drafting():
    ENGINES.append(("v2", "speculative"))


@pytest.mark.parametrize(("runner", "mode"), ENGINES)
def test_rounds_of_sleep_and_sync_keep_every_bit_of_the_junior(
    runner: str, mode: str, checkpoints: dict[str, Path], tokenizer: Any
) -> None:
    tandem = {
        "schedule": "step", "boundaries": "every", "junior": checkpoints["other"], "mode": mode,
    }  # fmt: skip
    prompt = tokenizer(PROMPT).input_ids
    with tandem_engine(runner, checkpoints["senior"], tandem) as engine:
        call = engine.collective_rpc
        call(sleeping.prepare)
        (before,) = call(sleeping.junior_bits)
        assert call(sleeping.buffers_of_the_junior)[0] > 0
        copies = set()
        for senior, tags in (("junior", ["weights"]), ("senior", None), ("junior", ["weights"])):
            (saved,) = call(sleeping.sleep)
            assert not [name for name in saved if "qkv_proj" in name]
            assert call(sleeping.junior_bits) != [before], "nothing was discarded"
            copies.add(tuple(call(sleeping.host_copies)[0]))
            if tags is not None:
                assert call(sleeping.wake_up, args=(["kv_cache"],)) == [["weights"]]
                assert call(sleeping.junior_bits) != [before], "woken too early"
            assert call(sleeping.wake_up, args=(tags,)) == [[]]
            assert call(sleeping.junior_bits) == [before]
            assert call(sleeping.buffers_of_the_junior)[0] > 0
            call(sleeping.pack_the_junior_anew)
            call(worker.sync, args=(str(checkpoints[senior]), 1_000))
            engine.reset_prefix_cache()
            expected = Reference(checkpoints[senior], checkpoints["other"]).greedy(
                prompt, LENGTH, alternating(True)
            )
            assert greedy(engine, [prompt], [{"seed": 1}], LENGTH) == [expected]
        assert len(copies) == 1, "the host copy was made anew"
        assert all(copies)
