"""vLLM's schedulers, with a draft length that follows the load and what becomes of drafts.

Touches: ``Scheduler.dynamic_sd_lookup``, vLLM's table of draft lengths by batch size,
``make_spec_decoding_stats``, which hears of every round, ``update_from_output``, whose calls say
when a step is over, and ``schedule`` and ``update_draft_token_ids``, since Model Runner V2 hands
out the most drafts there can be until 0.31, through ``scheduler_cls`` (public). Reads ``running``,
``max_num_scheduled_tokens`` and ``max_num_new_slots_for_drafting``, what a step has room for.
Versions: 0.29 to 0.32. Why: vLLM's table is fixed when the engine starts, and the best length
changes with the policy, and is another one on every machine. Goes when: vLLM chooses the length by
acceptance and measured cost.
"""

from __future__ import annotations

import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from tandem_plugin.engine.speculative.draft_length import DraftLength
from tandem_plugin.engine.speculative.pace import Pace, step_of
from tandem_plugin.engine.speculative.step_costs import relative_cost

__all__ = ["AdaptiveAsyncScheduler", "AdaptiveScheduler"]


class _Adaptive:
    """Stands before one of vLLM's schedulers in the bases."""

    vllm_config: Any
    num_spec_tokens: int
    max_num_scheduled_tokens: int
    running: list[Any]
    _asked: int

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        models = (
            self.vllm_config.model_config,
            self.vllm_config.speculative_config.draft_model_config,
        )
        cost = relative_cost(*(model.hf_text_config for model in models))
        self.draft_length = DraftLength(self.num_spec_tokens, cost, self._room)
        self._pace = Pace()
        self.dynamic_sd_lookup = _Lookup(self)

    def _room(self, requests: int) -> int:
        """The most drafts of each of so many requests that vLLM schedules in one step."""
        read: int = self.vllm_config.scheduler_config.max_num_batched_tokens // requests
        read -= self.vllm_config.speculative_config.max_num_new_slots_for_drafting
        return min(self.max_num_scheduled_tokens // requests, read) - 1

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        *rest: Any,
        **options: Any,
    ) -> Any:
        """As vLLM's own, which is called for every request's round."""
        self.draft_length.observe(num_draft_tokens, num_accepted_tokens + 1)
        return super().make_spec_decoding_stats(  # type: ignore[misc]
            spec_decoding_stats, num_draft_tokens, num_accepted_tokens, *rest, **options
        )

    def update_from_output(self, scheduler_output: Any, *rest: Any, **options: Any) -> Any:
        """As vLLM's own, which is called when a step's tokens are there: so long it took."""
        step = step_of(scheduler_output)
        seconds = self._pace.ended(step, time.perf_counter())
        if seconds is not None:
            self.draft_length.time(step.requests, step.asked, seconds)
        return super().update_from_output(  # type: ignore[misc]
            scheduler_output, *rest, **options
        )

    def schedule(self, *args: Any, **options: Any) -> Any:
        """As vLLM's own; how many drafts it asks for is kept until they are there."""
        output = super().schedule(*args, **options)  # type: ignore[misc]
        self._asked = output.num_spec_tokens_to_schedule
        return output

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """As vLLM's own, with as many drafts as were asked for."""
        asked = [drafts[: self._asked] for drafts in draft_token_ids.draft_token_ids]
        draft_token_ids.draft_token_ids = asked
        super().update_draft_token_ids(draft_token_ids)  # type: ignore[misc]


class _Lookup:
    """In place of vLLM's table, which it asks once for each step."""

    def __init__(self, scheduler: _Adaptive) -> None:
        self._scheduler = scheduler

    def __getitem__(self, scheduled: int) -> int:
        # What runs is what the next step has, all that this one had no room for as well.
        return self._scheduler.draft_length.choose(max(scheduled, len(self._scheduler.running)))


class AdaptiveScheduler(_Adaptive, Scheduler):  # type: ignore[misc]  # vllm is untyped here
    """vLLM's scheduler with drafts that follow the load."""


class AdaptiveAsyncScheduler(_Adaptive, AsyncScheduler):  # type: ignore[misc]
    """vLLM's scheduler for asynchronous scheduling with drafts that follow the load."""
