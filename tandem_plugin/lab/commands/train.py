"""``tandem train``: the run that a recipe describes, checked, prepared and started."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.terminal.output import echo, print_fields

if TYPE_CHECKING:
    from tandem_plugin.lab.recipes.data import RunData
    from tandem_plugin.lab.recipes.folder import RunFolder
    from tandem_plugin.lab.recipes.process import Ended
    from tandem_plugin.lab.recipes.run import Run

_FILE = "recipe.yaml"
_NO_REASON = r"(DEBUG|INFO|WARNING)\b|Set the environment variable HYDRA_FULL_ERROR"
"""Lines of a trainer that stand around what it rejects."""


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [-- ARGUMENT...]",
            help="The recipe. Default: recipe.yaml. After --, arguments of the trainer's own.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting in place of the recipe's, such as steps=20 or tandem.p=0.3. Can be "
            "repeated.",
        ),
    ] = None,
    prints: Annotated[
        bool, typer.Option("--print", help="Print the trainer's whole command, and start nothing.")
    ] = False,
    prepares: Annotated[
        bool,
        typer.Option("--prepare", help="Prepare what the trainer reads, and start nothing."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Let the trainer read its command, without a GPU, and start nothing."
        ),
    ] = False,
) -> None:
    """Start the run that a recipe describes, or resume it.

    The recipe is checked whole, its problems are prepared, and what is about to start is printed.
    The run's folder belongs to its recipe: the same one resumes it, and any other is rejected with
    what differs. Relative paths are from the recipe's folder.
    """
    from tandem_plugin.lab.recipes.data import data_of
    from tandem_plugin.lab.recipes.run import resolved
    from tandem_plugin.lab.recipes.settings import left_variables, read_recipe

    file, trainers_own = _split(arguments or [])
    for name, setting in left_variables(os.environ).items():
        echo(
            f"Warning: {name}={os.environ[name]} is set in the environment, and a recipe does not "
            f"read it. Pass --set {setting}=..., or unset {name}.",
            err=True,
        )
    recipe, defaults = read_recipe(file, assignments or [])
    base = Path(os.path.abspath(file)).parent
    data = data_of(recipe, base)
    run = resolved(recipe, base, trainers_own, data.train, data.validation)
    if prints:
        from tandem_plugin.lab.recipes.summary import script

        sets = [part for text in assignments or [] for part in ("--set", text)]
        last = ["--", *trainers_own] if trainers_own else []
        prepare = ["tandem", "train", file.name, "--prepare", *sets, *last]
        echo(script(run, base, prepare).rstrip("\n"))
        return
    if dry_run:
        _parse(run)
        return
    _start(run, data, defaults, base, prepares)


def _split(arguments: list[str]) -> tuple[Path, list[str]]:
    """The recipe's file, and the trainer's own arguments, which follow ``--``."""
    line = sys.argv[1:]
    after = line[line.index("--") + 1 :] if "--" in line else []
    if arguments[len(arguments) - len(after) :] != after:
        after = []
    before = arguments[: len(arguments) - len(after)]
    if len(before) > 1:
        raise ConfigError("recipe-arguments-misplaced", argument=before[1])
    file = Path(os.path.expanduser(before[0] if before else _FILE))
    return (file / _FILE if file.is_dir() else file), after


def _start(run: Run, data: RunData, defaults: list[str], base: Path, prepares: bool) -> None:
    from tandem_plugin.lab.recipes.folder import RunFolder, note_of
    from tandem_plugin.lab.recipes.run import trainer_of
    from tandem_plugin.lab.recipes.summary import fields
    from tandem_plugin.patching.versions import installed_version
    from tandem_plugin.progress import waiting

    name = run.recipe.trainer
    if not prepares:
        if not installed_version(name):
            raise ConfigError("trainer-not-installed", trainer=name)
        check_gpus(run, os.environ)
    folder = RunFolder(run.out)
    with folder.locked() as lock:
        with waiting(f"prepare {data.name}", bar=True):
            data.prepare()
        note = note_of(run, data)
        folder.check(note, run.steps)
        print_fields(fields(run, data, defaults))
        if folder.done == run.steps and not prepares:
            echo(f"\n{run.out} has all of its {run.steps} steps. Set more steps to continue.")
            _say_next(run, base)
            return
        trainer_of(name).before(run)
        if not prepares:
            folder.begin(note, shlex.join(trainer_of(name).command(run).arguments) + "\n")
            _run(run, folder, base, lock.fileno())


def _run(run: Run, folder: RunFolder, base: Path, lock: int) -> None:
    """Run the trainer; the last line is how it ended. Exits with 1 where it failed."""
    from tandem_plugin.lab.recipes.folder import LOG
    from tandem_plugin.lab.recipes.process import run_trainer
    from tandem_plugin.lab.recipes.run import trainer_of
    from tandem_plugin.lab.recipes.summary import page_command

    if run.recipe.is_tandem:
        page = shlex.join(page_command(run, "--follow"))
        echo(f"\nEach response while it trains, from another terminal:\n\n  {page}\n")
    trainer, log = trainer_of(run.recipe.trainer), folder.path / LOG
    ended = run_trainer(trainer.command(run), log, os.environ, base, lock)
    if ended.code or ended.stopped_by:
        echo(f"\n{_failure(run, ended)} Log: {log}", err=True)
        raise typer.Exit(130 if ended.stopped_by == "SIGINT" else 1)
    folder.finish(trainer.senior(run), run.steps)
    _say_next(run, base)
    echo(f"\nDone after {_duration(ended.seconds)}: {run.steps} steps. Log: {log}")


def _failure(run: Run, ended: Ended) -> str:
    after = f"after {_duration(ended.seconds)}"
    if ended.stopped_by:
        advice = "The same command resumes the run."
        return f"Stopped by {ended.stopped_by} {after}; nothing is left running. {advice}"
    how = f"by signal {-ended.code}" if ended.code < 0 else f"with exit code {ended.code}"
    error = f" {ended.error}" if ended.error else ""
    code = ended.coded.rpartition("[")[2]
    before = f" Before it: {ended.coded}" if code and code not in ended.error else ""
    return f"Error: {run.recipe.trainer} ended {how} {after}.{error}{before}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def _say_next(run: Run, base: Path) -> None:
    from tandem_plugin.lab.recipes.folder import SENIOR
    from tandem_plugin.lab.recipes.summary import next_commands

    chosen = (
        "the last"
        if run.recipe.trainer == "trl" or run.validation is None
        else ("the best by the run's own validation")
    )
    echo(f"\nThe senior: {run.out / SENIOR}, {chosen}. Next:\n")
    for command in next_commands(run, base):
        echo(f"  {command}")


def _parse(run: Run) -> None:
    """Let the trainer read its command; raises :class:`ConfigError` with its words."""
    from tandem_plugin.lab.recipes.run import trainer_of

    command = trainer_of(run.recipe.trainer).parse(run)
    environment = command.environment(os.environ)
    done = subprocess.run(
        command.arguments, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = _reason(done.stderr) or f"it ended with exit code {done.returncode}"
        raise ConfigError("recipe-dry-run-failed", trainer=run.recipe.trainer, reason=reason)
    echo(f"The recipe is right, and {run.recipe.trainer} reads its command.")


def _reason(output: str) -> str:
    """Why a trainer rejected its command: Python's last line, or what Hydra writes without one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(_NO_REASON, line)]
    if rejected := [line for line in lines if ": error: " in line]:  # argparse's, after its usage
        return rejected[-1][:300]
    is_traced = any(line.startswith("Traceback (") for line in lines)
    return " ".join(lines[-1:] if is_traced else lines[-6:])[:300]


def check_gpus(run: Run, environ: Mapping[str, str]) -> None:
    """Raise :class:`ConfigError` where this machine shows fewer GPUs than the run needs.

    Ray would wait for them without a word. Not where they are a running Ray cluster's, or on
    several nodes. A run on the CPU needs none, unless vLLM is built for GPUs: its engine would end
    minutes after the start.
    """
    from tandem_plugin.lab.recipes.run import name_of_setting, settings_among
    from tandem_plugin.patching.versions import gpu_build_of_vllm

    temporary = environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or "/tmp"
    settings = map(name_of_setting, settings_among(run.arguments))
    names = [name.rpartition(".")[2] for name in settings]
    is_cluster = environ.get("RAY_ADDRESS") or any("nodes" in name for name in names)
    if is_cluster or Path(temporary, "ray", "ray_current_cluster").exists():
        return
    if run.is_on_cpu:
        vllm = gpu_build_of_vllm()
        if vllm is not None and visible_gpus() == 0:
            raise ConfigError("recipe-vllm-for-gpus", version=vllm, trainer=run.recipe.trainer)
        return
    visible = visible_gpus()
    if visible is not None and visible < run.gpus:
        hidden = environ.get("CUDA_VISIBLE_DEVICES", "")
        raise ConfigError("recipe-gpus-missing", visible=visible, gpus=run.gpus, hidden=hidden)


def visible_gpus() -> int | None:
    """How many GPUs PyTorch sees, in a separate process; None without PyTorch."""
    program = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    text = done.stdout.strip()
    return int(text) if done.returncode == 0 and text.isdecimal() else None
