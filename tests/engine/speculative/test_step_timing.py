"""The timing of steps at startup, in an engine of which only time and tokens are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from tandem_plugin.engine.speculative import step_timing
from tandem_plugin.engine.speculative.step_timing import StepTimer, choose_drafts


class Core:
    """An engine core whose steps take the time of a formula; prompts are read one per step."""

    def __init__(self, *, queue: int = 0, blocks: int = 10_000, longest: int = 4096) -> None:
        self.vllm_config = SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=8, max_num_batched_tokens=2048),
            cache_config=SimpleNamespace(block_size=16, num_gpu_blocks=blocks),
            model_config=SimpleNamespace(max_model_len=longest),
            speculative_config=SimpleNamespace(num_speculative_tokens=8),
            additional_config={
                "tandem": {"mode": "speculative", "drafts": "auto", "schedule": "word", "p": 0.25}
            },
        )
        self.scheduler = SimpleNamespace(has_requests=lambda: bool(self.requests or self.aborted))
        self.batch_queue: list[Any] | None = [] if queue else None
        self.request_block_hasher = None
        self.requests: dict[str, Any] = {}
        self.read: list[str] = []
        self.aborted: list[str] = []
        self.now, self.resets, self.posted = 0.0, 0, 0
        self.sizes: list[tuple[int, int]] = []

    def add_request(self, request: Any) -> None:
        assert request.num_prompt_tokens == 16
        assert request.request_id not in self.requests
        self.requests[request.request_id] = request

    def abort_requests(self, names: list[str]) -> None:
        self.aborted += names
        self.requests, self.read = {}, []

    def reset_prefix_cache(self) -> None:
        assert not self.requests
        self.resets += 1

    def step_fn(self) -> tuple[Any, bool]:
        if self.aborted:
            self.aborted.clear()
            return None, False
        self.read += [name for name in self.requests if name not in self.read][:1]
        drafts = self.scheduler.dynamic_sd_lookup[len(self.requests)]
        self.sizes.append((len(self.read), drafts))
        self.now += self.seconds(len(self.read), drafts)
        outputs = [SimpleNamespace(request_id=name, new_token_ids=[1]) for name in self.read]
        return {0: SimpleNamespace(outputs=outputs)}, True

    @staticmethod
    def seconds(requests: int, drafts: int) -> float:
        return 1.0 + 0.05 * drafts if requests < 4 else 1.0 + drafts

    def post_step(self, is_executed: bool) -> None:
        self.posted += is_executed


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    made = Core()
    monkeypatch.setattr(step_timing.time, "perf_counter", lambda: made.now)
    return made


def test_a_step_is_timed_once_every_request_writes(core: Core) -> None:
    assert StepTimer(core)(5, 4) == pytest.approx(5.0)  # type: ignore[arg-type]
    assert {size for size, _ in core.sizes[:4]} == {1, 2, 3, 4}
    assert core.sizes[4:] == [(5, 4)] * 12
    assert core.resets == 1
    assert core.posted == len(core.sizes)


def test_the_engine_drafts_what_was_fastest_from_then_on(
    core: Core, capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose_drafts(core) == {1: 8, 3: 0}  # type: ignore[arg-type]
    assert core.scheduler.dynamic_sd_lookup[1:] == [8, 8, 0, 0, 0, 0, 0, 0]
    ranges = core.vllm_config.speculative_config.num_speculative_tokens_per_batch_size
    assert ranges == [(1, 2, 8), (3, 3, 0)]
    assert not core.requests
    message = capsys.readouterr().err
    assert "drafts={1: 8, 3: 0}" in message
    assert "1: 1000.0 with 0, 1100.0 with 2" in message


def test_the_schedules_own_p_decides_what_a_round_writes(core: Core) -> None:
    """At p = 1 the senior writes the token behind the drafts, so drafting pays for longer."""
    times = {0: 1.0, 2: 2.77}
    timer = lambda size, drafts: times.get(drafts)  # noqa: E731
    assert choose_drafts(core, timer) == {1: 0}  # type: ignore[arg-type]
    core.vllm_config.additional_config["tandem"]["p"] = 1.0
    assert choose_drafts(core, timer) == {1: 2}  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [{"blocks": 30}, {"longest": 100}])
def test_a_batch_that_does_not_fit_is_not_timed(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(**limits)
    monkeypatch.setattr(step_timing.time, "perf_counter", lambda: core.now)
    timer = StepTimer(core)  # type: ignore[arg-type]
    assert timer(1, 2) is not None
    assert timer(8, 8) is None
    assert not core.requests


def test_an_engine_in_which_nothing_fits_does_not_draft(core: Core) -> None:
    core.vllm_config.model_config.max_model_len = 20
    assert choose_drafts(core) == {1: 0}  # type: ignore[arg-type]
    assert set(core.scheduler.dynamic_sd_lookup) == {0}


def test_requests_that_end_too_early_are_not_timed(core: Core) -> None:
    step, steps = core.step_fn, []

    def ends() -> tuple[Any, bool]:
        steps.append(1)
        if len(steps) > 3:
            core.requests = {}
        return step()

    core.step_fn = ends  # type: ignore[method-assign]
    assert StepTimer(core)(1, 4) is None  # type: ignore[arg-type]
