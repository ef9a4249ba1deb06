"""TRL's trainer on a model with recurrent states, and on a unified checkpoint, for text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from safetensors.torch import load_file
from support.families import UNIFIED, make_family, make_unified
from support.hybrids import with_states
from support.trl_run import TRLBench

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
STEPS = 2


@pytest.mark.parametrize("kind", ["qwen3.5", "gemma3 unified"])
def test_engine_and_trainer_agree_on_every_token_of_two_real_steps(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    """The junior is the senior's first checkpoint; each update reaches the senior alone.

    TRL trains the class of the checkpoint, here with its vision part, and sends its names.
    """
    name, _, unified = kind.partition(" ")
    family = UNIFIED[name][0] if unified else name
    model = make_family(tmp_path / "text", family, seed=0, tokenizer=tokenizer)
    if unified:
        model = make_unified(tmp_path / "unified", model, name)
    tandem = {"schedule": "word", "cap": 6, "seed": 7, "measure_every": 1}
    with with_states() as engine:
        run = TRLBench.make(tmp_path / "bench", model).run(
            tandem,
            engine=engine,
            max_steps=STEPS,
            learning_rate=1e-3,
            gradient_accumulation_steps=1,
            steps_per_generation=1,
        )
    assert run.exit_code == 0, run.log[-3000:]
    steps = run.steps
    assert len(steps) == STEPS
    assert max(step["sampling/sampling_logp_difference/max"] for step in steps) <= 1e-4
    assert min(step["grad_norm"] for step in steps) > 0
    overlaps = [step["tandem/overlap"] for step in steps]
    assert overlaps[0] == pytest.approx(1)
    assert overlaps[1] < 1 - 1e-6  # the trained senior is no longer its own junior
    saved = run.folder / "senior"
    (architecture,) = json.loads((saved / "config.json").read_text())["architectures"]
    assert architecture.endswith("ForConditionalGeneration" if unified else "ForCausalLM")
    names = load_file(saved / "model.safetensors")
    assert any("vision" in name for name in names) is bool(unified)
