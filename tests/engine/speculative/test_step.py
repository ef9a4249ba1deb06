"""The contract of a speculative step: what is asked, who asks it, and in which order."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("vllm")

from vllm.v1.worker.gpu.sample.output import SamplerOutput
from vllm.v1.worker.gpu.sample.states import NO_LOGPROBS

from tandem_plugin.engine.speculative import samplers, speculator, state, step
from tandem_plugin.engine.speculative.samplers import AuthorRejectionSampler, UndraftedSampler
from tandem_plugin.engine.speculative.step import (
    DraftingState,
    JuniorDrafts,
    SamplingState,
    VerifyingState,
)

SLOTS, DRAFTS, IDS = 3, 2, 7


def members(protocol: type) -> set[str]:
    own = {name for kind in protocol.__mro__ for name in vars(kind)}
    annotated = {
        name for kind in protocol.__mro__ for name in vars(kind).get("__annotations__", ())
    }
    return {name for name in own | annotated if not name.startswith("_")}


def asked(module: Any, *names: str) -> set[str]:
    """The attributes that a module reads or calls of an object by one of these names."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in names
    }


@pytest.mark.parametrize(
    ("protocol", "module", "names"),
    [
        (VerifyingState, samplers, ["self._state"]),
        (DraftingState, speculator, ["state", "model_state"]),
        (JuniorDrafts, state, ["self._junior_drafts"]),
    ],
)
def test_each_protocol_has_what_its_asker_asks_and_nothing_else(
    protocol: type, module: Any, names: list[str]
) -> None:
    assert asked(module, *names) == members(protocol)


def test_the_sampler_of_undrafted_tokens_asks_for_nothing_of_drafts() -> None:
    tree = ast.parse(Path(samplers.__file__).read_text(encoding="utf-8"))
    (sampler,) = (n for n in tree.body if getattr(n, "name", "") == UndraftedSampler.__name__)
    asks = set(re.findall(r"self\._state\.(\w+)", ast.unparse(sampler)))
    assert asks == members(SamplingState)


class State:
    """Notes what samplers ask of it, of two requests.

    Slot 0 has drafts, the second and the bonus token the junior's; slot 1 has none, and the
    junior writes its token.
    """

    draft_tokens = torch.tensor([[4, 5], [-1, -1], [6, -1]])

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.outcome: Any = None

    def set_memory_aside(self) -> None:
        self.calls.append("set_memory_aside")

    def take_authors(self, batch: Any) -> torch.Tensor:
        self.calls.append("take_authors")
        return torch.tensor([True, False])

    def keep_states(self, batch: Any) -> None:
        self.calls.append("keep_states")

    def chain_authors(self) -> torch.Tensor:
        self.calls.append("chain_authors")
        return torch.tensor([[True, False, False], [False, True, True], [True, True, True]])

    def fill_undrafted_rows(self, logits: Any, batch: Any, authors: Any) -> Any:
        self.calls.append("fill_undrafted_rows")
        return logits

    def fill_kept_drafts(self, logits: Any, batch: Any, is_kept: torch.Tensor) -> Any:
        self.calls.append("fill_kept_drafts")
        assert is_kept.tolist() == [False, True, False, False]
        return logits

    def count_round(self, outcome: Any) -> None:
        self.calls.append("count_round")
        self.outcome = outcome


def sampler(logprobs: int = 1) -> Any:
    states = SimpleNamespace(max_num_logprobs=lambda slots: logprobs)
    return SimpleNamespace(sampling_states=states)


CONFIG: Any = SimpleNamespace(
    num_speculative_tokens=DRAFTS, enable_adaptive_verification=False,
    rejection_sample_method="standard",
)  # fmt: skip
BATCH: Any = SimpleNamespace(
    idx_mapping=torch.tensor([0, 1]), idx_mapping_np=np.array([0, 1]), has_prefill=False,
    cu_num_logits=torch.tensor([0, 3, 4]), expanded_idx_mapping=torch.tensor([0, 0, 0, 1]),
    expanded_local_pos=torch.tensor([0, 1, 2, 0]),
)  # fmt: skip
"""The request in slot 0 has two drafts to verify, that in slot 1 none."""


def run_round(made: State, monkeypatch: pytest.MonkeyPatch, logprobs: int = 1) -> Any:
    """A round whose drafts vLLM accepts, all."""

    def accept(self: Any, logits: Any, batch: Any, draft_logits: Any) -> Any:
        made.calls.append("vLLM")
        return SamplerOutput(
            torch.zeros(2, DRAFTS + 1), None, None, torch.tensor([3, 1]), torch.tensor([0, 0])
        )

    monkeypatch.setattr(samplers.RejectionSampler, "__call__", accept)
    rejection: Any = AuthorRejectionSampler(made, sampler(logprobs), CONFIG, torch.device("cpu"))
    return rejection(torch.zeros(4, IDS), BATCH, torch.zeros(SLOTS, DRAFTS, IDS))


def test_a_step_with_drafts_makes_the_calls_in_the_order_of_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = State()
    run_round(made, monkeypatch)
    told = [
        name
        for name in re.findall(r"``(\w+)``", step.__doc__ or "")
        if name in members(VerifyingState) - {"set_memory_aside", "draft_tokens"}
    ]
    assert [name for name in made.calls if name != "vLLM"] == told
    assert made.calls.index("vLLM") == made.calls.index("count_round") - 1


def test_a_juniors_bonus_token_is_dropped_and_a_token_without_drafts_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = State()
    output = run_round(made, monkeypatch)
    assert output.num_sampled.tolist() == made.outcome.num_written.tolist() == [2, 1]
    assert output.num_rejected.tolist() == [1, 0]
    assert made.outcome.num_drafts.tolist() == [2, 0]
    assert made.outcome.num_accepted.tolist() == [2, 0]
    assert made.outcome.authors.tolist() == [[True, False, False], [False, True, True]]


def test_logits_of_kept_drafts_are_the_juniors_only_for_logprobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = State()
    run_round(made, monkeypatch, logprobs=NO_LOGPROBS)
    assert "fill_kept_drafts" not in made.calls


def test_a_step_without_drafts_makes_the_calls_of_the_contract_without_a_chain() -> None:
    made = State()
    undrafted: Any = UndraftedSampler(made, lambda logits, batch: made.calls.append("vLLM"))
    undrafted(torch.zeros(2, IDS), BATCH)
    assert made.calls == [
        "set_memory_aside", "take_authors", "keep_states", "fill_undrafted_rows", "vLLM",
    ]  # fmt: skip
