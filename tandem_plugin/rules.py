"""The rules of one engine: its settings and its tokenizer, which together decide authorship."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tandem_plugin._draws import check_seed, draws_table
from tandem_plugin._replay import (
    TokenIds,
    Walk,
    replay,
    replay_batch,
    walk_batch,
)
from tandem_plugin._version import __version__
from tandem_plugin.authorship import Authorship
from tandem_plugin.boundaries import BoundarySet, Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import (
    ConfigError,
    FingerprintError,
    RequestError,
    TokenizerError,
)
from tandem_plugin.files import read_file
from tandem_plugin.plugins.contracts import check_on_torch
from tandem_plugin.plugins.loading import BUILT_IN, catalogue
from tandem_plugin.plugins.selection import make_schedule, resolve_boundaries, resolver_for
from tandem_plugin.request import TandemRequest
from tandem_plugin.schedules import (
    TRAINING_STEP,
    Schedule,
    SoloSchedule,
    SoloWordSchedule,
    schedule_parameters,
    takes_training_step,
)
from tandem_plugin.schedules.alone import plain_class
from tandem_plugin.schedules.parameters import typed
from tandem_plugin.schedules.schedule import token_classes

_MOST_RULES = 256


def fingerprint(schedule: Schedule, boundaries: BoundarySet) -> str:
    """16 hexadecimal digits over schedule, parameters, boundary set and package version.

    For a plugin's schedule, the name and version of its distribution are included. The fingerprint
    is sent with each request, and an engine rejects one that differs from its own, so a replay in
    a second process can never silently disagree with the engine. Equal schedules have equal
    fingerprints: 1 and 1.0, or 0.0 and -0.0, make no difference. Raises :class:`ConfigError` for a
    manually constructed schedule with a parameter that is not of its declared type.
    """
    schedule = typed(schedule)
    meaning: dict[str, Any] = {
        "schedule": schedule.name,
        "parameters": schedule_parameters(schedule),
        "boundaries": boundaries.digest,
        "version": __version__,
    }
    kind = plain_class(type(schedule))
    provider = catalogue().provider_of(kind)
    if provider is None:  # made by hand, from a class that no plugin registers
        meaning["class"] = f"{kind.__module__}:{kind.__qualname__}"
    elif provider != BUILT_IN:
        meaning["plugin"] = [provider.distribution, provider.version]
    text = json.dumps(meaning, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_PROBE = 4, 2048
"""Responses that a plugin's schedule is tried on for its digest, and their tokens."""


def code_digest(schedule: Schedule) -> str | None:
    """A digest of a plugin's code of a schedule; None for a built-in one, which has our version.

    Covers the source files of its classes and, for what they use of other files, the authors that
    it chooses in fixed responses.
    """
    kind = plain_class(type(schedule))
    if catalogue().provider_of(kind) == BUILT_IN:
        return None
    digest = hashlib.sha256()
    for file in sorted({file for base in kind.__mro__ if (file := _source_file(base))}):
        digest.update(read_file(file))
    responses, tokens = _PROBE
    drawn = draws_table(range(responses), tokens)
    if classes := token_classes(schedule):
        ids = (drawn * len(classes)).astype(np.int64)
        boundaries = BoundarySet("probe", np.arange(len(classes)), classes)
    else:
        ids = (drawn < 0.3).astype(np.int64)
        boundaries = BoundarySet("probe", np.array([False, True]))
    for walk in walk_batch(list(ids), range(responses), schedule, boundaries):
        digest.update(np.packbits(walk.authors).tobytes())
    return digest.hexdigest()[:16]


def _source_file(kind: type) -> str | None:
    """The file of a class's module; None for Python's own modules, ours, and compiled ones."""
    top = kind.__module__.partition(".")[0]
    if top in sys.stdlib_module_names or top == __package__:
        return None
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file if file and file.endswith(".py") and os.path.isfile(file) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """A schedule and its boundary set: everything that decides authorship except the seed."""

    schedule: Schedule
    boundaries: BoundarySet
    fingerprint: str

    def replay(self, token_ids: Sequence[int], seed: int) -> Authorship:
        """The authorship of one response: see :func:`tandem_plugin.replay`."""
        return replay(token_ids, seed, self.schedule, self.boundaries)

    def replay_rest(self, prefix: Sequence[int], token_ids: Sequence[int], seed: int) -> Authorship:
        """The authorship of ``token_ids`` alone, in a response that began with ``prefix``."""
        return Authorship(self.replay([*prefix, *token_ids], seed).senior[len(prefix) :])

    def replay_batch(self, responses: Sequence[TokenIds], seeds: Sequence[int]) -> list[Authorship]:
        """The authorship of many responses."""
        return replay_batch(responses, seeds, self.schedule, self.boundaries)

    def walk_batch(self, responses: Sequence[TokenIds], seeds: Sequence[int]) -> list[Walk]:
        """The authors of many responses, and the schedule's state at their ends."""
        return walk_batch(responses, seeds, self.schedule, self.boundaries)

    def settings(self) -> dict[str, Any]:
        """The schedule, its parameters and the boundary resolver, as settings."""
        return {
            "schedule": self.schedule.name,
            **schedule_parameters(self.schedule),
            "boundaries": self.boundaries.resolver,
        }

    def record(self) -> dict[str, Any]:
        """What decides authorship, for the settings that a resumed file is compared with."""
        code = code_digest(self.schedule)
        return {"fingerprint": self.fingerprint, **({} if code is None else {"code": code})}

    def request(self, seed: int, prompt_length: int | None = None) -> TandemRequest:
        """A request for one response under this rule, fingerprint included.

        prompt_length: see :class:`TandemRequest`.
        """
        return TandemRequest(
            check_seed(seed),
            self.schedule.name,
            schedule_parameters(self.schedule),
            self.fingerprint,
            prompt_length,
        )


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A resolved request: its rule, its tandem seed and its prompt length."""

    rule: Rule
    seed: int
    prompt_length: int | None = None
    """None if everything sent as the prompt is the prompt."""

    def request(self) -> TandemRequest:
        """The request for it, fingerprint included."""
        return self.rule.request(self.seed, self.prompt_length)

    def prefix(self, sent_ids: Sequence[int]) -> list[int]:
        """The beginning of the response: the tokens that were sent after the original prompt.

        Raises :class:`RequestError` if fewer tokens were sent than the prompt has.
        """
        if self.prompt_length is None:
            return []
        if self.prompt_length > len(sent_ids):
            raise RequestError(
                "prompt-length-too-large", prompt_length=self.prompt_length, tokens=len(sent_ids)
            )
        return list(sent_ids[self.prompt_length :])


class TandemRules:
    """The configured rule of an engine, and the rules that its requests may select instead.

    Raises :class:`ConfigError` or :class:`TokenizerError` on construction if the configured
    schedule and the vocabulary are incompatible.
    """

    def __init__(self, config: TandemConfig, vocabulary: Vocabulary) -> None:
        self.config = config
        self.vocabulary = vocabulary
        self._boundaries: dict[str, BoundarySet] = {}
        self._rules: dict[Schedule, Rule] = {}
        self.default = self.for_schedule(config.make_schedule())

    @classmethod
    def from_tokenizer(cls, config: TandemConfig, tokenizer: Any) -> TandemRules:
        """The rules of a Hugging Face tokenizer, as :meth:`Vocabulary.from_tokenizer` reads it."""
        return cls(config, Vocabulary.from_tokenizer(tokenizer))

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the configured rule."""
        return self.default.fingerprint

    def for_schedule(self, schedule: Schedule) -> Rule:
        """The rule of a schedule over this vocabulary."""
        if schedule not in self._rules:
            if (
                len(self._rules) >= _MOST_RULES
            ):  # requests choose parameters, so the cache is bounded
                self._rules.clear()
            check_on_torch(type(schedule))
            boundaries = self._boundary_set(resolver_for(schedule, self.config.boundaries))
            self._rules[schedule] = Rule(schedule, boundaries, fingerprint(schedule, boundaries))
        return self._rules[schedule]

    def for_step(self, training_step: int) -> Rule:
        """The configured rule at a trainer's step: what a trainer sends, checks and replays with.

        It is the default rule, with the parameter ``training_step`` filled in if the schedule has
        one. Raises :class:`ConfigError` for a step that the schedule rejects.
        """
        schedule = self.default.schedule
        if not takes_training_step(schedule):
            return self.default
        parameters = {**schedule_parameters(schedule), TRAINING_STEP: training_step}
        return self.for_schedule(make_schedule(schedule.name, parameters))

    def for_recorded_step(self, settings: Mapping[str, Any] | None) -> Rule:
        """The configured rule at the step that a response's recorded settings name, if they do.

        settings: from :meth:`Rule.settings` in the generating process.
        """
        step = (settings or {}).get(TRAINING_STEP)
        return self.default if step is None else self.for_step(step)

    def for_request(self, value: object) -> ResolvedRequest | None:
        """Resolve a request's wire form; None if the senior answers alone.

        Raises :class:`RequestError` if the request cannot be honoured, :class:`FingerprintError` if
        it was made for other rules.
        """
        if value is None and self.config.require:
            raise RequestError("request-without-tandem")
        request = TandemRequest.parse(value)
        if request is None:
            return None
        rule = self._rule_for(request)
        if request.fingerprint is not None and request.fingerprint != rule.fingerprint:
            raise FingerprintError(
                "request-rules-differ",
                fingerprint=request.fingerprint,
                expected=rule.fingerprint,
                schedule=rule.schedule,
                resolver=rule.boundaries.resolver,
            )
        return ResolvedRequest(rule, request.seed, request.prompt_length)

    def _rule_for(self, request: TandemRequest) -> Rule:
        configured = self.default.schedule
        name = configured.name if request.schedule is None else request.schedule
        base = schedule_parameters(configured) if name == configured.name else {}
        try:
            rule = self.for_schedule(make_schedule(name, {**base, **request.parameters}))
        except (ConfigError, TokenizerError) as error:
            raise error.recast(RequestError) from error
        # Which model samples is a property of the engine, which its requests cannot change.
        sampled = [
            isinstance(schedule, SoloWordSchedule) for schedule in (rule.schedule, configured)
        ]
        if sampled[0] != sampled[1] and not isinstance(rule.schedule, SoloSchedule):
            raise RequestError(
                "request-schedule-differs", schedule=name, configured=configured.name
            )
        return rule

    def _boundary_set(self, resolver: str) -> BoundarySet:
        """The boundaries that a resolver finds; cached, because it reads a whole vocabulary."""
        if resolver not in self._boundaries:
            self._boundaries[resolver] = resolve_boundaries(resolver, self.vocabulary)
        return self._boundaries[resolver]
