"""OpenRLHF's trainer on a model with recurrent states, and on a unified checkpoint, for text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

from support.families import UNIFIED, make_family, make_unified
from support.hybrids import with_states
from support.openrlhf_run import OpenRLHFBench
from support.openrlhf_setup import STEPS

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
NOISE = 3e-4
"""How far ``vllm_kl`` may be from zero: two implementations of such layers in bfloat16."""


@pytest.mark.parametrize("kind", ["qwen3.5", "gemma3 unified"])
def test_engine_and_actor_agree_on_every_token_of_two_real_steps(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    """The junior is the senior's first checkpoint; each update reaches the senior alone.

    OpenRLHF trains a unified checkpoint with its vision part, and sends the names of that class.
    """
    name, _, unified = kind.partition(" ")
    family = UNIFIED[name][0] if unified else name
    model = make_family(tmp_path / "text", family, seed=0, tokenizer=tokenizer)
    if unified:
        model = make_unified(tmp_path / "unified", model, name)
    with with_states():
        run = OpenRLHFBench.make(tmp_path / "bench", model).run(
            *("--tandem.schedule", "word", "--tandem.cap", "6", "--tandem.seed=7"),
            *("--tandem.measure_every", "1", "--train.micro_batch_size", "1"),
            hooks="exact_states",
        )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    assert max(abs(step["vllm_kl"]) for step in run.steps) <= NOISE
    overlaps = [step["tandem/overlap"] for step in run.steps]
    assert overlaps[0] == pytest.approx(1, abs=1e-3)
    assert overlaps[1] < overlaps[0] - 1e-5  # the trained senior is no longer its own junior
