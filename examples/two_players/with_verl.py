"""The game trained with verl, on a CPU as the demo is."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from game import opening
from plan import Lengths, OnStep, Plan, Trained

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo"))

from train import TANDEM, Paths, Training, train

HERE = Path(__file__).resolve().parent
LOOP = "two_players"
LOOPS = f"- name: {LOOP}\n  _target_: verl_loop.TwoPlayers\n"
"""The file that verl's ``agent_loop_config_path`` names."""


def train_with_verl(
    start: Path, out: Path, plan: Plan, lengths: Lengths, on_step: OnStep
) -> Trained:
    """Trains ``start`` against its frozen self.

    Raises:
        TrainingError: verl stopped before the last step.
    """
    paths = Paths(out)
    data, loops = out / "starts.parquet", out / "loops.yaml"
    out.mkdir(parents=True, exist_ok=True)
    loops.write_text(LOOPS, encoding="utf-8")
    pd.DataFrame(
        {
            "data_source": LOOP,
            "prompt": opening(stones),
            "reward_model": {"style": "rule", "ground_truth": str(stones)},
            "extra_info": {"index": place},
        }
        for place, stones in enumerate(plan.starts())
    ).to_parquet(data)
    tandem = TANDEM.partition(".schedule=")[0]
    agent = "actor_rollout_ref.rollout.agent"
    overrides = [
        # Who plays: the senior's turns follow the run, its opponent's calls ask for the junior.
        f"{tandem}.schedule=solo",
        f"{tandem}.junior={start}",
        f"{tandem}.seed={plan.seed}",
        f"{agent}.agent_loop_config_path={loops}",
        f"{agent}.default_agent_loop={LOOP}",
        "data.shuffle=False",
    ]
    training = Training(
        steps=plan.steps,
        prompts=plan.prompts,
        group=plan.group,
        learning_rate=plan.learning_rate,
        warmup=plan.warmup,
        max_prompt_length=lengths.prompt,
        max_response_length=lengths.response,
        seed=plan.seed,
    )
    senior = train(start, data, data, paths, training, overrides, on_step, modules=[HERE])
    return Trained(senior, paths.training_rollouts)
