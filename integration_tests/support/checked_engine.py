"""A running engine, and what it takes to check its responses and its record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import traffic
from support.boundary_ids import step_boundaries, word_boundaries
from support.device import is_gpu
from support.engine import AsyncEngine
from support.parity import Judge
from support.reference import Reference

PATIENCE = 60 if is_gpu() else 900
"""Seconds after which a request without an end is lost."""
TIGHT: dict[str, Any] = {
    "block_size": 32,
    "num_gpu_blocks_override": 14,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "enable_prefix_caching": True,
    "disable_log_stats": False,
}
"""Engine arguments of little memory: requests are preempted, and prompts read in chunks."""
OWN_NOISE = 1.2
"""In logits: under preemption and chunked prefill vLLM's CPU build itself strays in some greedy
responses, with one model and without tandem: 1 of 64 by 0.3 with one thread, 4 of 64 by up to 1.1
with 2."""


@dataclass
class CheckedEngine:
    """An engine in tandem, asynchronous, with a record."""

    running: AsyncEngine
    record: Path
    tokenizer: Any
    settings: dict[str, Any]
    """The engine's schedule and its parameters."""
    spare: int
    """How many tokens its record may hold behind the end of a response."""
    references: dict[str, Reference] = field(default_factory=dict)
    """Of Hugging Face, by the checkpoint that the senior has."""

    def send(self, jobs: list[traffic.Job]) -> list[traffic.Response]:
        """Send jobs; then one more, at whose step the engine tells its runner which are over."""
        responses = self.running.run(traffic.send(self.running.engine, jobs, PATIENCE))
        last = traffic.Job(f"last-{jobs[0].name}", [5, 6], None, {"max_tokens": 2}, 0.0, None)
        self.running.run(traffic.send(self.running.engine, [last], PATIENCE))
        return responses

    def call(self, function: Any, *args: Any) -> Any:
        """What a function returns in the engine's worker."""
        return self.running.run(self.running.engine.collective_rpc(function, args=args))[0]

    def reset_prefix_cache(self) -> None:
        """Forget what the senior's former weights computed."""
        self.running.run(self.running.engine.reset_prefix_cache())

    def authors(self, response: traffic.Response) -> Callable[[], Any]:
        """The generator of a response's authors, by plain Python."""
        words, steps = word_boundaries(self.tokenizer), step_boundaries(self.tokenizer)
        return traffic.authors_by_plain_loop(response.job.tandem, self.settings, words, steps)

    def differing(
        self, responses: list[traffic.Response], senior: str = "senior"
    ) -> dict[str, float]:
        """The responses that a Hugging Face loop would not have written, and by how many logits."""
        reference, found = self.references[senior], {}
        for response in responses:
            authors, given = self.authors(response), (response.job.prompt, response.token_ids)
            if reference.choices(*given, authors()) != response.token_ids:
                found[response.job.name] = reference.shortfall(*given, authors())
        return found

    def check_greedy(
        self, responses: list[traffic.Response], senior: str = "senior", *, straying: int = 0
    ) -> None:
        """Greedy responses equal a Hugging Face loop's, token for token.

        straying: how many may differ, each by no more than :data:`OWN_NOISE`. On a GPU the measured
        rounding decides.
        """
        if isinstance(judge := self.references[senior], Judge):
            judge.check((r.job.prompt, r.token_ids, self.authors(r)) for r in responses)
            return
        found = self.differing(responses, senior)
        assert len(found) <= straying, found
        assert all(gap < OWN_NOISE for gap in found.values()), found

    def report(self, jobs: list[traffic.Job], responses: list[traffic.Response]) -> traffic.Report:
        """What the engine itself recorded against the replay."""
        rules = traffic.make_rules(self.tokenizer, self.settings)
        return traffic.check(jobs, responses, rules, self.record, spare=self.spare)

    def check_records(self, jobs: list[traffic.Job], responses: list[traffic.Response]) -> None:
        """What the engine itself recorded equals the replay, and nothing was lost."""
        report = self.report(jobs, responses)
        assert (report.lost, report.mismatches) == ([], [])
