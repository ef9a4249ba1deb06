"""Short runs of the real trainers, where they are installed."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from results import Results

from support.gpu.cases import Cases
from support.gpu.engines import checkpoints, tokenizer

TIMEOUT = 215
STEPS = 2


def check_verl(results: Results, toy: bool) -> None:
    """Two steps of GRPO with FSDP2: rollouts are their replays, and near what the actor says."""
    cases = Cases(results, "verl, FSDP2, GRPO")
    if cases.has("trained"):
        return
    if not _installed("verl"):
        cases.add("trained", None, "verl is not installed here")
        return
    with cases.failing("trained"):
        from support.verl_run import TANDEM, VerlBench

        pair = checkpoints()
        folder = Path(tempfile.mkdtemp(prefix="tandem-verl-"))
        device = "cpu" if toy else "cuda"
        bench = VerlBench.make(folder, pair["senior"], device=device)
        run = bench.run(
            *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6", f"{TANDEM}.seed=7"),
            f"{TANDEM}.junior={pair['junior']}",
            timeout=TIMEOUT,
        )
        if run.exit_code:
            raise RuntimeError(run.log[-2000:])
        rows = [row for step in range(1, STEPS + 1) for row in run.rollouts(step)]
        rule = _rule(pair["senior"], 6)
        wrong = sum(
            rule.replay(row["response_ids"], row["tandem_seed"]).tolist() != row["authorship"]
            for row in rows
        )
        away = max(step["training/rollout_probs_diff_mean"] for step in run.steps)
        shares = [step["tandem/senior_share"] for step in run.steps]
        cases.add(
            "trained",
            len(run.steps) == STEPS and bool(rows) and not wrong and away <= _NEAR[device]
            and all(0 < share < 1 for share in shares),
            f"{len(run.steps)} steps, {len(rows)} rows, {wrong} of them other than their replay; "
            f"engine and actor differ by {away:.2g} in a token's probability on average; the "
            f"senior wrote {' and '.join(f'{share:.2f}' for share in shares)}",
        )  # fmt: skip


def check_openrlhf(results: Results, toy: bool) -> None:
    """Two steps with all models on one device: the masks that reached the loss are the replay's."""
    cases = Cases(results, "OpenRLHF, ZeRO 2, GRPO")
    if cases.has("trained"):
        return
    if not _installed("openrlhf"):
        cases.add("trained", None, "OpenRLHF is not installed here")
        return
    with cases.failing("trained"):
        from support.openrlhf_setup import OpenRLHFSetup, batches, losses, replayed

        captured = Path(tempfile.mkdtemp(prefix="tandem-openrlhf-"))
        device = "cpu" if toy else "cuda"
        setup = OpenRLHFSetup.make(captured / "models", tokenizer(), device=device)
        run = setup.bench.run(
            *setup.flags,
            *(["--train.colocate_all"] if device == "cuda" else []),
            *("--train.micro_batch_size", "1"),
            hooks="capture_openrlhf",
            environment={"TANDEM_TEST_CAPTURE": str(captured)},
            timeout=TIMEOUT,
        )
        if run.exit_code:
            raise RuntimeError(run.log[-2000:])
        rows = [row for batch in batches(captured) for row in batch]
        expected = sorted(replayed(row, setup.rule) for row in rows)
        masks = sorted(loss["mask"][0].int().tolist() for loss in losses(captured))
        away = max(abs(step["vllm_kl"]) for step in run.steps)
        cases.add(
            "trained",
            len(run.steps) == STEPS and bool(rows) and masks == expected and away <= 1e-3,
            f"{len(run.steps)} steps, {len(rows)} rows; the masks that reached the loss are "
            f"{'' if masks == expected else 'not '}their replays; vllm_kl at most {away:.2g}",
            steps=json.loads(json.dumps(run.steps, default=float)),
        )


_NEAR = {"cpu": 1e-6, "cuda": 1e-2}
"""How far engine and actor may be apart: on a GPU the engine computes in bfloat16."""


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _rule(checkpoint: Path, cap: int) -> Any:
    from tandem_plugin import TandemConfig, TandemRules, Vocabulary

    config = TandemConfig.from_mapping({"schedule": "word", "cap": cap})
    return TandemRules(config, Vocabulary.from_path(checkpoint)).default
