"""Sleeps of level 2, which discard every weight: the junior comes back bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import sleeping, worker
from support.engine import tandem_engine
from support.reference import Reference, alternating
from support.requests import greedy
from support.speculation import ENGINES

LENGTH = 6
PROMPT = "import numpy\n"


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
