"""The tandem settings of an engine or a training run: one flat mapping, validated once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from tandem_plugin._draws import MAX_SEED
from tandem_plugin.errors import ConfigError, validation_reason
from tandem_plugin.files.checkpoints import is_checkpoint_of
from tandem_plugin.plugins.contracts import reserve
from tandem_plugin.plugins.selection import (
    built_in_parameters,
    make_schedule,
    parameter_names,
    resolver_for,
)
from tandem_plugin.request import TandemRequest, resembles_tandem
from tandem_plugin.schedules import (
    Schedule,
    SoloWordSchedule,
    lets_junior_write,
    takes_training_step,
)

DEFAULT_DRAFT_TOKENS = 4
MAX_DRAFT_TOKENS = 32
AUTO = "auto"
"""The value of ``drafts`` with which an engine chooses a table by timing its steps at startup."""
MAX_AUTO_DRAFTS = 8
"""The most drafts that it chooses."""


def _by_batch_size(drafts: Any) -> Any:
    """A table of drafts by ascending batch size; its keys may be text, as in JSON."""
    if not isinstance(drafts, Mapping):
        return drafts
    table = {int(k) if isinstance(k, str) and k.isdecimal() else k: n for k, n in drafts.items()}
    are_sizes = len(table) == len(drafts) and all(type(size) is int for size in table)
    return dict(sorted(table.items())) if are_sizes else dict(drafts)


Place: TypeAlias = Annotated[str, AfterValidator(os.path.expanduser)]
"""A path. Its ``~`` is expanded here: no shell does so in a file or after a colon."""


def _is_text(key: object) -> bool:
    """Whether a key can be a setting's name; a lone surrogate, which JSON can write, is no text."""
    return isinstance(key, str) and key.encode("utf-8", "replace").decode() == key


def junior_label(checkpoint: str, quantization: str | None) -> str:
    """A junior's checkpoint, with its quantisation in an engine, which is a different model."""
    return checkpoint if quantization is None else f"{checkpoint} ({quantization})"


class TandemConfig(BaseModel):
    """The contents of ``additional_config={"tandem": {...}}``.

    Every key that is not a field below is a parameter of the schedule (``p`` and ``cap`` for
    ``word``). Raises :class:`ConfigError` for invalid settings, naming the field, its value and
    what it accepts; so does :meth:`from_mapping`.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    schedule: str = Field("word", description="The schedule, which decides who writes each token.")
    boundaries: str | None = Field(
        None, description="The boundary resolver; null uses the schedule's own."
    )
    junior: Place | None = Field(
        None,
        description="The junior's checkpoint; null uses the checkpoint that the senior "
        "starts from.",
    )
    junior_name: str | None = Field(
        None,
        description="The junior's name in requests and records, in addition to junior, which "
        "names its checkpoint; if null, the engine sets it to that checkpoint.",
    )
    junior_quantization: str | None = Field(
        None,
        description="vLLM's quantisation of the junior alone, such as fp8 or fp8_per_channel: its "
        "weights are quantised while they load, and the frozen junior takes half the memory. null "
        "keeps the checkpoint's own form.",
    )
    mode: Literal["lockstep", "speculative"] = Field(
        "lockstep",
        description="How the two models share one engine: both run at every step, or the "
        "junior drafts tokens that one forward pass of the senior verifies. The "
        "responses follow the same distribution.",
    )
    drafts: Annotated[
        Annotated[int, Field(ge=1, le=MAX_DRAFT_TOKENS)]
        | dict[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)]]
        | Literal["auto"]
        | None,
        BeforeValidator(_by_batch_size),
    ] = Field(
        None,
        description="How many tokens the junior drafts between two forward passes of the senior in "
        "the speculative mode: a number, or a table with the number from each batch size on, such "
        "as {1: 8, 16: 4, 64: 0}; a batch size is the number of requests in a step of the engine. "
        "auto times steps when the engine starts, and chooses a table with at most "
        f"{MAX_AUTO_DRAFTS} drafts. null takes {DEFAULT_DRAFT_TOKENS}.",
    )
    junior_stream: bool = Field(
        False,
        description="Run the junior's pass of lockstep beside the senior's, on a CUDA stream of "
        "its own, in steps that vLLM captures whole in a CUDA graph.",
    )
    images: bool = Field(
        False,
        description="Answer prompts with images: both models are built with their vision towers, "
        "and each sees an image through its own. Otherwise the text model of a unified checkpoint "
        "is built alone. A trainer's adapter sets it if the data has images.",
    )
    measure_every: int = Field(
        64,
        ge=0,
        description="Measure how well each model predicts what the other writes, in one out "
        "of this many engine steps, chosen at random each time; 0 disables it.",
    )
    partner_logprobs: bool = Field(
        False,
        description="Measure every step, and keep both models' log-probability of each token "
        "for TandemLLM's outputs and `tandem rollout`.",
    )
    validation: Literal["senior", "team", "both", "all"] = Field(
        "senior",
        description="Who answers validation prompts in a trainer: the senior alone, the "
        "team, both in turn, or all: both, and at the first validation the junior alone.",
    )
    lambda_jun: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="The weight of the junior-imitation term in a trainer's loss: the mean "
        "of the senior's -log p over the tokens that the junior wrote. 0, as in "
        "the paper, omits it.",
    )
    max_unknown_share: float = Field(
        0.1,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The largest allowed share of tokens of unknown author among the tokens "
        "that agent loops would train in a batch; above it the trainer aborts. "
        "Such tokens are never trained.",
    )
    unproven: tuple[str, ...] = Field(
        (),
        strict=False,
        description="Names of settings that are rejected only because they have not "
        "been verified in tandem, to allow anyway; an unknown name is rejected "
        "with the list of known ones.",
    )
    seed: int = Field(
        0, ge=0, le=MAX_SEED, description="The seed that a trainer derives every tandem seed from."
    )
    record: Place | None = Field(
        None,
        description="A folder where the engine writes its own record of who wrote each "
        "token, one JSON line per finished request; null disables it.",
    )
    rollouts: Place | None = Field(
        None,
        description="A folder where the OpenRLHF, TRL and SkyRL trainers write the responses "
        "of each step, for `tandem view` and `tandem replay`; null disables it. For "
        "verl use trainer.rollout_data_dir.",
    )
    require: bool = Field(
        False,
        description="Reject requests without tandem parameters, instead of letting the "
        "senior answer alone. Always on inside a trainer.",
    )

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            # Of a setting of several types, that of the type that went furthest.
            problem = max(error.errors(), key=lambda problem_found: len(problem_found["loc"]))
            first, *places = problem["loc"]
            if first == "unproven" and isinstance(problem["input"], str) and not places:
                names = problem["input"].strip("[]")
                raise ConfigError(
                    "unproven-not-list", value=problem["input"], names=names
                ) from error
            field = ".".join(
                map(str, [first, *(place for place in places if isinstance(place, int))])
            )
            raise ConfigError(
                "setting-invalid",
                field=field,
                value=problem["input"],
                problem=validation_reason(problem["msg"]),
                setting=first,
                default=json.dumps(type(self).model_fields[str(first)].default),
            ) from error
        self._check_parameters()
        self._check_junior()
        self._check_drafting()
        schedule = self.make_schedule()
        if self.mode == "speculative" and isinstance(schedule, SoloWordSchedule):
            raise ConfigError("schedule-without-drafts", schedule=schedule.name)
        if self.validation == "all" and not lets_junior_write(schedule):
            raise ConfigError("validation-without-junior", schedule=schedule.name)
        resolver_for(schedule, self.boundaries)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> TandemConfig:
        """Validate settings; raise :class:`ConfigError` naming field, value and what is valid."""
        if not isinstance(settings, Mapping):
            raise ConfigError("settings-not-mapping", settings=settings)
        for key in settings:
            if not _is_text(key):
                raise ConfigError("setting-key-not-text", key=key, value=settings[key])
        return cls(**settings)

    def is_own_junior(self, senior: str, revision: str | None = None) -> bool:
        """Whether a senior's checkpoint is the junior's too.

        senior: the engine's model, a name or a folder. revision: the senior's.
        """
        return self.junior is None or is_checkpoint_of(self.junior, senior, revision)

    def _check_parameters(self) -> None:
        allowed = parameter_names(self.schedule)
        for key, value in self.parameters.items():
            if key not in allowed:
                names = [*allowed, *type(self).model_fields]
                raise ConfigError.misspelt(
                    "setting-unknown",
                    key,
                    names,
                    key=key,
                    value=value,
                    schedule=self.schedule,
                    known=", ".join(names),
                )

    def _check_junior(self) -> None:
        for key in ("junior", "junior_name", "junior_quantization"):
            name = getattr(self, key)
            if name is not None and not name.strip():
                raise ConfigError("setting-name-empty", key=key, value=name)
        if self.junior_name is not None and self.junior is None:
            raise ConfigError("junior-name-without-junior", junior_name=self.junior_name)

    def _check_drafting(self) -> None:
        if self.mode == "lockstep" and self.drafts is not None:
            raise ConfigError("drafts-not-speculative", drafts=self.drafts)
        if self.mode == "speculative" and self.junior_stream:
            raise ConfigError("junior-stream-not-lockstep")
        if not isinstance(self.drafts, dict):
            return
        if 1 not in self.drafts:
            raise ConfigError("drafts-without-first-size", drafts=self.drafts)
        if not any(self.drafts.values()):
            raise ConfigError("drafts-all-zero", drafts=self.drafts)

    @property
    def max_drafts(self) -> int:
        """The most tokens that the junior drafts in a round; 0 in lockstep."""
        if self.mode == "lockstep":
            return 0
        if isinstance(self.drafts, dict):
            return max(self.drafts.values())
        if isinstance(self.drafts, str):  # AUTO
            return MAX_AUTO_DRAFTS
        return self.drafts or DEFAULT_DRAFT_TOKENS

    @property
    def parameters(self) -> dict[str, Any]:
        """The schedule's parameters."""
        return dict(self.model_extra or {})

    def make_schedule(self) -> Schedule:
        """The configured schedule."""
        return make_schedule(self.schedule, self.parameters)

    def answerer(self, name: str | None) -> Literal["senior", "team", "junior"]:
        """Who is to answer a validation prompt; name: the one that the prompt itself names.

        Raises :class:`ConfigError` if several are to answer and the prompt does not say who, or
        names none of them.
        """
        answerer = name or self.validation
        if answerer not in ("senior", "team", "junior"):
            raise ConfigError("validation-answerer-unknown", validation=answerer)
        return answerer  # type: ignore[return-value]

    @property
    def takes_training_step(self) -> bool:
        """Whether the schedule has a parameter that follows the trainer's step."""
        return takes_training_step(self.make_schedule())

    @classmethod
    def recognised(cls, names: Iterable[object], schedule: str | None = None) -> list[str]:
        """Of some names, those of settings, and those that contain tandem or nearly.

        Settings are the fields and the parameters of built-in schedules. schedule: its parameters
        are settings as well, if it exists.
        """
        settings = {*cls.model_fields, *built_in_parameters()}
        if schedule is not None:
            with suppress(Exception):  # a plugin's error is reported where settings are checked
                settings.update(parameter_names(schedule))
        return [name for name in map(str, names) if name in settings or resembles_tandem(name)]

    def settings(self) -> dict[str, Any]:
        """The settings as a mapping that :meth:`from_mapping` accepts.

        ``images`` only if it is on, so that notes of text runs stay comparable with older ones.
        """
        return self.model_dump(exclude=None if self.images else {"images"})


reserve(TandemConfig.model_fields)
reserve(field.name for field in fields(TandemRequest) if field.name != "parameters")
