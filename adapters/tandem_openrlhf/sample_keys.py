"""Where each prompt stands in a run: what its responses' tandem seeds are derived from."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from tandem_plugin.errors import EngineError
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.validation import Answerer

__all__ = [
    "SAMPLE_KEY",
    "KeyedEngine",
    "Numbering",
    "SampleKey",
    "keyed",
    "taken_key",
    "without_key",
]

SAMPLE_KEY = "tandem_sample_key"
"""The name in ``SamplingParams.extra_args`` under which a prompt's key travels to the engine."""

Phase = Literal["training", "validation"]


@dataclass(frozen=True, slots=True)
class SampleKey:
    """A sample's key: the phase, the prompt's number in it, and the sample's in the prompt.

    step: the trainer's step for schedules that depend on it. by_team: whether senior and junior
    write it together, as in training always; otherwise the senior answers alone.
    """

    phase: Phase
    prompt: int
    sample: int
    step: int
    by_team: bool = True

    def seed(self, base: int, call: int) -> int:
        """The tandem seed of generate call number ``call``; base: the run's seed."""
        return derive_seed(base, self.phase, self.prompt, self.sample, call)


@dataclass(slots=True)
class Numbering:
    """Numbers a run's prompts in the order in which its data loader gives them."""

    next_prompt: int = 0
    """How many training prompts were drawn; a resumed run goes on from its checkpoint's number."""
    step: int = 0
    """The trainer's step that the next batch is for, from 0."""
    validates: Answerer | None = None
    """Who answers the prompts of the validation that is under way; None while training."""
    next_validation: int = 0

    @contextmanager
    def validation(self, answerer: Answerer) -> Iterator[None]:
        """Number the prompts of one walk through the validation set, from 0."""
        self.validates, self.next_validation = answerer, 0
        try:
            yield
        finally:
            self.validates = None

    def take(self, count: int) -> Iterator[dict[str, Any]]:
        """The keys of the next ``count`` prompts, as they travel."""
        if self.validates is not None:
            phase, first = "validation", self.next_validation
            self.next_validation += count
        else:
            phase, first = "training", self.next_prompt
            self.next_prompt += count
        for prompt in range(first, first + count):
            yield {
                "phase": phase,
                "prompt": prompt,
                "step": self.step,
                "by_team": self.validates != "senior",
                "taken": 0,
            }


class KeyedEngine:
    """Stands before an OpenRLHF rollout actor's handle: adds the next key to every prompt's call.

    keys: shared by the engines of one dispatch, which calls them in the order of its prompts.
    """

    def __init__(self, engine: Any, keys: Iterator[dict[str, Any]]) -> None:
        self._engine = engine
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def generate_responses(self) -> Any:
        """The method's handle, whose ``remote`` takes a key on its way."""
        return _Keyed(self._engine.generate_responses, self._keys)


@dataclass(frozen=True, slots=True)
class _Keyed:
    method: Any
    keys: Iterator[dict[str, Any]]

    def remote(self, *, sampling_params: Any, **arguments: Any) -> Any:
        own = copy.copy(sampling_params)  # one object serves all prompts of a dispatch
        own.extra_args = {**(sampling_params.extra_args or {}), SAMPLE_KEY: next(self.keys)}
        return self.method.remote(sampling_params=own, **arguments)


def taken_key(sampling_params: Any) -> SampleKey:
    """The key of the next response to the prompt that these sampling parameters came with.

    Every call takes another sample of the prompt. Raises :class:`EngineError` where the prompt came
    without a key: the process that sent it had no active adapter.
    """
    extra: Mapping[str, Any] = sampling_params.extra_args or {}
    travelled = extra.get(SAMPLE_KEY)
    if travelled is None:
        raise EngineError(
            "A prompt arrived that says nothing about tandem: the adapter is active in the process "
            "that generates, but not in the trainer's process that sent it. Check that "
            "tandem-plugin is installed on every node, in the same version."
        )
    sample = travelled["taken"]
    travelled["taken"] = sample + 1
    names = ("phase", "prompt", "step", "by_team")
    return SampleKey(sample=sample, **{name: travelled[name] for name in names})


def without_key(extra_args: Mapping[str, Any] | None) -> dict[str, Any]:
    """The extra arguments that are left for the engine."""
    return {name: value for name, value in (extra_args or {}).items() if name != SAMPLE_KEY}


def keyed(engines: Sequence[Any], keys: Iterator[dict[str, Any]]) -> list[KeyedEngine]:
    """The engines of a dispatch, sharing its keys."""
    return [KeyedEngine(engine, keys) for engine in engines]
