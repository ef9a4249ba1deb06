"""What the demos share: programs that they run, and what they say meanwhile."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from evaluation import TANDEM
from folder import FolderError
from rich.console import Console
from safetensors import SafetensorError
from train import RUN_MARK, Metrics, TrainingError, end_of_log

from tandem_plugin.errors import TandemError
from tandem_plugin.lab.data import Problem, ProblemSet, PromptTemplate, prepare
from tandem_plugin.lab.viewer.live import RolloutsPage
from tandem_plugin.progress import ShownProgress, TimeLeft, waiting

TANDEM_COMMAND = Path(sys.executable).with_name("tandem")
CONSOLE = Console(highlight=False)
TRAINING_REWARD = "critic/score/mean"
SENIOR_SHARE = "tandem/senior_share"
JUNIOR_CROSS_ENTROPY = "tandem/junior_cross_entropy"

Records = Sequence[tuple[int, Mapping[str, Any]]]
"""(step, metrics) in order."""

SMOOTHED = 3
"""Rewards are shown as means over so many steps: each step has other problems."""

MOST_OF_PAGE = 20_000_000
"""About how many bytes the page of rollouts has at most, as of `tandem view`."""


LEAST_FREE = 50_000_000
"""Bytes that any stage may need: with less, a failed one has had no room."""


def exit_status(demo: Callable[[], None], out: Path) -> int:
    """Runs the demo of a folder; says what ended it early, and whether the disk is full."""
    try:
        demo()
    except (TandemError, TrainingError, FolderError, OSError, SafetensorError) as error:
        CONSOLE.print("The demo stopped.", style="red")
        CONSOLE.print(str(error), markup=False, soft_wrap=True)
        if out.exists() and (free := shutil.disk_usage(out).free) < LEAST_FREE:
            CONSOLE.print(
                f"The disk of {out} has {free / 1e6:.1f} MB left. Free some space; the same "
                "command then resumes the demo.",
                markup=False,
                soft_wrap=True,
            )
        return 1
    except KeyboardInterrupt:
        CONSOLE.print("The demo was interrupted; nothing of it runs any more. The same command")
        CONSOLE.print("resumes it.")
        return 130
    return 0


def write_problems(
    problems: Sequence[Problem], folder: Path, template: PromptTemplate | None
) -> Path:
    """The file that verl reads, and ``tandem eval``; without a template they ask for a box."""
    named = ProblemSet("demo", tuple(problems))
    return prepare(named, "verl", folder, template=template).files["train"]


def open_page(out: Path, model: Path) -> RolloutsPage:
    """The page of a training's rollouts, written before there are any; says where it is.

    model: with the tokenizer.
    """
    page = RolloutsPage(out / "rollouts", out / "rollouts.html", str(model), MOST_OF_PAGE)
    page.update()
    CONSOLE.print(
        f"Open {page.page.as_uri()} in a browser: it shows every response of the training, by "
        "author, and loads itself again as they come.",
        soft_wrap=True,
    )
    return page


@contextmanager
def heartbeat(steps: int, method: str) -> Iterator[Callable[[int, Metrics], None]]:
    """While verl trains; call what it yields with each step and its metrics.

    Shows the step, whose reward it is, the senior's share of the tokens and the time left: on a
    terminal always, in a log now and then, and a line per step.
    """
    what, who = "Training with verl", "the team" if method == TANDEM else "the senior alone"
    rewards: dict[int, float] = {}
    left, said = TimeLeft(steps), ["verl, Ray and vLLM start"]
    with (
        CONSOLE.status(f"{what}: {said[0]}") as status,
        ShownProgress(console=CONSOLE, bar=False) as progress,
    ):
        task = progress.add_task(what, total=steps, note=lambda: said[-1], left=left)

        def beat(step: int, metrics: Metrics) -> None:
            rewards[step] = metrics.get(TRAINING_REWARD, float("nan"))
            said.append(f"reward of {who} {smoothed(rewards)[step]:.3f}")
            if SENIOR_SHARE in metrics:
                said[-1] += f", senior's share {metrics[SENIOR_SHARE]:.0%}"
            left.advance()
            progress.update(task, completed=step)
            line = ", ".join(filter(None, (f"Step {step} of {steps}: {said[-1]}", left())))
            CONSOLE.print(f"{line}.")
            status.update(f"{what}: {line}")

        yield beat


@contextmanager
def meanwhile(what: str) -> Iterator[None]:
    """While something takes long: shown on a terminal, and in a log now and then."""
    with CONSOLE.status(what), waiting(what, CONSOLE):
        yield


class Plan:
    """Says at the beginning of each stage which it is, and how long it all still takes.

    seconds: that each stage takes on two idle cores, in order. What is left is measured by the pace
    of the stages so far; one that took almost no time was finished before, and is not counted.
    """

    FINISHED = 0.1

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds
        self._taken: dict[str, float] = {}
        self._began: tuple[str, float] | None = None

    def begin(self, stage: str) -> None:
        """A stage begins, and the one before it has ended."""
        now = time.monotonic()
        if self._began is not None:
            last, began = self._began
            if now - began > self.FINISHED * self._seconds[last]:
                self._taken[last] = now - began
        self._began = stage, now
        names = [*self._seconds]
        number = names.index(stage)
        pace = 1.0
        if self._taken:
            pace = sum(self._taken.values()) / sum(map(self._seconds.__getitem__, self._taken))
        minutes = pace * sum(self._seconds[name] for name in names[number:]) / 60
        CONSOLE.print(
            f"{stage} (stage {number + 1} of {len(names)}, about {max(1, round(minutes))} min left "
            "in all).",
            soft_wrap=True,
        )


def unfinished(folder: Path) -> Path:
    """Where a folder is written before it takes its name, which says that it is whole."""
    return folder.with_name(f"{folder.name}.unfinished")


def run_program(*arguments: object, log: Path, out: Path) -> None:
    """Runs the command `tandem` for the demo in ``out``, what it says in ``log``.

    Raises:
        TrainingError: it failed.
    """
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", RUN_MARK: str(out)}
    command = [str(part) for part in (TANDEM_COMMAND, *arguments)]
    with log.open("wb") as stream:
        done = subprocess.run(
            command,
            env=os.environ | variables,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise TrainingError(f"{shlex.join(command)} failed. {end_of_log(log)}")


def curve(records: Iterable[tuple[int, Mapping[str, Any]]], key: str) -> dict[int, float]:
    """One metric by step, at the steps that have it."""
    return {step: float(metrics[key]) for step, metrics in records if key in metrics}


def smoothed(rewards: Mapping[int, float]) -> dict[int, float]:
    """The mean of each step and the two before it."""
    values = list(rewards.values())
    return {
        step: float(np.mean(values[max(0, place - SMOOTHED + 1) : place + 1]))
        for place, step in enumerate(rewards)
    }


def check_tandem(records: Records) -> None:
    """Refuses a run that was asked for in tandem and does not show it.

    Raises:
        TrainingError: a tandem metric is missing.
    """
    for key in (SENIOR_SHARE, "tandem/spans_per_response", JUNIOR_CROSS_ENTROPY):
        if not curve(records, key):
            raise TrainingError(
                f"The run logged no {key}: it did not train in tandem. Check that tandem-plugin "
                "is installed in the environment of the run, or ask for --solo."
            )


def shell_line(*parts: object) -> str:
    """A command as a shell reads it."""
    return f"  {shlex.join(map(str, parts))}"
