"""One trajectory in tandem: what its generate calls ask for, and what is made of its responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import AuthorshipError
from tandem_plugin.request import OFF
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.authored import Call, author_response
from tandem_plugin.training.fields import (
    AUTHORSHIP,
    FINGERPRINT,
    JUNIOR_MASK,
    SCHEDULE,
    SEED,
    SEGMENTS,
    TRAINED,
)
from tandem_plugin.training.ranges import ranges_of
from tandem_verl.validation import ROW, answerer_of

__all__ = ["ROW", "TandemClient", "Trajectory", "make_trajectory"]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One trajectory's rule and the seeds of its calls; no rule where the senior answers alone."""

    rule: Rule | None
    seed_of_call: Callable[[int], int]
    imitates: bool = False
    """Whether the senior also learns from the junior's tokens (``lambda_jun``)."""

    def request(self, call: int, prompt_length: int | None = None) -> dict[str, Any] | str:
        """What generate call number ``call`` says about tandem.

        prompt_length: the tokens of its prompt, so that a client may go on with a response that was
        interrupted, by a new request that says the same and has the response so far in its prompt.
        """
        if self.rule is None:
            return OFF
        return self.rule.request(self.seed_of_call(call), prompt_length).to_wire()

    def narrow(self, output: Any, calls: list[Call]) -> None:
        """Let a response's mask keep the senior's tokens only, and put its authorship beside it.

        output: verl's ``AgentLoopOutput``; its ``response_mask`` and ``extra_fields`` change.
        """
        if self.rule is None:
            return
        authored = author_response(
            calls, output.prompt_ids, output.response_ids, output.response_mask
        )
        trained = np.array(output.response_mask).astype(np.bool_)
        if self.imitates:
            output.extra_fields[JUNIOR_MASK] = (trained & ~authored.senior).astype(int).tolist()
        output.response_mask = (trained & authored.senior).astype(int).tolist()
        output.extra_fields[TRAINED] = [list(one) for one in ranges_of(trained)]
        output.extra_fields[AUTHORSHIP] = authored.senior.astype(int).tolist()
        output.extra_fields[SEED] = (
            authored.segments[0][0] if authored.segments else self.seed_of_call(0)
        )
        output.extra_fields[FINGERPRINT] = self.rule.fingerprint
        output.extra_fields[SCHEDULE] = self.rule.settings()
        output.extra_fields[SEGMENTS] = [list(segment) for segment in authored.segments]


class TandemClient:
    """Stands before verl's ``LLMServerClient`` in one trajectory: adds tandem to every call.

    Everything but ``generate`` is the client's own.
    """

    def __init__(self, client: Any, trajectory: Trajectory) -> None:
        self._client = client
        self._trajectory = trajectory
        self._started = 0
        self.calls: list[Call] = []
        """The calls that have returned."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(
        self,
        request_id: Any,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        **options: Any,
    ) -> Any:
        samples = sampling_params.get("n") or 1
        if samples != 1 and self._trajectory.rule is not None:
            raise AuthorshipError(
                f"The agent loop asks for n={samples} samples in one generate call, of which verl "
                "returns one without its number, so that its draws are not known. Let the loop "
                "make a call for each sample."
            )
        call, self._started = self._started, self._started + 1
        sent = np.array(prompt_ids, dtype=np.int64)  # a copy: the loop may go on with its list
        extra = {**(sampling_params.get("extra_args") or {})}
        extra["tandem"] = self._trajectory.request(call, len(sent))
        # The dictionary is shared by every sibling of the prompt: leave it as it is.
        output = await self._client.generate(
            request_id,
            prompt_ids=prompt_ids,
            sampling_params={**sampling_params, "extra_args": extra},
            **options,
        )
        if (rule := self._trajectory.rule) is not None:
            seed = self._trajectory.seed_of_call(call)
            self.calls.append(Call(rule, seed, sent, output.token_ids))
        return output


def make_trajectory(
    config: TandemConfig,
    rules: TandemRules,
    trajectory: Mapping[str, Any],
    sample: Mapping[str, Any],
) -> Trajectory:
    """The trajectory that verl is about to run, with seeds of its own and the rule of its step.

    trajectory: verl's ``step``, ``rollout_n`` and ``validate``. sample: the row's fields. A prompt
    is named by its place in the step's batch, which is the same in every run of one configuration
    (verl's ``uid`` is random and its ``index`` need not be unique): ``tandem_row`` and
    ``session_id`` in trainer V1; in V0 ``priority``, which already tells siblings apart. Raises
    :class:`ConfigError` for a validation prompt that should say who answers it and does not.
    """
    validate = bool(trajectory["validate"])
    phase = "validation" if validate else "training"
    step = int(trajectory["step"])
    place = _place(sample, trajectory)
    team = not validate or answerer_of(config, sample) == "team"

    def seed_of_call(call: int) -> int:
        return derive_seed(config.seed, phase, step, *place, call)

    imitates = bool(config.lambda_jun) and not validate
    return Trajectory(rules.at(step) if team else None, seed_of_call, imitates)


def _place(sample: Mapping[str, Any], trajectory: Mapping[str, Any]) -> tuple[int | str, ...]:
    if ROW in sample:
        # Trainer V0 has no sessions, and numbers siblings, but every batch of a validation anew.
        return "row", int(sample[ROW]), int(sample.get("session_id", sample.get("priority", 0)))
    if "session_id" not in sample and "priority" in sample:
        return "priority", int(sample["priority"])
    # Neither numbering: a custom agent-loop manager. Name the prompt by what it says.
    session = sample.get("session_id", trajectory["rollout_n"])
    return (
        "prompt",
        str(sample.get("index", "")),
        repr(sample.get("raw_prompt", "")),
        int(sample.get("priority", 0)),
        int(session),
    )
