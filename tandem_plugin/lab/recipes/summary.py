"""What a recipe's run is, in words: before it starts, as a script, and after it has ended."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tandem_plugin._version import __version__
from tandem_plugin.grading.rewards import reward_file
from tandem_plugin.lab.protocols import PAPERS_RUN, PAPERS_TANDEM, template_arguments
from tandem_plugin.lab.recipes.data import RunData
from tandem_plugin.lab.recipes.folder import SENIOR, marked
from tandem_plugin.lab.recipes.run import Run, place, shell_lines, trainer_of
from tandem_plugin.lab.recipes.settings import yaml_of
from tandem_plugin.patching.versions import installed_version


def fields(run: Run, data: RunData, defaults: Sequence[str]) -> dict[str, str]:
    """What is about to start, by name; defaults: the settings that the file does not have."""
    recipe = run.recipe
    version = installed_version(recipe.trainer) or "not installed"
    block = {
        "trainer": f"{recipe.trainer} {version}, tandem-plugin {__version__}",
        "method": f"{recipe.method}, protocol {recipe.protocol}",
        "senior": marked(run.model),
        "junior": _junior(run),
        "tandem": "off" if run.tandem is None else yaml_of(run.tandem),
        "data": data.described(),
        "reward": ", ".join(map(str, run.rewards)) or "math",
        "steps": (
            f"{run.steps:,} x {recipe.prompts} prompts x {run.recipe.group} samples x "
            f"{recipe.max_response:,} tokens"
        ),
        "device": "CPU" if run.is_on_cpu else f"{run.gpus} GPU{'s' if run.gpus > 1 else ''}",
        "folder": str(run.out),
    }
    if noticed := data.noticed():
        block["in the data"] = noticed
    if run.arguments:
        block["arguments"] = shlex.join(run.arguments)
    if defaults:
        block["not in the file"] = ", ".join(
            f"{name} {yaml_of(getattr(recipe, name))}" for name in defaults
        )
    block["not the paper's"] = ", ".join(differences(run)) or "nothing"
    return block


def _junior(run: Run) -> str:
    if run.tandem is None or not run.recipe.is_tandem:
        return "none"
    return "the senior's own start" if run.junior is None else marked(run.junior)


def differences(run: Run) -> list[str]:
    """The settings that are others than the paper's, with the paper's."""
    recipe = run.recipe
    used: dict[str, Any] = {name: getattr(recipe, name) for name in PAPERS_RUN}
    changed = [
        f"{name} {yaml_of(used[name])} ({yaml_of(stated.value)})"
        for name, stated in PAPERS_RUN.items()
        if used[name] != stated.value
    ]
    if recipe.method in ("grpo-g16", "grpo-half"):
        changed.insert(0, f"method {recipe.method}")
    used = run.tandem or {}
    return changed + [
        f"tandem.{name} {yaml_of(used[name])} ({yaml_of(stated.value)})"
        for name, stated in PAPERS_TANDEM.items()
        if recipe.is_tandem and used.get(name, stated.value) != stated.value
    ]


def script(run: Run, base: Path, prepare: Sequence[str]) -> str:
    """The run as lines of shell: what it reads is prepared, and the trainer started.

    Paths are absolute, since Ray's workers may run elsewhere; base: the recipe's folder, which the
    first line changes to. prepare: the command that prepares what the trainer reads.
    """
    rewards = reward_file("verl").parent
    stand_in = Path(str(files("tandem_openrlhf"))) / "without_flash_attn"
    places = {
        str(base): "$PWD",
        str(reward_file("verl")): "$(tandem path reward-verl)",
        str(reward_file("openrlhf")): "$(tandem path reward-openrlhf)",
        str(rewards): '$(dirname "$(tandem path reward-verl)")',
        str(stand_in): "$(tandem path without-flash-attn)",
    }
    first = f"cd {shlex.quote(str(base))}\n{shlex.join(prepare)}\n"
    return first + shell_lines(trainer_of(run.recipe.trainer).command(run), places)


def next_commands(run: Run, base: Path) -> list[str]:
    """What to type after a run: its responses as a page, its senior evaluated, a report.

    The arguments of the chat template are those of the training. Dumps of a run without tandem say
    nothing of authors. base: the recipe's folder, from which files of benchmarks are found.
    """
    out, recipe = run.out, run.recipe
    template = template_arguments(run.arguments)
    evaluation = ["tandem", "eval", "all", "--protocol", recipe.protocol]
    evaluation += ["--senior", f"base={run.model}", "--senior", f"{recipe.method}={out / SENIOR}"]
    evaluation += ["--junior", f"base={run.junior or run.model}"]
    for name, source in recipe.benchmarks.items():
        file = place(source, base)
        evaluation += ["--benchmark", f"{name}={file if file.is_file() else source}"]
    evaluation += ["--out", str(out / "results")]
    for name, value in template.items():
        evaluation += ["--template-arg", f"{name}={json.dumps(value)}"]
    commands = [
        evaluation,
        ["tandem", "report", str(out / "results"), "--out", str(out / "report")],
    ]
    if recipe.is_tandem:
        commands.insert(0, page_command(run))
    return [shlex.join(command) for command in commands]


def page_command(run: Run, *options: str) -> list[str]:
    """The command that writes the page of the run's responses."""
    page = ["--tokenizer", run.model, "--out", str(run.out / "rollouts.html")]
    return ["tandem", "view", str(run.out / "rollouts"), *page, *options]
