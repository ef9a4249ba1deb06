"""Pairs of models that end generation with other ids, on real engines: where responses end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from refused import refused
from support.engine import tandem_engine
from support.models import make_model

from tandem_plugin.engine.wire import PREFIX

LENGTH = 40
BASE, CHAT = "<|endoftext|>", "<|im_end|>"
TWELVE: list[Any] = [({"seed": seed}, {}) for seed in range(12)]
"""Requests of the team."""

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, tokenizer: Any) -> Make:
    """A checkpoint that writes one token for ever, and ends generation with these tokens."""

    def made(name: str, token: str, ends: list[str], own: str | None) -> Path:
        folder = make_model(tmp_path / name, seed=0, tokenizer=tokenizer)
        _write_for_ever(folder, tokenizer.convert_tokens_to_ids(token))
        ids = [tokenizer.convert_tokens_to_ids(end) for end in ends]
        _set(folder / "generation_config.json", eos_token_id=ids)
        _set(folder / "tokenizer_config.json", eos_token=own)
        return folder

    return made


def _set(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def _write_for_ever(folder: Path, token_id: int) -> None:
    """Change a checkpoint's weights: every hidden state is the same, and so is every logit."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name or "lm_head" in name:
                weight.zero_()
        model.get_input_embeddings().weight.fill_(1.0)
        model.get_output_embeddings().weight[token_id] = 1.0
    model.save_pretrained(folder)


def responses(senior: Path, junior: Path, *requests: Any) -> list[Any]:
    """The completion of each request: tandem parameters and sampling parameters.

    None for tandem parameters: the senior alone.
    """
    from vllm import SamplingParams

    with tandem_engine("v1", senior, {"junior": junior}) as engine:
        assert engine.llm_engine.model_config.architectures[0].startswith(PREFIX)
        params = [
            SamplingParams(
                **({"temperature": 0, "max_tokens": LENGTH} | sampling),
                extra_args=None if tandem is None else {"tandem": tandem},
            )
            for tandem, sampling in requests
        ]
        prompts = [{"prompt_token_ids": [5, 6]} for _ in requests]
        outputs = engine.generate(prompts, params, use_tqdm=False)
    return [output.outputs[0] for output in outputs]


def test_team_of_a_base_senior_and_a_chat_junior_ends_where_the_junior_does(
    make: Make, tokenizer: Any
) -> None:
    """The junior writes the end of a turn: nobody would stop it. The senior alone is as it was."""
    senior = make("senior", "Ġthe", [BASE], BASE)
    junior = make("junior", CHAT, [CHAT, BASE], CHAT)
    junior_alone = {"seed": 0, "schedule": "junior"}
    others: list[Any] = [
        (None, {}),
        ({"seed": 0, "schedule": "solo"}, {}),
        (junior_alone, {"ignore_eos": True}),
        (junior_alone, {"min_tokens": 9}),
    ]
    found = responses(senior, junior, *TWELVE, *others)
    end, the = (tokenizer.convert_tokens_to_ids(token) for token in (CHAT, "Ġthe"))
    team, (alone, solo, ignoring, late) = found[:12], found[12:]
    for one in team:
        assert one.finish_reason == "stop"
        assert list(one.token_ids) == [the] * (len(one.token_ids) - 1) + [end]
    assert len({len(one.token_ids) for one in team}) > 1  # the senior began some of them
    assert list(alone.token_ids) == list(solo.token_ids) == [the] * LENGTH
    assert list(ignoring.token_ids) == [end] * LENGTH
    assert end not in late.token_ids[:9]
    assert late.token_ids[9:] == [end]


def test_team_of_a_chat_senior_and_a_base_junior_ends_at_the_seniors_ids(make: Make) -> None:
    senior = make("senior", "Ġthe", [CHAT, BASE], CHAT)
    found = responses(senior, make("junior", BASE, [BASE], BASE), *TWELVE)
    assert {one.finish_reason for one in found} == {"stop"}


def test_ordinary_token_that_ends_the_junior_does_not_cut_the_seniors_text(
    make: Make, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A leftover in the junior's generation_config.json is a word of the senior's text."""
    senior = make("senior", "Ġthe", [CHAT], CHAT)
    junior = make("junior", CHAT, [CHAT, "Ġthe"], CHAT)
    the, end = (tokenizer.convert_tokens_to_ids(token) for token in ("Ġthe", CHAT))
    with caplog.at_level(logging.WARNING):
        found = responses(senior, junior, *TWELVE)
    assert any(f"{the} ('Ġthe')" in record.getMessage() for record in caplog.records)
    assert max(len(one.token_ids) for one in found) > 2
    for one in found:
        assert list(one.token_ids) == [the] * (len(one.token_ids) - 1) + [end]


def test_junior_that_ends_with_an_ordinary_token_alone_is_refused(make: Make) -> None:
    senior = make("senior", "Ġthe", [BASE], BASE)
    junior = make("junior", CHAT, ["Ġthe"], None)
    with refused("generation-ends-differ"):
        responses(senior, junior, *TWELVE)
