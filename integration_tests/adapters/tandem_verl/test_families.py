"""verl's trainer on models with recurrent states: Qwen3.5, as text and as a unified checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.families import make_family, make_unified
from support.hybrids import with_states
from support.verl_run import ENGINE, TANDEM, VerlBench

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
STEPS = 2


@pytest.mark.parametrize("kind", ["text", "unified"])
def test_rollout_and_actor_agree_on_every_token_of_two_real_steps(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    """The junior is the senior's first checkpoint; each step's weights reach the engine."""
    model = make_family(
        tmp_path / "text", "qwen3.5", seed=0, tokenizer=tokenizer, tie_word_embeddings=True
    )
    if kind == "unified":
        model = make_unified(tmp_path / "unified", model)
    with with_states() as options:
        run = VerlBench.make(tmp_path / "bench", model).run(
            f"{TANDEM}.schedule=word",
            f"{TANDEM}.cap=6",
            f"{TANDEM}.measure_every=1",
            *(f"+{ENGINE}.{name}={value}" for name, value in options.items()),
        )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    assert max(step["training/rollout_probs_diff_max"] for step in run.steps) <= 1e-5
    assert min(step["actor/grad_norm"] for step in run.steps) > 0
    # The trained senior is no longer its own junior.
    overlaps = [step["tandem/overlap"] for step in run.steps]
    assert overlaps[0] == pytest.approx(1)
    assert overlaps[1] < 1 - 1e-6
