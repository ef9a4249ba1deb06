"""One trajectory in tandem: what its generate calls ask for, and what is made of its response."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_openrlhf.sample_keys import SampleKey, without_key
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import AuthorshipError
from tandem_plugin.request import OFF
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.seeds import sample_seed
from tandem_plugin.training.authored import Call, author_response
from tandem_plugin.training.ranges import bits_of, ranges_of

__all__ = ["FACTS", "Facts", "TandemEngine", "narrowed", "start_trajectory"]

FACTS = "tandem"
"""The key of a response, and the attribute of an experience, that hold its :class:`Facts`."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a narrowed response says about itself on its way to the trainer.

    Positions are places in the response's whole token sequence, the prompt included. segments:
    (seed, start, stop) of every generate call. trained: (start, stop) of the ranges that the agent
    gave, before they were narrowed to the senior's tokens. senior: of the senior's tokens, trained
    or not.
    """

    fingerprint: str
    settings: Mapping[str, Any]
    segments: tuple[tuple[int, int, int], ...]
    trained: tuple[tuple[int, int], ...]
    senior: tuple[tuple[int, int], ...] = ()

    def response_length(self, most: int) -> int:
        """OpenRLHF's response length of the whole response, cut off after ``most`` tokens.

        That is from the first trained token to the last one, feedback between turns included.
        """
        ranges = [(start, stop) for start, stop in self._clipped(most) if stop > start]
        return ranges[-1][1] - ranges[0][0] if ranges else 0

    def trained_mask(self, length: int) -> NDArray[np.bool_]:
        """Bool ``[length]`` over the sequence's first tokens: what the agent would have trained."""
        return bits_of(self.trained, length)

    def junior_mask(self, action_mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Bool, of the shape of OpenRLHF's mask: trained by the agent, but not the senior's."""
        return self.trained_mask(len(action_mask) + 1)[1:] & ~action_mask

    def response_start(self) -> int:
        """Where the response begins; nothing before it was written in this trajectory."""
        starts = [start for start, _ in self.trained] + [start for _, start, _ in self.segments]
        return min(starts, default=0)

    def _clipped(self, most: int) -> list[tuple[int, int]]:
        return sorted((max(start, 1), min(stop, most)) for start, stop in self.trained)


class TandemEngine:
    """Stands before OpenRLHF's rollout actor in one trajectory: adds tandem to every call.

    rule: None where the senior answers alone. Everything but ``generate`` is the actor's own.
    """

    def __init__(self, engine: Any, rule: Rule | None, key: SampleKey, seed: int) -> None:
        self._engine = engine
        self._rule = rule
        self._key = key
        self._seed = seed
        self._started = 0
        self.calls: list[Call] = []
        """The calls that have returned."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def rule(self) -> Rule | None:
        """The rule that decides who writes; None where the senior answers alone."""
        return self._rule

    async def generate(
        self, prompt_token_ids: Sequence[int], sampling_params: Any, multi_modal_data: Any = None
    ) -> Any:
        """One response to these tokens; its draws are this call's own."""
        call, self._started = self._started, self._started + 1
        seed = self._key.seed(self._seed, call)
        sent = np.array(prompt_token_ids, dtype=np.int64)  # a copy: the agent may change its list
        own = copy.deepcopy(sampling_params)
        request = OFF if self._rule is None else self._rule.request(seed).to_wire()
        own.extra_args = {**without_key(own.extra_args), "tandem": request}
        output = await self._engine.generate(
            prompt_token_ids, own, multi_modal_data=multi_modal_data
        )
        if self._rule is not None:
            self.calls += [
                Call(self._rule, sample_seed(seed, sample.index), sent, sample.token_ids)
                for sample in output.outputs
            ]
        return output


def start_trajectory(
    engine: Any, config: TandemConfig, rules: TandemRules, key: SampleKey
) -> TandemEngine:
    """The engine of one trajectory, under the rule of its step or the senior's alone."""
    rule = rules.at(key.step) if key.by_team else None
    return TandemEngine(engine, rule, key, config.seed)


def narrowed(response: Mapping[str, Any], engine: TandemEngine) -> dict[str, Any]:
    """A response whose action ranges hold the senior's tokens only, with its :class:`Facts`.

    Rollout log-probabilities become zero outside them, as OpenRLHF has them for feedback tokens.
    The response is returned as it was where the senior answered alone. Raises
    :class:`AuthorshipError` where ranges and calls do not explain each other.
    """
    if engine.rule is None:
        return dict(response)
    tokens = list(response["observation_tokens"])
    trained = np.zeros(len(tokens), dtype=np.bool_)
    for start, stop in response["action_ranges"]:
        if not 0 <= start <= stop <= len(tokens):
            raise AuthorshipError(
                f"The agent gave the action range ({start}, {stop}) of a response with "
                f"{len(tokens)} tokens. Ranges lie within it and do not run backwards."
            )
        trained[start:stop] = True
    authored = author_response(engine.calls, (), tokens, trained)
    senior = trained & authored.senior
    log_probs = response.get("rollout_log_probs")
    if log_probs is not None:
        if len(log_probs) != len(tokens):
            raise AuthorshipError(
                f"The agent returned {len(log_probs)} rollout log-probabilities for "
                f"{len(tokens)} tokens: give one a token, zero where no model wrote it, or None."
            )
        log_probs = [value if mine else 0.0 for value, mine in zip(log_probs, senior, strict=True)]
    facts = Facts(
        fingerprint=engine.rule.fingerprint,
        settings=engine.rule.settings(),
        segments=authored.segments,
        trained=tuple((int(start), int(stop)) for start, stop in response["action_ranges"]),
        senior=tuple(ranges_of(authored.senior)),
    )
    return {
        **response,
        "action_ranges": ranges_of(senior),
        "rollout_log_probs": log_probs,
        FACTS: facts,
    }
