"""A recipe's run by verl: the paper's table, and runs that start with only sizes overridden."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_runs import made_run
from support import recipes
from support.grpo import GRPOReference
from support.reading import Readers
from support.recipes import (
    assert_bad_reward_names_its_row,
    assert_reads_its_command,
    assert_replays,
    assert_trains_by_rewards_of_ones_own,
    follow,
    train,
)
from support.verl_run import VerlBench

from tandem_plugin.lab.recipes import verl

pytestmark = pytest.mark.long

BENCH = VerlBench
TANDEM = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem"


def composed(folder: Path, **settings: Any) -> Any:
    """verl's whole configuration, as a recipe's run would start it."""
    from omegaconf import OmegaConf

    command = verl.parse(made_run("verl", folder, **settings))
    assert command is not None
    done = subprocess.run(
        command.arguments,
        env=command.environment(os.environ),
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
    config = composed(tmp_path, method=method, gpus=gpus)
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
    assert trainer.rollout_data_dir == f"{tmp_path}/runs/verl/{method}/rollouts"
    tandem = selected(config, TANDEM)
    word = {"schedule": "word", "p": 0.5, "cap": 32}
    wanted = {
        "tandem": {**word, "validation": "team"},
        "grpo-half": {**word, "schedule": "solo-word"},
    }
    assert tandem == wanted.get(method)


def test_coefficient_of_kl_reg_is_the_recipes(tmp_path: Path) -> None:
    config = composed(tmp_path, method="kl-reg", kl=0.2)
    assert config.actor_rollout_ref.actor.kl_loss_coef == 0.2


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
def test_recipe_trains_to_its_end_and_its_next_commands_run(
    method: str, tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    model = checkpoints["senior"]
    trained = train(tmp_path, "verl", model, method=method)
    assert trained.exit_code == 0, trained.log[-3000:]
    out = trained.folder / "runs" / "verl" / method
    assert (out / "done").read_text() == "2\n"
    assert (out / "train.log").read_text() in trained.log
    steps = [line for line in trained.log.splitlines() if "step:2 - " in line]
    assert len(steps) == 1
    assert ("tandem/senior_share:" in steps[0]) is (method == "tandem")
    assert ("actor/kl_loss:" in steps[0]) is (method == "kl-reg")
    assert [path.name for path in (out / "seniors").iterdir()] == ["step_2"]
    assert json.loads((out / "senior" / "config.json").read_text())["model_type"] == "qwen3"
    (checkpoint,) = (out / "checkpoints").glob("global_step_*/actor")
    assert checkpoint.parent.name == "global_step_2"
    if method == "tandem":
        assert_replays(out, model)
    follow(trained, out, method)


def test_run_by_a_reward_of_ones_own_grades_rows_without_a_gold(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(response, problem):\n"
        "    assert problem['gold'] is None and problem['prompt']\n"
        "    return len(response) / 100\n"
    )
    rows = [{"problem": f"Write of {i}."} for i in range(24)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"problems": tmp_path / "texts.jsonl", "reward": f"{tmp_path / 'mine.py'}:score"}
    trained = train(tmp_path, "verl", checkpoints["senior"], **settings)
    assert trained.exit_code == 0, trained.log[-3000:]
    lines = (trained.folder / "runs/verl/tandem/rollouts/1.jsonl").read_text().splitlines()
    assert len({json.loads(line)["score"] for line in lines}) > 4


def one_step(bench: VerlBench, method: str, captured: Path, *overrides: str) -> list[Any]:
    """One step of a method, with the bench's reward; what it dumped of each response."""
    trained = bench.run(
        f"reward.custom_reward_function.path={bench.folder}/reward.py",
        *overrides,
        recipe=recipes.command("verl", bench.model, captured, method=method, steps=1),
        keeps=(*OWN, "actor_rollout_ref.rollout.n="),
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name=method,
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    lines = (captured / "runs" / "verl" / method / "rollouts" / "1.jsonl").read_text()
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


def test_stopped_recipe_goes_on_with_its_last_checkpoint(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    settings = {"method": "grpo", "save_every": 1, "validate_every": 1, "out": tmp_path / "run"}
    logs = [
        train(tmp_path, "verl", checkpoints["senior"], steps=steps, **settings).log
        for steps in (1, 2)
    ]
    assert ["step:1 - " in log for log in logs] == [True, False]
    assert ["step:2 - " in log for log in logs] == [False, True], logs[1][-3000:]
    # Nothing was solved, so that the first is still the best.
    assert {path.name for path in (tmp_path / "run" / "seniors").iterdir()} == {"step_1", "step_2"}
    assert (tmp_path / "run" / "senior").resolve().name == "step_1"


def test_trainer_reads_its_command(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_reads_its_command(tmp_path, "verl", checkpoints["senior"], ["trainer.no_such_thing=1"])


def test_printed_command_trains_by_rewards_of_ones_own(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    assert_trains_by_rewards_of_ones_own(tmp_path, "verl", checkpoints["senior"])


def test_bad_reward_names_its_row(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_bad_reward_names_its_row(tmp_path, "verl", checkpoints["senior"])
