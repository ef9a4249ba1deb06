"""``recipe.yaml``: the settings of a training run, the same for every trainer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from tandem_plugin._version import __version__
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError, validation_reason
from tandem_plugin.files import read_file, system_reason

FILE = "recipe.yaml"

TrainerName: TypeAlias = Literal["verl", "openrlhf", "trl", "skyrl"]
Method: TypeAlias = Literal["tandem", "grpo", "kl-reg", "grpo-g16", "grpo-half"]

_MOST = 1_000_000_000


def _float(value: object) -> object:
    """A number as YAML 1.1 misses it (``1e-6`` is text there); no bool is a number."""
    if isinstance(value, bool):
        raise ValueError("it must be a number")
    return value


Count = Annotated[int, Field(strict=True, ge=1, le=_MOST)]
Number = Annotated[float, BeforeValidator(_float), Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Recipe(BaseModel):
    """A recipe's settings; ``null`` leaves a setting to the trainer, the protocol or the model.

    Raises :class:`ConfigError` for an unknown name, with the nearest one, and for a value that is
    no such setting's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str = Field(__version__, description="tandem-plugin's version that this file is for")
    trainer: TrainerName = Field("verl", description="verl, openrlhf, trl or skyrl")
    method: Method = Field(
        "tandem", description="or, to compare: grpo, kl-reg, grpo-g16, grpo-half"
    )
    protocol: Literal["paper", "paper-code", "release"] = Field(
        "paper", description="or paper-code, release: see compatibility"
    )
    model: str = Field(
        "Qwen/Qwen2.5-0.5B-Instruct", description="the senior: a folder, or a name on the Hub"
    )
    junior: str | None = Field(None, description="the junior; null: the senior's own start")
    problems: str | None = Field(
        "gsm8k", description="a set's name, owner/name on the Hub, or a file of problems"
    )
    heldout: Annotated[int, Field(strict=True, ge=0, le=_MOST)] = Field(
        200, description="problems that choose the best checkpoint"
    )
    field: Mapping[str, str] = Field(
        {}, description="where rows have their parts: {problem: question, answer: solution}"
    )
    map: str | None = Field(None, description="or a function that makes them: my_map.py:row")
    train: str | None = Field(
        None, description="in place of problems: a file in the trainer's own format"
    )
    validation: str | None = Field(None, description="the same, to choose the best checkpoint")
    reward: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        ("math",), description="math, or functions of yours: my_reward.py:score"
    )
    reward_weights: tuple[Number, ...] | None = Field(
        None, description="of several rewards; null: 1 each"
    )
    steps: Count | None = Field(100, description="training steps; null: the protocol's")
    prompts: Count = Field(16, description="problems a step")
    samples: Annotated[int, Field(strict=True, ge=2, le=_MOST)] = Field(
        8, description="responses to a problem; grpo-g16 takes twice as many"
    )
    updates: Count = Field(2, description="updates of the model a step")
    micro_batch: Count = Field(2, description="responses at a time on a GPU")
    max_prompt: Count = Field(1024, description="tokens of a prompt, at most")
    max_response: Count = Field(512, description="tokens of a response, at most")
    temperature: Positive | None = Field(0.6, description="of sampling")
    learning_rate: Positive | None = Field(1e-6, description="constant")
    kl: Positive = Field(0.001, description="the coefficient of kl-reg")
    tandem: Mapping[str, Any] = Field(
        {"schedule": "word", "p": 0.5}, description="settings of tandem; cap: the protocol's"
    )
    save_every: Count | None = Field(None, description="steps; null: the protocol's or 10 to 25")
    validate_every: Count | None = Field(
        None, description="steps; null: the protocol's, or 10 (SkyRL: save_every)"
    )
    device: Literal["gpu", "cpu"] = Field("gpu", description="or cpu, for a model of a toy's size")
    gpus: Count = Field(1, description="GPUs of this machine")
    out: str | None = Field(None, description="the run's folder; null: runs/TRAINER/METHOD")
    benchmarks: Mapping[str, str] = Field(
        {"GSM8K": "gsm8k-test"}, description="what the printed evaluation is on"
    )
    arguments: tuple[str, ...] = Field((), description="more arguments of the trainer's own")

    def __init__(self, /, **settings: Any) -> None:
        for name in settings:
            if name not in type(self).model_fields:
                raise _unknown(name, name)
        try:
            super().__init__(**settings)
        except ValidationError as error:
            problem = error.errors()[0]
            field = str(problem["loc"][0])
            raise ConfigError(
                "recipe-setting-invalid",
                name=field,
                value=settings.get(field),
                problem=validation_reason(problem["msg"]),
                description=type(self).model_fields[field].description,
            ) from error
        self._check_together()

    @field_validator("reward")
    @classmethod
    def _some_reward(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("it must name a reward")
        return value

    def _check_together(self) -> None:
        """What no setting can say alone."""
        if self.version != __version__:
            raise ConfigError("recipe-version-differs", version=self.version, here=__version__)
        if (self.train is None) is (self.problems is None):
            raise ConfigError("recipe-data-ambiguous", problems=self.problems, train=self.train)
        if self.train is None and self.validation is not None:
            raise ConfigError("recipe-validation-alone", validation=self.validation)
        if self.field and self.map is not None:
            raise ConfigError("layout-given-twice")
        self._check_tandem()
        self._check_rewards()
        self._check_sizes()

    def _check_tandem(self) -> None:
        for name in ("junior", "rollouts"):
            if name in self.tandem:
                raise ConfigError("recipe-tandem-elsewhere", name=name)
        TandemConfig.from_mapping(self.tandem)

    def _check_rewards(self) -> None:
        if self.reward_weights is not None and len(self.reward_weights) != len(self.reward):
            raise ConfigError(
                "recipe-reward-weights-differ",
                weights=len(self.reward_weights),
                rewards=len(self.reward),
            )

    def _check_sizes(self) -> None:
        if self.prompts % self.updates:
            raise ConfigError("recipe-updates-uneven", prompts=self.prompts, updates=self.updates)
        responses = self.prompts * self.samples // self.updates
        at_once = self.micro_batch * (1 if self.device == "cpu" else self.gpus)
        if responses % at_once:
            raise ConfigError("recipe-batch-uneven", responses=responses, at_once=at_once)

    @property
    def group(self) -> int:
        """Responses to a problem, as the method has them."""
        return 2 * self.samples if self.method == "grpo-g16" else self.samples

    @property
    def is_tandem(self) -> bool:
        return self.method == "tandem"


def _unknown(name: object, text: str) -> ConfigError:
    """The error of an unknown setting; text: what to find the nearest name to."""
    settings = list(Recipe.model_fields)
    nearest_to, listed = _FORMER.get(text, text), ", ".join(settings)
    return ConfigError.misspelt(
        "recipe-setting-unknown", nearest_to, settings, name=name, known=listed
    )


_FORMER = {
    "MODEL": "model",
    "PROBLEMS": "problems",
    "HELDOUT": "heldout",
    "GPUS": "gpus",
    "STEPS": "steps",
    "RESPONSE": "max_response",
    "KL": "kl",
    "OUT": "out",
    "DATA": "problems",
    "TRAIN": "train",
    "VALIDATION": "validation",
    "BENCHMARKS": "benchmarks",
    "ARGUMENTS": "arguments",
}
"""The variables of recipes of Bash, which were before this file, and what has taken their place."""


def left_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of earlier recipes that are set and have no effect, with their settings here.

    Raises :class:`ConfigError` for ``TANDEM_CONFIG``, which would change the run behind the file.
    """
    if environ.get("TANDEM_CONFIG", "").strip():
        raise ConfigError("recipe-tandem-variable")
    return {name: setting for name, setting in _FORMER.items() if environ.get(name)}


def read_recipe(file: Path, assignments: Sequence[str] = ()) -> tuple[Recipe, list[str]]:
    """The recipe of a file with ``NAME=VALUE`` over it, and the settings that neither has.

    A value is read as YAML, and a name may lead into a mapping: ``tandem.p=0.3``. Raises
    :class:`ConfigError` for a file that is no recipe, and as :class:`Recipe` does.
    """
    settings = _content(file)
    for name, value in _assigned(assignments):
        outer, dot, inner = name.partition(".")
        if not dot:
            settings[name] = value
        elif outer not in ("tandem", "benchmarks"):
            raise _unknown(name, outer)
        else:
            before = settings.get(outer, Recipe.model_fields[outer].default)
            settings[outer] = {**(before if isinstance(before, Mapping) else {}), inner: value}
    recipe = Recipe(**settings)
    return recipe, [name for name in Recipe.model_fields if name not in settings]


def _assigned(assignments: Sequence[str]) -> Iterator[tuple[str, Any]]:
    names = set()
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                "option-not-assignment",
                option="--set",
                assignment=assignment,
                example="steps=20",
            )
        if name.strip() in names:
            raise ConfigError("recipe-set-twice", name=name.strip())
        names.add(name.strip())
        yield name.strip(), _parsed(text, f"--set {assignment}")


def _content(file: Path) -> dict[str, Any]:
    try:
        text = read_file(file).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError("recipe-missing", file=file) from error
    except UnicodeDecodeError as error:
        raise ConfigError("recipe-unreadable", file=file, reason="it is not UTF-8") from error
    except OSError as error:
        raise ConfigError("recipe-unreadable", file=file, reason=system_reason(error)) from error
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if equals and name.strip().isidentifier():
            raise ConfigError(
                "recipe-line-of-shell",
                file=file,
                line=number,
                text=line.strip(),
                name=_FORMER.get(name.strip(), name.strip().lower()),
                value=value.strip(),
            )
    content = _parsed(text, file)
    if not isinstance(content, dict):
        kind = "is empty" if content is None else f"is a {type(content).__name__}"
        raise ConfigError("recipe-not-mapping", file=file, kind=kind)
    for name in content:
        if not isinstance(name, str):
            raise _unknown(name, str(name))
    return content


def _parsed(text: str, where: object) -> Any:
    """YAML's value of a text, in which no mapping has a key twice."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [(self.construct_object(key, deep=True), key) for key, _ in node.value]
            for place, (name, key) in enumerate(keys):
                if name in [earlier for earlier, _ in keys[:place]]:
                    raise ConfigError(
                        "recipe-setting-twice", name=name, line=key.start_mark.line + 1
                    )
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = " ".join(str(error).split())[:200] or "it is nested too deeply"
        raise ConfigError("recipe-unreadable", file=where, reason=reason) from error


def written(trainer: str) -> str:
    """The text of a trainer's ``recipe.yaml``: each setting with its default and what it means."""
    lines = [
        "# The run that `tandem train` starts. A removed line has the value that it has here.",
        "# The paper's run: model Qwen/Qwen3-4B-Instruct-2507, problems deepscaler, gpus 2,",
        "# max_response 3000, steps null.",
    ]
    for name, field in Recipe.model_fields.items():
        value = trainer if name == "trainer" else field.default
        lines.append(f"{name}: {yaml_of(value)}  # {field.description}")
    return "\n".join(lines) + "\n"


def yaml_of(value: Any) -> str:
    """A value on one line of YAML."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {yaml_of(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, tuple | list):
        items = [yaml_of(item) for item in value]
        return items[0] if len(items) == 1 else f"[{', '.join(items)}]"
    if isinstance(value, float):
        text = f"{value:g}"
        return (
            text
            if "." in text or "e" not in text or not math.isfinite(value)
            else (text.replace("e", ".0e"))
        )
    return str(value)
