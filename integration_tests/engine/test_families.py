"""Families of models: greedy tokens against Hugging Face, before and after every kind of sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from support import worker
from support.boundary_ids import word_boundaries
from support.engine import tandem_engine
from support.families import WINDOW, make_family
from support.graphs import with_graphs
from support.reference import Reference, algorithm_1, always, every_token
from support.requests import greedy
from support.speculation import needs_drafting

pytestmark = pytest.mark.long

CAP = 4
LENGTH = 12
PROMPTS = [
    "The senior and the junior write one response together, and the reader follows both of them",
    "class Foo(object):\n    def bar(self, one, two):\n        return one + two\n\nprint(Foo().bar",
    "import numpy\n",
    "return x of the tokens that both of them have written so far, and no other",
]
PAIRS = [
    ("llama-tied", "llama-tied"),
    ("gemma3-tied", "gemma3-tied"),
    ("mistral-window", "mistral-window"),
    ("qwen3-moe", "qwen3-moe"),
    ("qwen2-biased", "qwen2-biased"),
    ("qwen3-tied", "llama-tied"),
    ("llama-tied", "gemma3-tied"),
    ("qwen3-moe", "qwen3"),
    ("mistral-window", "qwen3-tied"),
    ("qwen3-tied", "mistral-window"),
]
"""Senior and junior."""
ENGINES = [("v1", "lockstep"), ("v2", "lockstep"), ("v2", "speculative"), ("v1", "streams")]
"""Runner and mode; streams: in lockstep under CUDA graphs, the junior on a stream of its own."""
# Experts, tied embeddings, windows and pairs of two families; the rest is long.
ALWAYS = {
    (("qwen3-moe", "qwen3"), ("v1", "lockstep")),
    (("llama-tied", "gemma3-tied"), ("v1", "lockstep")),
    (("mistral-window", "qwen3-tied"), ("v1", "lockstep")),
}
Sync = Callable[[Any, Path], None]


def loading(bucket: int, *, processed: bool, shuffled: bool = False) -> Sync:
    def sync(engine: Any, checkpoint: Path) -> None:
        engine.collective_rpc(worker.sync, args=(str(checkpoint), bucket, processed, shuffled))

    return sync


def reloading(engine: Any, checkpoint: Path) -> None:
    engine.collective_rpc(worker.reload, args=(str(checkpoint),))


def reloading_over_a_sync(engine: Any, checkpoint: Path) -> None:
    """With no pass between the two: the first one's weights were never computed with."""
    loading(1_000, processed=False)(engine, checkpoint.parent / "other")
    reloading(engine, checkpoint)


SYNCS: dict[str, Sync] = {
    "one tensor at a time": loading(1, processed=False),
    "one tensor at a time, processed": loading(1, processed=True),
    "buckets": loading(7, processed=False),
    "buckets, processed": loading(7, processed=True),
    "reload": reloading,
    "shuffled": loading(1_000, processed=False, shuffled=True),
    "shuffled, processed": loading(1_000, processed=True, shuffled=True),
    "reload over a sync": reloading_over_a_sync,
}


def engines() -> Iterator[Any]:
    for pair in PAIRS:
        for engine in ENGINES:
            marks = [] if (pair, engine) in ALWAYS else [pytest.mark.long]
            if engine[1] == "streams" and "qwen3-moe" in pair:
                continue  # refused
            if engine[1] in ("speculative", "streams"):  # both from vLLM 0.29 on
                marks.append(needs_drafting)
            yield pytest.param(pair, engine, id="-".join((*pair, *engine)), marks=marks)


def authors_of(tandem: dict[str, Any], word_ids: set[int]) -> Iterator[bool]:
    if tandem["schedule"] == "word":
        return algorithm_1(tandem["seed"], 0.5, CAP, word_ids)
    if tandem["schedule"] == "token":
        return every_token(tandem["seed"], 0.5)
    return always(tandem["schedule"] == "solo")


REQUESTS = [
    (prompt, {"seed": 11 + i, "schedule": schedule})
    for i, prompt in enumerate(PROMPTS)
    for schedule in ("word", "token", "solo", "junior")
]


def generate(engine: Any, tokenizer: Any) -> list[list[int]]:
    prompts = [tokenizer(prompt).input_ids for prompt, _ in REQUESTS]
    return greedy(engine, prompts, [tandem for _, tandem in REQUESTS], LENGTH)


def compared(
    reference: Reference, tokenizer: Any, responses: list[list[int]]
) -> tuple[int, int, int]:
    """Of all tokens: how many, how many are not their author's, at how many the models differ."""
    word_ids = word_boundaries(tokenizer)
    tokens = wrong = differ = 0
    for (prompt, tandem), response in zip(REQUESTS, responses, strict=True):
        ids = tokenizer(prompt).input_ids
        choices = reference.choices(ids, response, authors_of(tandem, word_ids))
        both = reference.both(ids, response)
        tokens += len(response)
        wrong += sum(one != other for one, other in zip(response, choices, strict=True))
        differ += int((both[True].argmax(-1) != both[False].argmax(-1)).sum())
    return tokens, wrong, differ


@pytest.mark.parametrize(("pair", "engine"), engines())
def test_greedy_tokens_are_their_authors_before_and_after_every_sync(
    tmp_path: Path,
    tokenizer: Any,
    record_property: Callable[[str, object], None],
    pair: tuple[str, str],
    engine: tuple[str, str],
) -> None:
    runner, mode = engine
    senior, junior = pair
    for seed, name in enumerate(("first", "other")):
        make_family(tmp_path / name, senior, seed=seed, tokenizer=tokenizer)
    make_family(tmp_path / "junior", junior, seed=2, tokenizer=tokenizer)
    references = {
        name: Reference(tmp_path / name, tmp_path / "junior") for name in ("first", "other")
    }
    assert max(len(tokenizer(prompt).input_ids) for prompt in PROMPTS) > 3 * WINDOW
    tandem = {"cap": CAP, "junior": tmp_path / "junior", "mode": mode}
    graphed: AbstractContextManager[dict[str, Any]] = nullcontext({})
    if mode == "streams":
        tandem |= {"mode": "lockstep", "junior_stream": True}
        graphed = with_graphs()
    seen = {}
    with graphed as graphs, tandem_engine(runner, tmp_path / "first", tandem, **graphs) as running:
        seen["start"] = compared(references["first"], tokenizer, generate(running, tokenizer))
        syncs = {} if senior == "qwen3-moe" else SYNCS  # a CPU packs experts, and rejects new ones
        if mode == "streams":
            assert running.collective_rpc(worker.forked_captures)[0] > 0
        for i, (kind, sync) in enumerate(syncs.items()):
            name = "first" if i % 2 else "other"
            sync(running, tmp_path / name)
            running.reset_prefix_cache()
            seen[kind] = compared(references[name], tokenizer, generate(running, tokenizer))
    tokens, wrong, differ = (sum(each) for each in zip(*seen.values(), strict=True))
    record_property("tokens, wrong, differ", f"{tokens}, {wrong}, {differ}")
    print(f"FAMILIES {senior} {junior} {runner} {mode}: {tokens} {wrong} {differ}")
    assert tokens == len(REQUESTS) * LENGTH * (1 + len(syncs))
    assert {kind: wrong for kind, (_, wrong, _) in seen.items() if wrong} == {}
    assert differ > 0.9 * tokens
