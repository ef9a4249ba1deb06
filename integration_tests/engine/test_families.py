"""Families of models: greedy tokens against Hugging Face, before and after every kind of sync.

With recurrent states also under little memory, cached prefixes and chunked prompts, and after a
sleep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support import sleeping, worker
from support.boundary_ids import word_boundaries
from support.drafting import has_drafting
from support.engine import tandem_engine
from support.families import WINDOW, make_family
from support.graphs import with_graphs
from support.hybrids import with_states
from support.metrics import metric
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
STATES = [
    ("qwen3.5", "qwen3.5"),
    ("granite4", "granite4"),
    ("falcon-h1", "falcon-h1"),
    ("nemotron-h", "nemotron-h"),
    ("lfm2", "lfm2"),
    ("qwen3-next", "qwen3-next"),
    ("granite4-moe", "granite4-moe"),
    ("granite4", "granite4-wide"),
    ("granite4-wide", "granite4"),
    ("qwen3.5", "qwen3.5-large"),
    ("qwen3.5", "qwen3"),
    ("granite4", "qwen3-wide"),
    ("qwen3.5", "granite4"),
    ("lfm2", "qwen3.5"),
    ("granite4", "lfm2"),
]
"""The same where the senior keeps recurrent states: other weights, shapes, attention alone, another
kind of state."""
ITSELF = ["qwen3.5", "granite4"]
"""The same beside their own first checkpoint."""
MIXTURES = {"qwen3-moe", "qwen3-next", "granite4-moe"}
"""A CPU packs experts, and rejects new ones."""
needs_states = pytest.mark.skipif(
    not has_drafting(), reason="recurrent states need vLLM 0.29, as drafting does"
)
ENGINES = [("v1", "lockstep"), ("v2", "lockstep"), ("v2", "speculative"), ("v1", "streams")]
"""Runner and mode; streams: in lockstep under CUDA graphs, the junior on a stream of its own."""
# Experts, tied embeddings, windows and pairs of two families; the rest is long.
ALWAYS = {
    (("qwen3-moe", "qwen3"), ("v1", "lockstep")),
    (("llama-tied", "gemma3-tied"), ("v1", "lockstep")),
    (("mistral-window", "qwen3-tied"), ("v1", "lockstep")),
    (("qwen3.5", "granite4"), ("v1", "lockstep")),
}
ON_V2 = {("qwen3.5", "qwen3.5"), ("granite4", "granite4-wide"), ("qwen3.5", "granite4")}
"""Of the pairs with states: the interpreter takes long."""
ON_V2_SYNCS = ("buckets", "asleep before a sync")
BLOCKS = 40
"""Of an engine with little memory: one block is vLLM's own."""
PREEMPTED = 50
"""After so many steps all requests are, where memory alone would not do it."""
TIGHT = {"v1": 40, "v2": 12}
"""Tokens of each response there."""
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


def asleep_before_a_sync(engine: Any, checkpoint: Path) -> None:
    """At level 2, which discards every weight but the junior's."""
    call = engine.collective_rpc
    call(sleeping.prepare)
    before = call(sleeping.junior_bits)
    call(sleeping.sleep)
    assert call(sleeping.junior_bits) != before, "nothing was discarded"
    call(sleeping.wake_up, args=(None,))
    assert call(sleeping.junior_bits) == before
    call(sleeping.pack_the_junior_anew)
    loading(1_000, processed=False)(engine, checkpoint)


def engines() -> Iterator[Any]:
    for pair in PAIRS:
        for engine in ENGINES:
            marks = [] if (pair, engine) in ALWAYS else [pytest.mark.long]
            if engine[1] == "streams" and "qwen3-moe" in pair:
                continue  # refused
            if engine[1] in ("speculative", "streams"):  # both from vLLM 0.29 on
                marks.append(needs_drafting)
            yield pytest.param(pair, engine, id="-".join((*pair, *engine)), marks=marks)
    for pair in STATES:
        for engine in ENGINES[: 2 if pair in ON_V2 else 1]:
            marks = [needs_states]
            if (pair, engine) not in ALWAYS:
                marks.append(pytest.mark.long)
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


def generate(engine: Any, tokenizer: Any, length: int = LENGTH, copies: int = 1) -> list[list[int]]:
    """Responses to all requests. copies: of the text in each prompt."""
    prompts = [tokenizer(prompt * copies).input_ids for prompt, _ in REQUESTS]
    return greedy(engine, prompts, [tandem for _, tandem in REQUESTS], length)


def compared(
    reference: Reference, tokenizer: Any, responses: list[list[int]], copies: int = 1
) -> tuple[int, int, int]:
    """Of all tokens: how many, how many are not their author's, at how many the models differ."""
    word_ids = word_boundaries(tokenizer)
    tokens = wrong = differ = 0
    for (prompt, tandem), response in zip(REQUESTS, responses, strict=True):
        ids = tokenizer(prompt * copies).input_ids
        choices = reference.choices(ids, response, authors_of(tandem, word_ids))
        both = reference.both(ids, response)
        tokens += len(response)
        wrong += sum(one != other for one, other in zip(response, choices, strict=True))
        differ += int((both[True].argmax(-1) != both[False].argmax(-1)).sum())
    return tokens, wrong, differ


@pytest.mark.parametrize(("pair", "engine"), list(engines()))
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
    syncs = {} if senior in MIXTURES else SYNCS
    with ExitStack() as stack:
        graphs = stack.enter_context(graphed)
        if pair in STATES:
            graphs |= stack.enter_context(with_states())
            syncs = syncs and {**syncs, "asleep before a sync": asleep_before_a_sync}
            if runner == "v2":  # interpreted: each round takes long
                syncs = {kind: sync for kind, sync in syncs.items() if kind in ON_V2_SYNCS}
        running = stack.enter_context(tandem_engine(runner, tmp_path / "first", tandem, **graphs))
        seen["start"] = compared(references["first"], tokenizer, generate(running, tokenizer))
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


def memory() -> Iterator[Any]:
    for pair in STATES:
        for runner in ("v1", "v2") if pair in ON_V2 else ("v1",):
            for caching in (True, False):
                quick = (pair, runner, caching) == (("qwen3.5", "granite4"), "v1", True)
                marks = [needs_states, *([] if quick else [pytest.mark.long])]
                name = "-".join((*pair, runner, "caching" if caching else "without caching"))
                yield pytest.param(pair, runner, caching, id=name, marks=marks)


@pytest.mark.parametrize(("pair", "runner", "caching"), list(memory()))
def test_states_survive_preemption_chunked_prompts_and_cached_prefixes(
    tmp_path: Path, tokenizer: Any, pair: tuple[str, str], runner: str, caching: bool
) -> None:
    """Of prompts of several blocks few fit: states are copied, discarded and computed anew.

    Without cached prefixes a request needs fewer blocks, and on V2 responses are short, so that all
    are preempted now and then.
    """
    copies, length = 5, TIGHT[runner]
    for seed, (role, family) in enumerate(zip(("senior", "junior"), pair, strict=True)):
        make_family(tmp_path / role, family, seed=seed, tokenizer=tokenizer)
    tight = {
        "max_model_len": 512,
        "block_size": 16,
        "num_gpu_blocks_override": BLOCKS,
        "max_num_batched_tokens": 64,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": caching,
        "disable_log_stats": False,
    }
    counters = "vllm:num_preemptions_total", "vllm:prefix_cache_hits_total"
    tandem = {"cap": CAP, "junior": tmp_path / "junior"}
    with (
        with_states() as options,
        tandem_engine(runner, tmp_path / "senior", tandem, **tight, **options) as engine,
    ):
        before = [metric(name) for name in counters]  # an engine starts vLLM's counters anew
        if not caching or runner == "v2":
            engine.collective_rpc(worker.preempt_all_every, args=(PREEMPTED,))
        rounds = [generate(engine, tokenizer, length, copies) for _ in range(1 + caching)]
        engine.collective_rpc(worker.mend_speculation)
        cache = engine.llm_engine.vllm_config.cache_config
        assert cache.mamba_cache_mode == ("align" if caching else "none")
    preempted, hits = (metric(name) - old for name, old in zip(counters, before, strict=True))
    reference = Reference(tmp_path / "senior", tmp_path / "junior")
    found = [compared(reference, tokenizer, responses, copies) for responses in rounds]
    print(f"STATES {pair} {runner} {caching}: {found}, {preempted} preempted, {hits} hit")
    for tokens, wrong, differ in found:
        assert (tokens, wrong) == (len(REQUESTS) * length, 0)
        assert differ > 0.9 * tokens
    assert preempted > 0
    assert (hits > 0) is caching


@needs_states
@pytest.mark.long
@pytest.mark.parametrize("family", ITSELF)
def test_states_of_a_senior_and_of_its_own_first_checkpoint_are_two(
    tmp_path: Path, tokenizer: Any, family: str
) -> None:
    """No junior is named; a sync reaches the senior alone."""
    first, other = tmp_path / "first", tmp_path / "other"
    for seed, checkpoint in enumerate((first, other)):
        make_family(checkpoint, family, seed=seed, tokenizer=tokenizer)
    with with_states() as options, tandem_engine("v1", first, {"cap": CAP}, **options) as engine:
        start = generate(engine, tokenizer)
        loading(7, processed=False)(engine, other)
        engine.reset_prefix_cache()
        synced = generate(engine, tokenizer)
    found = compared(Reference(first, first), tokenizer, start)
    assert found == (len(REQUESTS) * LENGTH, 0, 0)
    tokens, wrong, differ = compared(Reference(other, first), tokenizer, synced)
    print(f"ITSELF {family}: {found}, {tokens} {wrong} {differ}")
    assert (tokens, wrong) == (len(REQUESTS) * LENGTH, 0)
    assert differ > 0.9 * tokens


@needs_states
@pytest.mark.long
@pytest.mark.skipif(
    not torch.cpu._is_avx512_bf16_supported(), reason="a CPU that packs no convolutions"
)
@pytest.mark.parametrize("family", ["qwen3.5-large", "granite4"])
def test_syncs_reach_convolutions_that_a_cpu_has_packed(
    tmp_path: Path, tokenizer: Any, family: str
) -> None:
    """By vLLM's own kernels, which round: stale weights would be wrong at most tokens, and far."""
    for seed, name in enumerate(("first", "other", "junior")):
        make_family(tmp_path / name, family, seed=seed, tokenizer=tokenizer)
    kinds = {**SYNCS, "asleep before a sync": asleep_before_a_sync}
    if family == "granite4":
        kinds = {kind: sync for kind, sync in kinds.items() if "reload" not in kind}
    junior, seen = tmp_path / "junior", {}
    with (
        with_states(native=True) as options,
        tandem_engine(
            "v1", tmp_path / "first", {"cap": CAP, "junior": junior}, dtype="bfloat16", **options
        ) as engine,
    ):
        responses = {"start": ("first", generate(engine, tokenizer))}
        for i, (kind, sync) in enumerate(kinds.items()):
            name = "first" if i % 2 else "other"
            sync(engine, tmp_path / name)
            engine.reset_prefix_cache()
            responses[kind] = name, generate(engine, tokenizer)
        if family == "granite4":
            with pytest.raises(Exception, match="hybrid-reload-on-cpu"):
                reloading(engine, tmp_path / "other")
    references = {
        name: Reference(tmp_path / name, junior, weights=torch.bfloat16)
        for name in ("first", "other")
    }
    for kind, (name, texts) in responses.items():
        tokens, wrong, _ = compared(references[name], tokenizer, texts)
        seen[kind] = wrong / tokens, gap(references[name], tokenizer, texts)
    print(f"NATIVE {family}: {seen}")
    for share, largest in seen.values():
        assert share < 0.2
        assert largest < 1.5


@needs_states
@pytest.mark.long
def test_drafts_for_a_gated_delta_net_are_right_up_to_rounding(
    tmp_path: Path, tokenizer: Any
) -> None:
    """By vLLM's own kernels; the senior's states follow what was accepted of each round."""
    make_family(tmp_path / "senior", "qwen3.5-large", seed=0, tokenizer=tokenizer)
    make_family(tmp_path / "junior", "qwen3", seed=1, tokenizer=tokenizer)
    tandem = {
        "cap": CAP,
        "junior": tmp_path / "junior",
        "mode": "speculative",
        "drafts": 3,
        "unproven": ["drafts_for_delta_net"],
    }
    with (
        with_states(native=True) as options,
        tandem_engine("v2", tmp_path / "senior", tandem, dtype="bfloat16", **options) as engine,
    ):
        responses = generate(engine, tokenizer)
        (stats,) = engine.collective_rpc("tandem_draft_stats")
    assert stats["drafts"] > stats["senior_accepted"] + stats["junior_drafts"] > 0
    reference = Reference(tmp_path / "senior", tmp_path / "junior", weights=torch.bfloat16)
    tokens, wrong, _ = compared(reference, tokenizer, responses)
    largest = gap(reference, tokenizer, responses)
    print(f"DRAFTS {tokens} {wrong} {largest}")
    assert wrong < 0.2 * tokens
    assert largest < 0.3


def gap(reference: Reference, tokenizer: Any, responses: list[list[int]]) -> float:
    """By how much a token was less likely than its author's likeliest: the most, in logits."""
    word_ids = word_boundaries(tokenizer)
    return max(
        reference.shortfall(tokenizer(prompt).input_ids, response, authors_of(tandem, word_ids))
        for (prompt, tandem), response in zip(REQUESTS, responses, strict=True)
    )
