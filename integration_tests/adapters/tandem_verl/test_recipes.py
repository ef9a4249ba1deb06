"""``examples/verl/train.sh``: the paper's table, and runs that start with only sizes overridden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.grpo import GRPOReference
from support.reading import Readers
from support.recipes import EVALUATION, follow
from support.verl_run import VerlBench

pytestmark = pytest.mark.long

SCRIPT = str(Path(__file__).parents[3] / "examples" / "verl" / "train.sh")
BENCH = VerlBench
TANDEM = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"


def composed(method: str, gpus: int, folder: Path) -> Any:
    """verl's whole configuration, as the script would start it with in a folder."""
    from omegaconf import OmegaConf

    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [SCRIPT, method, "--cfg", "job"],
        cwd=folder,
        env=os.environ | {"GPUS": str(gpus), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return OmegaConf.create(done.stdout[done.stdout.index("actor_rollout_ref:") :])


@pytest.mark.parametrize(
    ("method", "gpus"),
    [("tandem", 2), ("grpo", 1), ("kl-reg", 2), ("grpo-g16", 2), ("grpo-half", 2)],
)
def test_recipe_has_the_papers_hyperparameters(method: str, gpus: int, tmp_path: Path) -> None:
    config = composed(method, gpus, tmp_path)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (actor.optim.lr, actor.clip_ratio, actor.entropy_coeff) == (1e-6, 0.2, 0)
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size) == (16, 8)
    assert rollout.n == (16 if method == "grpo-g16" else 8)
    assert (config.data.max_response_length, rollout.temperature) == (3000, 0.6)
    validation = rollout.val_kwargs
    assert (validation.n, validation.temperature, validation.top_p) == (4, 0.6, 0.95)
    assert config.algorithm.adv_estimator == "grpo"
    assert config.algorithm.norm_adv_by_std_in_grpo is True
    assert config.algorithm.use_kl_in_reward is False
    assert actor.use_kl_loss is (method == "kl-reg")
    assert config.trainer.n_gpus_per_node == gpus
    assert actor.fsdp_config.optimizer_offload is (gpus == 1)
    trainer = config.trainer
    assert (trainer.total_training_steps, trainer.logger) == (250, ["console"])
    assert trainer.max_actor_ckpt_to_keep == 1
    assert "hf_model" in actor.checkpoint.save_contents
    assert trainer.rollout_data_dir == f"runs/verl/{method}/rollouts"
    tandem = selected(config, TANDEM)
    word = {"schedule": "word", "p": 0.5, "cap": 32}
    wanted = {
        "tandem": {**word, "validation": "team"},
        "grpo-half": {**word, "schedule": "solo-word"},
    }
    assert tandem == wanted.get(method)


def test_coefficient_of_kl_reg_is_swept_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert composed("kl-reg", 2, tmp_path).actor_rollout_ref.actor.kl_loss_coef == 0.001
    monkeypatch.setenv("KL", "0.2")
    assert composed("kl-reg", 2, tmp_path).actor_rollout_ref.actor.kl_loss_coef == 0.2


def selected(config: Any, key: str) -> Any:
    from omegaconf import OmegaConf

    found = OmegaConf.select(config, key)
    return None if found is None else OmegaConf.to_container(found)


OWN = (
    "actor_rollout_ref.model.use_remove_padding",
    "+actor_rollout_ref.model.override_config",
    "trainer.total_training_steps",
    "trainer.test_freq",
    "trainer.save_freq",
    "trainer.resume_mode",
    "trainer.logger",
    "trainer.default_local_dir",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
)
"""What the script says itself, where flash-attn is not installed, beside its hyperparameters."""


@pytest.mark.parametrize("method", ["tandem", "kl-reg"])
def test_recipe_trains_to_its_end_and_its_next_commands_run(bench: VerlBench, method: str) -> None:
    environment = {
        "GPUS": "1",
        "STEPS": "2",
        "MODEL": str(bench.model),
        "VALIDATION": str(bench.folder / "validation.parquet"),
        "BENCHMARKS": f"heldout={bench.folder / 'validation.parquet'}",
        "EVAL": EVALUATION,
    }
    trained = bench.run(
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        recipe=[SCRIPT, method],
        keeps=OWN,
        environment=environment,
        timeout=1200,
        name=method,
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    out = trained.folder / "runs" / "verl" / method
    assert (out / "done").read_text() == "2\n"
    assert (out / "train.log").read_text() in trained.log
    steps = [line for line in trained.log.splitlines() if "step:2 - " in line]
    assert len(steps) == 1
    assert ("tandem/senior_share:" in steps[0]) is (method == "tandem")
    assert ("actor/kl_loss:" in steps[0]) is (method == "kl-reg")
    assert sorted(path.name for path in (out / "rollouts").iterdir()) == ["1.jsonl", "2.jsonl"]
    assert [path.name for path in (out / "seniors").iterdir()] == ["step_2"]
    assert json.loads((out / "senior" / "config.json").read_text())["model_type"] == "qwen3"
    (checkpoint,) = (out / "checkpoints").glob("global_step_*/actor")
    assert checkpoint.parent.name == "global_step_2"
    follow(trained, out, method)


def one_step(bench: VerlBench, method: str, captured: Path, *overrides: str) -> list[Any]:
    """One step of a method, with the bench's reward; what it dumped of each response."""
    trained = bench.run(
        f"reward.custom_reward_function.path={bench.folder}/reward.py",
        *overrides,
        recipe=[SCRIPT, method],
        keeps=(*OWN, "actor_rollout_ref.rollout.n="),
        hook="capture_update",
        environment={
            "GPUS": "1",
            "STEPS": "1",
            "MODEL": str(bench.model),
            "TANDEM_TEST_CAPTURE": str(captured),
        },
        name=method,
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    lines = (trained.folder / "runs" / "verl" / method / "rollouts" / "1.jsonl").read_text()
    return [json.loads(line) for line in lines.splitlines()]


def updates(captured: Path) -> list[tuple[list[int], float]]:
    """The mask of each response and its advantage, as the trainer's loss had them."""
    found = []
    for file in captured.glob("loss-*.pt"):
        loss = torch.load(file)
        masks = loss["response_mask"].int()
        for mask, advantages in zip(masks, loss["advantages"], strict=True):
            (advantage,) = set(advantages[mask.bool()].tolist()) or {float("nan")}
            found.append((mask.tolist(), advantage))
    return found


def test_grpo_half_trains_what_word_draws_of_the_tokens_that_the_senior_wrote(
    bench: VerlBench, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """Beside another junior, whose tokens would be 2.4 nats less likely by the senior."""
    junior = checkpoints["junior"]
    rows = one_step(bench, "grpo-half", tmp_path, f"+{TANDEM}.junior={junior}")
    assert len(rows) == 4 * 8
    masks = Counter(tuple(padded(mask, 32)) for mask, _ in updates(tmp_path))
    assert masks == Counter(tuple(padded(row["authorship"], 32)) for row in rows)
    bits = np.concatenate([row["authorship"] for row in rows])
    assert 0.3 < bits.mean() < 0.7
    prompt_of = GRPOReference(bench.model, rows).prompt
    readers = Readers.of(bench.model, junior)
    scores = np.concatenate([readers.scores(prompt_of(row), row["response_ids"]) for row in rows])
    by_senior, by_junior = scores[bits == 0, 0], scores[bits == 0, 1]
    assert (by_senior - by_junior).mean() > 1.5


def padded(bits: list[int], length: int) -> list[int]:
    return bits + [0] * (length - len(bits))


def test_grpo_g16_has_groups_of_sixteen(bench: VerlBench, tmp_path: Path) -> None:
    rows = one_step(bench, "grpo-g16", tmp_path)
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        scores[row["input"]].append(row["score"])
    assert [len(group) for group in scores.values()] == [16] * 4
    expected = []
    for group in map(np.array, scores.values()):
        expected += ((group - group.mean()) / (group.std(ddof=1) + 1e-6)).tolist()
    found = updates(tmp_path)
    assert sorted(one for _, one in found) == pytest.approx(sorted(expected), abs=1e-5)
    assert all(mask[0] == 1 for mask, _ in found)  # every token is trained
    assert "authorship" not in rows[0]


def test_stopped_recipe_goes_on_with_its_last_checkpoint(bench: VerlBench, tmp_path: Path) -> None:
    logs = [
        bench.run(
            *("trainer.save_freq=1", "trainer.test_freq=1"),
            recipe=[SCRIPT, "grpo"],
            keeps=OWN,
            environment={"GPUS": "1", "STEPS": steps, "OUT": str(tmp_path / "run")},
            name="grpo",
        ).log
        for steps in ("1", "2")
    ]
    assert ["step:1 - " in log for log in logs] == [True, False]
    assert ["step:2 - " in log for log in logs] == [False, True], logs[1][-3000:]
    # Nothing was solved, so that the first is still the best.
    assert {path.name for path in (tmp_path / "run" / "seniors").iterdir()} == {"step_1", "step_2"}
    assert (tmp_path / "run" / "senior").resolve().name == "step_1"
