"""Whose speculator vLLM's runner takes, and who tells it how many drafts were asked for."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tandem_plugin.engine.speculative import patches


class Silent(NamedTuple):
    """The state of a step of a runner that does not tell its speculator."""

    batch: Any


class Telling(NamedTuple):
    batch: Any
    num_spec_tokens_to_schedule: int


def runner(state: type) -> Any:
    """A module like vLLM's, with tandem's wrappers."""

    class Runner:
        def __init__(self, speculator: Any) -> None:
            self.speculator = speculator

        def execute_model(self, scheduler_output: Any, dummy_run: bool = False) -> Any:
            return scheduler_output, dummy_run

        def take_draft_token_ids(self) -> Any:
            return SimpleNamespace(draft_token_ids=[[-1] * 4] * 2)

    module: Any = ModuleType("runner")
    module.GPUModelRunner, module.ExecuteModelState = Runner, state
    module.init_speculator = lambda vllm_config, device, *rest: ("vLLM's", device, *rest)
    patches._wrap_runner(module)
    return module


def config(tandem: Any, drafting: Any) -> Any:
    return SimpleNamespace(additional_config=tandem, speculative_config=drafting)


@pytest.mark.parametrize("made", [config({}, object()), config({"tandem": {}}, None)])
def test_an_engine_that_does_not_draft_in_tandem_has_vllms_own_speculator(made: Any) -> None:
    assert runner(Telling).init_speculator(made, "cpu", "states") == ("vLLM's", "cpu", "states")


def test_a_speculator_learns_how_many_drafts_the_scheduler_asked_for() -> None:
    output = SimpleNamespace(num_spec_tokens_to_schedule=3)
    ours, vllms = SimpleNamespace(requested_drafts=None), SimpleNamespace()
    for speculator in (ours, vllms, None):
        made = runner(Silent).GPUModelRunner(speculator)
        assert made.execute_model(output, dummy_run=True) == (output, True)
        taken = made.take_draft_token_ids().draft_token_ids
        assert taken == [[-1] * (3 if speculator is ours else 4)] * 2
    assert ours.requested_drafts == 3
    assert vars(vllms) == {}


def test_a_runner_that_tells_its_speculator_itself_is_left_alone() -> None:
    ours = SimpleNamespace(requested_drafts=None)
    runner(Telling).GPUModelRunner(ours).execute_model(
        SimpleNamespace(num_spec_tokens_to_schedule=3)
    )
    assert ours.requested_drafts is None


@pytest.mark.parametrize(
    ("tandem", "chosen"),
    [({"tandem": {"drafts": "auto"}}, 1), ({"tandem": {"drafts": 4}}, 0), ({}, 0), (None, 0)],
)
def test_an_engine_chooses_its_drafts_once_before_it_answers(
    monkeypatch: pytest.MonkeyPatch, tandem: Any, chosen: int
) -> None:
    """In the caller's process after its start; in one of its own, at the start of its loop."""
    events: list[str] = []

    class EngineCore:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config = vllm_config
            events.append("start")

    class EngineCoreProc(EngineCore):
        def run_busy_loop(self) -> str:
            events.append("loop")
            return "ended"

    core: Any = ModuleType("core")
    core.EngineCore, core.EngineCoreProc = EngineCore, EngineCoreProc
    patches._wrap_core(core)
    timing: Any = ModuleType("tandem_plugin.engine.speculative.step_timing")
    timing.choose_drafts = lambda owner: events.append("choose")
    monkeypatch.setitem(sys.modules, timing.__name__, timing)
    given = SimpleNamespace(additional_config=tandem)
    core.EngineCore(given)
    assert events == ["start", *["choose"] * chosen]
    events.clear()
    assert core.EngineCoreProc(given).run_busy_loop() == "ended"
    assert events == ["start", *["choose"] * chosen, "loop"]
