"""Times the steps of an engine that has just started, and sets its scheduler's table of drafts.

Source: vLLM's ``vllm/v1/engine/core.py``, and ``dynamic_sd_lookup`` in
``vllm/v1/core/sched/scheduler.py``.
"""

from __future__ import annotations

import statistics
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tandem_plugin.engine.speculative.draft_choice import (
    CANDIDATES,
    Seconds,
    chosen,
    ranges_of,
    timed,
)

if TYPE_CHECKING:
    from vllm.v1.engine.core import EngineCore

_PROMPT = 16
"""Tokens of a request's prompt, which only has to be some text."""
_IDS = 64
"""Prompts have token ids below this, which every vocabulary has."""
_WARM, _TIMED = 3, 8
"""Steps before the timed ones, in which kernels are compiled, and timed steps."""


def choose_drafts(core: EngineCore, timer: StepTimer | None = None) -> dict[int, int]:
    """Set the table of drafts of an engine with ``drafts: auto``, and print it.

    core: of this engine, before its first request. Returns the table.
    """
    largest = core.vllm_config.scheduler_config.max_num_seqs
    seconds = timed(timer or StepTimer(core), largest)
    settings = core.vllm_config.additional_config["tandem"]
    table = chosen(seconds, largest, _seniors_share(settings))
    _set_lookup(core, table)
    print(_announcement(table, seconds), file=sys.stderr, flush=True)
    return table


class StepTimer:
    """Seconds of a step of requests that the senior answers alone, in one engine."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._number = 0

    def __call__(self, size: int, drafts: int) -> float | None:
        """The median of some steps; None if such a batch does not fit into the engine."""
        if not self._fits(size, drafts):
            return None
        _set_lookup(self._core, {1: drafts})
        names = [self._add(drafts) for _ in range(size)]
        ends = self._ends_of_steps(set(names))
        self._core.abort_requests(names)
        while self._core.scheduler.has_requests() or self._core.batch_queue:
            self._step()
        self._core.reset_prefix_cache()
        times = [later - earlier for earlier, later in pairwise(ends)]
        return statistics.median(times[_WARM:]) if len(times) > _WARM else None

    def _ends_of_steps(self, waiting: set[str]) -> list[float]:
        """When the steps ended in which every request wrote. waiting: the requests."""
        ends: list[float] = []
        while len(ends) <= _WARM + _TIMED and self._core.scheduler.has_requests():
            written = self._step()
            waiting -= written
            if written and not waiting:
                ends.append(time.perf_counter())
        return ends

    def _fits(self, size: int, drafts: int) -> bool:
        config, tokens = self._core.vllm_config, self._tokens(drafts)
        scheduler, cache = config.scheduler_config, config.cache_config
        blocks = size * -(-tokens // cache.block_size)
        return bool(
            tokens <= config.model_config.max_model_len
            and blocks < cache.num_gpu_blocks
            and size * (max(CANDIDATES) + 2) <= scheduler.max_num_batched_tokens
        )

    @staticmethod
    def _tokens(drafts: int) -> int:
        """The most tokens of a request, those of steps in flight among them."""
        return _PROMPT + (_WARM + _TIMED + 6) * (drafts + 1)

    def _add(self, drafts: int) -> str:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self._number += 1
        name = f"tandem-timing-{self._number}"
        ids = [(self._number * 7 + place * 11) % _IDS for place in range(_PROMPT)]
        params = SamplingParams(
            max_tokens=self._tokens(drafts) - _PROMPT, ignore_eos=True, seed=self._number
        )
        core = self._core
        core.add_request(Request(name, ids, params, None, block_hasher=core.request_block_hasher))
        return name

    def _step(self) -> set[str]:
        """Run a step; returns the requests that wrote in it."""
        outputs, is_executed = self._core.step_fn()
        self._core.post_step(is_executed)
        return {
            output.request_id
            for of_client in (outputs or {}).values()
            for output in of_client.outputs
            if output.new_token_ids
        }


def _set_lookup(core: EngineCore, table: dict[int, int]) -> None:
    """Let the scheduler ask for these numbers of drafts from its next step on."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    speculative, scheduler = core.vllm_config.speculative_config, core.scheduler
    speculative.num_speculative_tokens_per_batch_size = ranges_of(table)
    scheduler.dynamic_sd_lookup = build_dynamic_sd_schedule_lookup(
        ranges_of(table),
        core.vllm_config.scheduler_config.max_num_seqs,
        speculative.num_speculative_tokens,
    )


def _seniors_share(settings: dict[str, Any]) -> float:
    """The probability that a redraw gives the senior, of a schedule with draws; else a half."""
    from tandem_plugin.config import TandemConfig

    return float(getattr(TandemConfig.from_mapping(settings).make_schedule(), "p", 0.5))


def _announcement(table: dict[int, int], seconds: Seconds) -> str:
    times = "; ".join(
        f"{size}: " + ", ".join(f"{1e3 * time:.1f} with {n}" for n, time in of_size.items())
        for size, of_size in seconds.items()
    )
    return f"tandem engine: drafts={table} milliseconds per step by requests and drafts: {times}"
