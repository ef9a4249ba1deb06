"""The composite's forward pass, over stand-ins for the two models."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refused import refused

from tandem_plugin.engine import composite, senior
from tandem_plugin.engine.step_authors import StepAuthors

SENIOR_WIDTH, JUNIOR_WIDTH = 4, 3


class Senior:
    """Returns its own view of a memory, as the last of a model's CUDA graphs does."""

    def __init__(self, memory: torch.Tensor, junior_width: int) -> None:
        self._memory = memory
        self._senior = Senior
        self.tandem_junior_width = junior_width
        self.tandem_junior_stream: Any = None
        self.tandem_images: Any = None

    def forward(self, input_ids: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        hidden = self._memory[: len(input_ids) * SENIOR_WIDTH].view(-1, SENIOR_WIDTH)
        return hidden.copy_(input_ids[:, None] + torch.zeros(SENIOR_WIDTH))

    def junior(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        width = self.tandem_junior_width
        hidden = self._memory[: len(input_ids) * width].view(-1, width)
        return hidden.copy_(-input_ids[:, None] + torch.zeros(width))


def test_hidden_states_are_right_where_both_models_return_the_same_memory() -> None:
    """As under CUDA graphs: what the first one returned is gone once the second one runs."""
    for width in (JUNIOR_WIDTH, SENIOR_WIDTH):
        model = Senior(torch.full((64,), torch.nan), width)
        ids = torch.arange(1, 6)
        hidden = senior._forward(model, ids, torch.arange(5))
        expected = torch.cat(
            [ids[:, None].expand(-1, SENIOR_WIDTH), -ids[:, None].expand(-1, width)], 1
        )
        assert torch.equal(hidden, expected.float())


def test_passes_run_beside_each_other_only_while_a_whole_step_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Beside:
        def both(self, run_senior: Any, run_junior: Any) -> torch.Tensor:
            calls.append("both")
            return torch.cat([run_senior().clone(), run_junior()], -1)

    calls: list[str] = []
    model, ids = Senior(torch.full((64,), torch.nan), JUNIOR_WIDTH), torch.arange(1, 6)
    without = senior._forward(model, ids, torch.arange(5))
    model.tandem_junior_stream = Beside()
    monkeypatch.setattr(senior, "is_capturing", lambda: False)
    assert torch.equal(senior._forward(model, ids, torch.arange(5)), without)
    assert calls == []
    monkeypatch.setattr(senior, "is_capturing", lambda: True)
    assert torch.equal(senior._forward(model, ids, torch.arange(5)), without)
    assert calls == ["both"]


def test_both_heads_run_while_vllm_measures_what_memory_logits_take() -> None:
    asked: list[torch.Tensor | None] = []
    step_authors = StepAuthors()
    step_authors.bind()
    heads = SimpleNamespace(logits=lambda hidden, authors: asked.append(authors))
    model = SimpleNamespace(tandem_step_authors=step_authors, tandem_heads=heads)
    hidden = torch.zeros(3, SENIOR_WIDTH + JUNIOR_WIDTH)
    senior._compute_logits(model, hidden)
    assert asked[0] is not None
    assert asked[0].tolist() == [True] * 3
    step_authors.post(None)
    step_authors.settle()
    senior._compute_logits(model, hidden)
    assert asked[1] is None


@pytest.mark.parametrize("tied", [True, False])
def test_a_second_name_of_a_weight_that_comes_alone_is_its_first(tied: bool) -> None:
    """In one call with the first it keeps its name, in any order, and vLLM ignores it."""
    model = torch.nn.Module()
    model.embed, model.norm, model.head = (torch.nn.Linear(2, 2, bias=False) for _ in range(3))
    if tied:
        model.head.weight = model.embed.weight
    weights = {name: torch.rand(2, 2) for name in ("embed.weight", "norm.weight", "head.weight")}

    def loaded(*names: str) -> dict[str, torch.Tensor]:
        return dict(composite._by_first_name(model, ((name, weights[name]) for name in names)))

    for names in itertools.permutations(weights):
        assert loaded(*names) == weights
    first = "embed.weight" if tied else "head.weight"
    assert loaded("norm.weight", "head.weight") == {
        "norm.weight": weights["norm.weight"],
        first: weights["head.weight"],
    }
    assert loaded("embed.weight") == {"embed.weight": weights["embed.weight"]}


def test_tied_names_are_compared_as_the_class_maps_them() -> None:
    """A class that sees images has its text model in a part of its own."""

    class Seeing(torch.nn.Module):
        hf_to_vllm_mapper = SimpleNamespace(
            apply_list=lambda names: [
                name.replace("lm_head.", "language_model.head.").replace("model.text.", "text.")
                for name in names
            ]
        )

    model = Seeing()
    model.text, model.language_model = torch.nn.Module(), torch.nn.Module()
    model.text.embed = torch.nn.Linear(2, 2, bias=False)
    model.language_model.head = torch.nn.Linear(2, 2, bias=False)
    model.language_model.head.weight = model.text.embed.weight
    weight = torch.rand(2, 2)
    for sent, loaded in (
        (["lm_head.weight"], ["text.embed.weight"]),
        (["model.text.embed.weight"], ["model.text.embed.weight"]),
        (
            ["lm_head.weight", "model.text.embed.weight"],
            ["model.text.embed.weight", "lm_head.weight"],
        ),
    ):
        named = composite._by_first_name(model, ((name, weight) for name in sent))
        assert [name for name, _ in named] == loaded


def test_embeddings_in_place_of_token_ids_are_refused() -> None:
    model = Senior(torch.zeros(64), JUNIOR_WIDTH)
    with refused("request-prompt-embeds"):
        senior._forward(model, None, torch.arange(5))
    with refused("request-prompt-embeds"):
        senior._forward(model, None, torch.arange(5), inputs_embeds=torch.zeros(5, SENIOR_WIDTH))
