"""Recipes started as users start them, and what they print at their end, typed as it stands."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from made_runs import made_run

from support.commands import ENGINE, TANDEM, run
from support.trainer_run import TrainerRun, run_trainer
from tandem_plugin.lab.recipes.run import trainer_of
from tandem_plugin.lab.recipes.settings import yaml_of

EVALUATION = ["--n", "2", "--team-n", "2", "--max-tokens", "24", "--frequent", "1", *ENGINE]
"""Sizes of the printed evaluation."""

SIZES = {"prompts": 4, "samples": 4, "max_prompt": 128, "max_response": 32, "heldout": 4}
"""Of a run of two steps on a CPU."""


MINE = """
def letters(response, problem):
    assert problem["prompt"]
    return response.count("e") / 10


def brief(responses, problems):
    return [-len(text) / 100 for text in responses]


def nothing(response, problem):
    return None
"""
"""Rewards of one's own: the first two are right."""

PASTED = 'tandem train "$0" --print > job.sh && exec bash job.sh'
"""A shell that executes what ``tandem train --print`` writes, as it stands."""


def train(
    folder: Path,
    trainer: str,
    model: Path,
    *arguments: str,
    timeout: float = 1200,
    script: str = 'exec tandem train "$0" "$@"',
    **settings: Any,
) -> TrainerRun:
    """Run ``tandem train`` on sums with a tiny model, in a new folder of ``folder``.

    settings: the recipe's over those of a small run. arguments: the command's own. script: of a
    shell that gets the recipe as ``$0`` and the arguments.
    """

    def started(out: Path, ray: Path) -> tuple[Sequence[str], dict[str, str]]:
        rows = [{"problem": f"What is {i} and {i}?", "answer": str(2 * i)} for i in range(24)]
        (out / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (out / "mine.py").write_text(MINE)
        recipe = {
            "trainer": trainer,
            "model": model,
            "problems": "sums.jsonl",
            "device": "cpu",
            "steps": 2,
            "benchmarks": {"sums": "sums.jsonl"},
            **SIZES,
            **settings,
        }
        lines = [f"{name}: {yaml_of(value)}\n" for name, value in recipe.items()]
        (out / "recipe.yaml").write_text("".join(lines))
        variables = {
            **os.environ,
            "RAY_TMPDIR": str(ray),
            "RAY_DEDUP_LOGS": "0",
            "RAY_worker_niceness": "0",  # else the engines tested beside it starve them
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        cd = f"cd {shlex.quote(str(out))} && {script}"
        return ["bash", "-c", cd, str(out / "recipe.yaml"), *arguments], variables

    return run_trainer(folder, f"{trainer}-recipe", started, None, timeout)


def assert_reads_its_command(
    folder: Path, trainer: str, model: Path, unknown: Sequence[str], **settings: Any
) -> None:
    """A dry run starts nothing, and says what the trainer does not know."""
    right = train(folder, trainer, model, "--dry-run", **settings)
    assert right.exit_code == 0, right.log[-3000:]
    assert f"{trainer} reads its command" in right.log
    assert not (right.folder / "runs").exists()
    wrong = train(folder, trainer, model, "--dry-run", "--", *unknown, **settings)
    assert wrong.exit_code == 1
    last = wrong.log.splitlines()[-1]
    assert last.endswith("[recipe-dry-run-failed]")
    assert "no_such_thing" in last


def assert_trains_by_rewards_of_ones_own(folder: Path, trainer: str, model: Path) -> None:
    """The printed command, pasted: each response has the weighted sum of two functions."""
    rewards = {"reward": ["mine.py:letters", "mine.py:brief"], "reward_weights": [1, 0.5]}
    trained = train(folder, trainer, model, script=PASTED, **rewards)
    assert trained.exit_code == 0, trained.log[-5000:]
    dumps = sorted((trained.folder / "runs" / trainer / "tandem" / "rollouts").glob("*.jsonl"))
    assert len(dumps) == 2
    rows = [json.loads(line) for dump in dumps for line in dump.read_text().splitlines()]
    for row in rows:
        text = row["output"].replace("<|im_end|>", "").replace("<|endoftext|>", "")
        expected = text.count("e") / 10 - len(text) / 200
        assert math.isclose(row["score"], expected, abs_tol=1e-5), row


def assert_bad_reward_names_its_row(folder: Path, trainer: str, model: Path) -> None:
    """The run ends, and its last line says which row got what."""
    trained = train(folder, trainer, model, reward="mine.py:nothing")
    assert trained.exit_code == 1, trained.log[-3000:]
    last = trained.log.rstrip().splitlines()[-1]
    assert "nothing returned None for the row" in last
    assert "What is " in last


def command(trainer: str, model: Path, data: Path, **settings: Any) -> list[str]:
    """The plain command of a recipe's run, for a bench that overrides the machine and the sizes."""
    run = made_run(trainer, data, **{"model": str(model), "gpus": 1, "steps": 2, **settings})
    return list(trainer_of(trainer).command(run).arguments)


def assert_replays(out: Path, model: Path, steps: int = 2) -> None:
    """Each step's responses are there, and their authors are those of a replay.

    TRL numbers a step by its first update.
    """
    assert len(list((out / "rollouts").glob("*.jsonl"))) == steps
    replay = [*TANDEM, "replay", str(out / "rollouts"), "--tokenizer", str(model)]
    assert json.loads(run([*replay, "--json"]).stdout)["ok"] is True


def follow(trained: TrainerRun, out: Path, method: str) -> None:
    """Type the commands that a run of ``method`` printed, in its folder; look for what they leave.

    out: the run's results.
    """
    printed = trained.log.rsplit("Next:\n", 1)[1]
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  tandem ")]
    names = [command.split()[1] for command in commands]
    assert names == [*(["view"] if method == "tandem" else []), "eval", "report"]
    commands[-2] += f" {shlex.join(EVALUATION)}"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run(["bash", "-c", f"cd {trained.folder} && export PATH={path} && {' && '.join(commands)}"])
    if method == "tandem":
        assert (out / "rollouts.html").stat().st_size > 10_000
    assert (out / "results" / method / "solo" / "summary.json").exists()
    assert (out / "report" / "index.html").exists()
