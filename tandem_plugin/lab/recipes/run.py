"""A recipe with every path resolved: what a trainer's command is made of."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from tandem_plugin.errors import ConfigError, DataError
from tandem_plugin.files.checkpoints import check_model
from tandem_plugin.grading.rewards.own import VARIABLE, OwnReward, OwnRewards
from tandem_plugin.lab.protocols import training_settings
from tandem_plugin.lab.recipes.settings import Recipe
from tandem_plugin.patching.versions import installed_version
from tandem_plugin.plugins.selection import parameter_names

MATH = "math"
"""The reward that grades answers to problems of mathematics."""

_FILES_OF_SETTINGS = ("config", "config_name", "config_path", "config_dir")
"""Arguments of TRL's and of Hydra's that name one."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program's arguments, and the variables that it needs besides those of this process."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of the program's process; its folders to import from come first."""
        merged = {**environ, **self.variables}
        for name, mark in (("PYTHONPATH", os.pathsep), ("VERL_USE_EXTERNAL_MODULES", ",")):
            parts = [source[name] for source in (self.variables, environ) if source.get(name)]
            if parts:
                merged[name] = mark.join(parts)
        return merged


@dataclass(frozen=True, slots=True)
class Run:
    """A recipe whose paths are absolute. No file of it is missing."""

    recipe: Recipe
    protocol: Mapping[str, Any]
    """The protocol's settings of training."""
    model: str
    junior: str | None
    rewards: tuple[OwnReward, ...]
    """Functions of the user's; empty for the reward of mathematics."""
    train: Path
    validation: Path | None
    """None where nothing is held out."""
    out: Path
    arguments: tuple[str, ...] = ()
    """The trainer's own, after those of the recipe."""

    @property
    def steps(self) -> int:
        return int(self.recipe.steps or self.protocol.get("steps", 250))

    @property
    def responses(self) -> int:
        """Those of one update."""
        return self.recipe.prompts * self.recipe.group // self.recipe.updates

    @property
    def is_on_cpu(self) -> bool:
        return self.recipe.device == "cpu"

    @property
    def gpus(self) -> int:
        """Processes of the trainer: one on a CPU."""
        return 1 if self.is_on_cpu else self.recipe.gpus

    @property
    def own_rewards(self) -> str | None:
        """The user's functions with their weights, as a trainer's process reads them."""
        weights = self.recipe.reward_weights or (1.0,) * len(self.rewards)
        return str(OwnRewards(self.rewards, weights)) if self.rewards else None

    @property
    def reward_variables(self) -> dict[str, str]:
        """Where a trainer whose command has no place for them reads :attr:`own_rewards`."""
        return {} if self.own_rewards is None else {VARIABLE: self.own_rewards}

    @property
    def tandem(self) -> dict[str, Any] | None:
        """The settings of tandem that differ from its defaults; None for a plain method.

        grpo-half lets the senior write everything and train on the part that ``word`` would give
        it.
        """
        method = self.recipe.method
        settings: dict[str, Any] = dict(self.recipe.tandem)
        if method not in ("tandem", "grpo-half"):
            return None
        if method == "grpo-half":
            shared = ("p", "cap", "seed")
            settings = {n: v for n, v in settings.items() if n in shared}
            settings = {"schedule": "solo-word", **settings}
        if "cap" in parameter_names(settings.get("schedule", "word")):
            settings.setdefault("cap", self.protocol["cap"])
        if method == "tandem" and self.recipe.trainer != "trl":  # which validates nothing
            settings.setdefault("validation", self.protocol["validation"])
        if method == "tandem" and self.junior is not None:
            settings["junior"] = self.junior
        return settings

    def every(self, name: str, default: int) -> int:
        """Steps between two of ``save`` or ``test``: the recipe's, the protocol's, a default."""
        stated = self.recipe.save_every if name == "save" else self.recipe.validate_every
        return stated or int(self.protocol.get(f"{name}_freq", default))


class Trainer(Protocol):
    """How a trainer does a recipe's run; each is a module of this package with these names."""

    FORMAT: str
    """The ending of its files of problems."""
    SAYS: Mapping[str, str]
    """Its arguments, or what these begin with, that settings of the recipe say; and which."""

    def command(self, run: Run) -> Command:
        """The program that does the run; it resumes what is in the folder."""

    def before(self, run: Run) -> None:
        """Write what the program reads besides its files of problems."""

    def senior(self, run: Run) -> Path:
        """The best senior of a run that has ended, the last where none was validated.

        Raises :class:`TandemError` where there is none.
        """

    def parse(self, run: Run) -> Command:
        """A program by which the trainer reads the command, and no more."""


def trainer_of(name: str) -> Trainer:
    """The trainer's module."""
    from importlib import import_module

    module: ModuleType = import_module(f"tandem_plugin.lab.recipes.{name}")
    return module


def hydra(settings: Mapping[str, object]) -> list[str]:
    """Settings as ``name=value``; those of None are the trainer's own. Paths are quoted."""
    present = {name: value for name, value in settings.items() if value is not None}
    return [
        f"{name}={hydra_text(str(value)) if isinstance(value, Path) else _text(value)}"
        for name, value in present.items()
    ]


def hydra_text(text: str) -> str:
    """A text in Hydra's grammar, quoted where it has more than letters of names and paths."""
    if re.fullmatch(r"[\w./+@:-]+", text, re.ASCII):
        return text
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return f"'{escaped}'"


def flags(settings: Mapping[str, object]) -> list[str]:
    """Settings as ``--name value ...``; True is a bare flag, None is the trainer's own default."""
    parts: list[str] = []
    for name, value in settings.items():
        if value is True:
            parts.append(f"--{name}")
        elif value is not None:
            parts += [f"--{name}", *map(_text, value if isinstance(value, list) else [value])]
    return parts


def tandem_flags(run: Run) -> dict[str, object]:
    """Tandem's settings for a command with :func:`flags`, which has the rollouts' folder there."""
    settings: dict[str, object] = {
        f"tandem.{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in (run.tandem or {}).items()
    }
    if run.recipe.is_tandem:
        settings["tandem.rollouts"] = run.out / "rollouts"
    return settings


def parsed_by(program: str, command: Command) -> Command:
    """A Python program that gets the arguments behind the last module of a command."""
    last = len(command.arguments) - command.arguments[::-1].index("-m")
    arguments = command.arguments[last + 1 :]
    return Command((sys.executable, "-c", program, *arguments), command.variables)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def startup_on_cpu(stand_ins: str) -> dict[str, str]:
    """Variables that put stand-ins for what a CPU lacks in place at the start of each process.

    stand_ins: a module, or ``MODULE:FUNCTION``. Ray's GPUs are declared, not there.
    """
    variables = {
        "PYTHONPATH": str(Path(__file__).with_name("on_cpu")),
        "TANDEM_ON_CPU": stand_ins,
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    if joins_cluster():
        return variables
    resources = '{"CPU": 8, "GPU": 4, "object_store_memory": 500000000}'
    return {**variables, "RAY_ADDRESS": "local", "RAY_OVERRIDE_RESOURCES": resources}


def joins_cluster() -> bool:
    """Whether ``RAY_ADDRESS`` names a running cluster, which reports what its nodes have."""
    return os.environ.get("RAY_ADDRESS", "") not in ("", "local")


def without_flash_attn(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with a stand-in for flash-attn to import, where it is not installed."""
    if installed_version("flash-attn"):
        return dict(variables)
    folder = str(Path(str(files("tandem_openrlhf"))) / "without_flash_attn")
    path = [variables["PYTHONPATH"]] if "PYTHONPATH" in variables else []
    return {**variables, "PYTHONPATH": os.pathsep.join([*path, folder])}


def resolved(
    recipe: Recipe, base: Path, arguments: Sequence[str], train: Path, validation: Path | None
) -> Run:
    """The run of a recipe; base: the folder of its file, which relative paths are from.

    Raises :class:`ConfigError` for a model, a file or a reward that is not there, and for an
    argument of the trainer that contradicts the recipe.
    """
    trainers_own = (*recipe.arguments, *arguments)
    check_arguments(recipe, trainers_own)
    junior = None if recipe.junior is None else model_of(recipe.junior, "junior", base)
    out = recipe.out or f"runs/{recipe.trainer}/{recipe.method}"
    return Run(
        recipe,
        training_settings(recipe.protocol, trainers_own),
        model_of(recipe.model, "senior", base),
        junior,
        rewards_of(recipe, base),
        train,
        validation,
        place(out, base),
        trainers_own,
    )


def place(path: str, base: Path) -> Path:
    """A path of the recipe's, absolute."""
    return Path(os.path.abspath(base / os.path.expanduser(path)))


def model_of(model: str, role: str, base: Path) -> str:
    """A model's folder, absolute, or its name on the Hub; raises as :func:`check_model` does."""
    folder, owner = place(model, base), model.partition("/")[0]
    is_inside = "/" in model and place(owner, base).is_dir()  # so it is no owner on the Hub
    is_path = model.startswith(("/", ".", "~")) or folder.is_dir() or is_inside
    name = str(folder) if is_path else model
    check_model(name, role)
    return name


def file_of(path: str, setting: str, base: Path) -> Path:
    """A file that a setting names; :class:`DataError` if it is not there."""
    file = place(path, base)
    if not file.is_file():
        raise DataError("recipe-file-missing", setting=setting, file=file)
    return file


def rewards_of(recipe: Recipe, base: Path) -> tuple[OwnReward, ...]:
    """The user's reward functions, found in their files; none for the reward of mathematics."""
    if recipe.reward == (MATH,):
        return ()
    rewards: list[OwnReward] = []
    for text in recipe.reward:
        path, colon, function = text.rpartition(":")
        if not colon:
            raise ConfigError("recipe-reward-form", reward=text)
        reward = OwnReward(file_of(path, "reward", base), function)
        reward.check()
        if function in [earlier.function for earlier in rewards]:
            raise ConfigError("recipe-rewards-same-name", function=function)
        rewards.append(reward)
    return tuple(rewards)


def check_arguments(recipe: Recipe, arguments: Sequence[str]) -> None:
    """Raise :class:`ConfigError` for an argument that sets what the recipe sets.

    Nor may a file of the trainer's own settings be named: the command that the recipe makes comes
    after it, and what both set would be the recipe's in silence.
    """
    says = trainer_of(recipe.trainer).SAYS
    for argument in settings_among(arguments):
        name = name_of_setting(argument)
        if name in _FILES_OF_SETTINGS:
            raise ConfigError("recipe-argument-file", argument=argument)
        for text, setting in says.items():
            if sets(argument, text):
                raise ConfigError(
                    "recipe-argument-contradicts",
                    argument=name,
                    setting=setting,
                    value=getattr(recipe, setting),
                )


def settings_among(arguments: Iterable[str]) -> list[str]:
    """Those of a trainer's arguments that name a setting: ``--name``, ``name=value``, ``~name``."""
    return [text for text in arguments if text.startswith(("-", "~")) or "=" in text]


def name_of_setting(argument: str) -> str:
    """The setting's name in an argument, with dots and underscores: ``--learning-rate=1``."""
    name = argument.lstrip("-+~").partition("=")[0].replace("-", "_")
    return re.sub(r"[\[\].]+", ".", name).strip(".")


def sets(argument: str, setting: str) -> bool:
    """Whether an argument sets a setting: itself, what it is in, a part of it, or abbreviated."""
    name = name_of_setting(argument)
    is_abbreviated = argument.startswith("--") and bool(name) and setting.startswith(name)
    return is_abbreviated or f"{setting}.".startswith(f"{name}.") or name.startswith(f"{setting}.")


def shell_lines(command: Command, places: Mapping[str, str]) -> str:
    """A command as lines of a shell script; places: texts in it, and what the shell calls them."""

    def word(text: str) -> str:
        if text == sys.executable:
            return "python"
        for path, called in places.items():
            if path in text:
                before, after = text.split(path, 1)
                ends = word(after) if after else ""
                return f'{shlex.quote(before) if before else ""}"{called}"{ends}'
        return shlex.quote(text)

    after = {"PYTHONPATH": '"${PYTHONPATH:+:$PYTHONPATH}"'}
    variables = [
        f"{name}={word(value)}{after.get(name, '')}" for name, value in command.variables.items()
    ]
    program = command.arguments.index("-m") + 2 if "-m" in command.arguments else 1
    lines = [" ".join(map(word, command.arguments[:program]))]
    has_value = False
    for text in command.arguments[program:]:
        is_flag, is_setting = text.startswith("--"), has_value and "=" in text
        if is_flag or is_setting or not lines[-1].startswith("--"):
            lines.append(word(text))
        else:  # a value of the flag before it
            lines[-1] += f" {word(text)}"
        has_value = not is_flag
    return " \\\n  ".join([*variables, *lines]) + "\n"
