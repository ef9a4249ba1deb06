"""The scheduler whose drafts follow the load: what it hears of rounds and steps, what it asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.config import SpeculativeConfig
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.speculative import scheduler as module
from tandem_plugin.engine.speculative.configure import choose_scheduler
from tandem_plugin.engine.speculative.round_graphs import lengths_of_rounds

MOST = 4


class Vllms:
    """What tandem's schedulers stand before."""

    def __init__(self) -> None:
        config = SimpleNamespace(hf_text_config=SimpleNamespace())
        self.vllm_config = SimpleNamespace(
            model_config=config,
            speculative_config=SimpleNamespace(
                draft_model_config=config, max_num_new_slots_for_drafting=1
            ),
            scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        )
        self.num_spec_tokens = MOST
        self.max_num_scheduled_tokens = 64
        self.running: list[Any] = []
        self.dynamic_sd_lookup: Any = [MOST] * 9
        self.taken: list[list[int]] = []

    def schedule(self, requests: int) -> Any:
        return SimpleNamespace(num_spec_tokens_to_schedule=self.dynamic_sd_lookup[requests])

    def make_spec_decoding_stats(self, *args: Any, **options: Any) -> Any:
        return args, options

    def update_from_output(self, output: Any, model_output: Any) -> Any:
        return model_output

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        self.taken = draft_token_ids.draft_token_ids


class Scheduler(module._Adaptive, Vllms):
    pass


class Told:
    """A draft length that only listens."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = list(lengths)
        self.heard: list[Any] = []

    def choose(self, requests: int) -> int:
        self.heard.append(requests)
        return self.lengths.pop(0)

    def observe(self, drafted: int, written: int) -> None:
        self.heard.append((drafted, written))

    def time(self, requests: int, drafts: int, seconds: float) -> None:
        self.heard.append((requests, drafts, seconds))


def step(requests: int, checked: int, asked: int) -> Any:
    return SimpleNamespace(
        num_scheduled_tokens=dict.fromkeys(map(str, range(requests)), checked + 1),
        total_num_scheduled_tokens=requests * (checked + 1),
        scheduled_spec_decode_tokens={str(i): [-1] * checked for i in range(requests) if checked},
        num_spec_tokens_to_schedule=asked,
    )


def test_each_steps_length_is_asked_for_by_its_number_of_requests() -> None:
    made = Scheduler()
    made.draft_length = told = Told(2, 0)  # type: ignore[assignment]
    assert made.schedule(7).num_spec_tokens_to_schedule == 2
    drafts = SimpleNamespace(draft_token_ids=[[-1] * MOST] * 2)
    made.update_draft_token_ids(drafts)  # as many as there can be, where the runner hands these out
    assert made.taken == [[-1, -1], [-1, -1]]
    assert made.schedule(3).num_spec_tokens_to_schedule == 0
    made.update_draft_token_ids(drafts)
    assert made.taken == [[], []]
    assert told.heard == [7, 3]


def test_a_length_is_asked_for_by_all_that_run_and_has_room_for_them() -> None:
    """The next step has them all, though this one had no room for some."""
    made = Scheduler()
    asked = {}
    for made.running in ([None] * count for count in range(1, 65)):
        asked[len(made.running)] = {made.dynamic_sd_lookup[1] for _ in range(40)}
    for count, lengths in asked.items():
        # A request's drafts, its next token, and one more that vLLM keeps for the draft model.
        fitting = {k for k in (0, 1, 2, 4) if not k or count * (k + 2) <= 64}
        assert lengths <= fitting
        assert max(lengths) == max(fitting)
    made.running, made.max_num_scheduled_tokens = [None] * 8, 16
    assert {made.dynamic_sd_lookup[8] for _ in range(40)} == {0, 1}


def test_rounds_and_the_time_of_steps_are_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1.0, 1.5, 3.0, 3.25])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(now))
    made = Scheduler()
    made.draft_length = told = Told()  # type: ignore[assignment]
    given = made.make_spec_decoding_stats("stats", 4, 2, "rest", request_id="a")
    assert given == (("stats", 4, 2, "rest"), {"request_id": "a"})
    for checked, asked in [(4, 4), (4, 4), (4, 0), (0, 0)]:
        assert made.update_from_output(step(3, checked, asked), "its tokens") == "its tokens"
    assert told.heard == [(4, 3), (3, 4, 0.5)]


@pytest.mark.parametrize(("asynchronous", "kind"), [(True, "Async"), (False, "")])
def test_vllm_is_told_of_every_length(asynchronous: bool, kind: str) -> None:
    """By a table from which it makes graphs; the longest and none first, where few requests run."""
    speculative = SimpleNamespace(
        num_speculative_tokens=6, num_speculative_tokens_per_batch_size=None
    )
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous, scheduler_cls=None),
        speculative_config=speculative,
    )
    assert lengths_of_rounds(config) == (6,)
    fixed = TandemConfig.from_mapping({"mode": "speculative", "num_draft_tokens": 6})
    choose_scheduler(config, fixed)
    assert config.scheduler_config.scheduler_cls is None
    assert lengths_of_rounds(config) == (6,)
    choose_scheduler(
        config, TandemConfig.from_mapping({**fixed.settings(), "adaptive_drafts": True})
    )
    assert config.scheduler_config.scheduler_cls.endswith(f".Adaptive{kind}Scheduler")
    assert sorted(lengths_of_rounds(config)) == [0, 1, 2, 4, 6]
    assert "num_speculative_tokens_per_batch_size" in SpeculativeConfig.__dataclass_fields__
    table = speculative.num_speculative_tokens_per_batch_size
    assert set(build_dynamic_sd_schedule_lookup(table, 256, 6)[1:]) == {0, 1, 2, 4, 6}
    assert set(build_dynamic_sd_schedule_lookup(table, 2, 6)[1:]) == {0, 6}
