"""Weights: the senior is synced any number of times, the junior never changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import requests, worker
from support.engine import tandem_engine
from support.families import make_family, quantise
from support.reference import Reference, alternating, always
from support.requests import PROMPTS
from support.speculation import V1_FIRST

LENGTH = 16


@pytest.fixture(scope="module", params=V1_FIRST, ids="-".join)
def engine(request: pytest.FixtureRequest, checkpoints: dict[str, Path]) -> Any:
    """A senior of dummy weights, as trainers start it; strict alternation token by token."""
    runner, mode = request.param
    tandem = {"schedule": "step", "boundaries": "every", "junior": checkpoints["junior"]}
    tandem["mode"] = mode
    with tandem_engine(runner, checkpoints["senior"], tandem, load_format="dummy") as engine:
        yield engine


def greedy(engine: Any, tokenizer: Any, tandem: dict[str, Any]) -> list[list[int]]:
    prompts = [tokenizer(prompt).input_ids for prompt in PROMPTS]
    return requests.greedy(engine, prompts, [tandem] * len(prompts), LENGTH)


def expected(reference: Reference, tokenizer: Any, authors: Any) -> list[list[int]]:
    return [reference.greedy(tokenizer(prompt).input_ids, LENGTH, authors()) for prompt in PROMPTS]


def test_the_junior_is_loaded_although_the_senior_starts_from_dummy_weights(
    engine: Any, tokenizer: Any, checkpoints: dict[str, Path]
) -> None:
    reference = Reference(checkpoints["senior"], checkpoints["junior"])
    junior = greedy(engine, tokenizer, {"seed": 1, "schedule": "junior"})
    assert junior == expected(reference, tokenizer, lambda: always(False))
    senior = greedy(engine, tokenizer, {"seed": 1, "schedule": "solo"})
    assert senior != expected(reference, tokenizer, lambda: always(True))


@pytest.mark.parametrize("checkpoint", ["junior", "senior"])
def test_reloading_in_place_changes_the_senior_and_no_bit_of_the_junior(
    engine: Any, tokenizer: Any, checkpoints: dict[str, Path], checkpoint: str
) -> None:
    before = engine.collective_rpc(worker.junior_digest)
    engine.collective_rpc(worker.reload, args=(str(checkpoints[checkpoint]),))
    engine.reset_prefix_cache()
    assert engine.collective_rpc(worker.junior_digest) == before
    reference = Reference(checkpoints[checkpoint], checkpoints["junior"])
    tokens = greedy(engine, tokenizer, {"seed": 1})
    assert tokens == expected(reference, tokenizer, lambda: alternating(True))


@pytest.mark.parametrize(
    ("checkpoint", "bucket", "processed"),
    [("senior", 1, True), ("junior", 5, True), ("senior", 1, False), ("junior", 1_000, False)],
)
def test_each_weight_sync_changes_the_senior_and_no_bit_of_the_junior(
    engine: Any,
    tokenizer: Any,
    checkpoints: dict[str, Path],
    checkpoint: str,
    bucket: int,
    processed: bool,
) -> None:
    """Also where the trainer only loads, as OpenRLHF does: what was packed must follow."""
    before = engine.collective_rpc(worker.junior_digest)
    synced = engine.collective_rpc(
        worker.sync, args=(str(checkpoints[checkpoint]), bucket, processed)
    )
    assert synced[0] > 20
    engine.reset_prefix_cache()
    assert engine.collective_rpc(worker.junior_digest) == before
    reference = Reference(checkpoints[checkpoint], checkpoints["junior"])
    for first in ("senior", "junior"):
        tokens = greedy(engine, tokenizer, {"seed": 1, "first": first})
        senior_first = first == "senior"
        assert tokens == expected(reference, tokenizer, lambda: alternating(senior_first))  # noqa: B023


def test_parameters_are_the_seniors_and_the_juniors_tensors_are_buffers(engine: Any) -> None:
    """By plain names; buffers survive a deep sleep."""
    (names,) = engine.collective_rpc(worker.parameter_names)
    assert "model.layers.0.self_attn.qkv_proj.weight" in names
    assert not [name for name in names if "junior" in name]
    (buffers,) = engine.collective_rpc(worker.junior_buffer_names)
    assert [name for name in buffers if name.endswith("layers.0.self_attn.qkv_proj.weight")]
    assert len(buffers) > 10


@pytest.mark.long
@pytest.mark.parametrize("kind", ["quantised", "experts"])
def test_new_weights_for_packed_layers_are_rejected_on_a_cpu(
    checkpoints: dict[str, Path], tokenizer: Any, tmp_path: Path, kind: str
) -> None:
    family = {"quantised": "qwen3", "experts": "qwen3-moe"}[kind]
    senior, new = (
        make_family(tmp_path / name, family, seed=seed, tokenizer=tokenizer)
        for seed, name in enumerate(("senior", "new"))
    )
    if kind == "quantised":
        senior, new = quantise(senior), quantise(new)
    with tandem_engine("v1", senior, {"junior": checkpoints["junior"]}) as engine:
        before = greedy(engine, tokenizer, {"seed": 1})
        with pytest.raises(Exception, match="packed-layer-not-reloadable"):
            engine.collective_rpc(worker.sync, args=(str(new), 7))
        engine.reset_prefix_cache()
        assert greedy(engine, tokenizer, {"seed": 1}) == before
        with pytest.raises(Exception, match="packed-layer-not-reloadable"):
            engine.collective_rpc(worker.reload, args=(str(new),))
