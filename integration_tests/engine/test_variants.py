"""Tandem engines of other shapes: compiled, tensor- and data-parallel, padded vocabularies."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support import requests, traffic, worker
from support.boundary_ids import word_boundaries
from support.device import graph_arguments
from support.engine import async_engine, tandem_engine
from support.models import make_model
from support.parity import reference_of
from support.reference import Reference, algorithm_1
from support.requests import PROMPTS
from support.speculation import needs_drafting

from tandem_plugin.config import DEFAULT_DRAFT_TOKENS

pytestmark = pytest.mark.long

CAP = 4
ON_V2 = [("v2", "lockstep"), pytest.param("v2", "speculative", marks=needs_drafting)]
ENGINES = [("v1", "lockstep"), *ON_V2]
"""Model runners and modes."""
LENGTH = 16


def greedy(engine: Any, tokenizer: Any, seeds: list[int]) -> list[list[int]]:
    prompts = [tokenizer(p).input_ids for p in PROMPTS for _ in seeds]
    tandem = [{"seed": seed} for _ in PROMPTS for seed in seeds]
    return requests.greedy(engine, prompts, tandem, LENGTH)


def expected(
    senior: Path, junior: Path, tokenizer: Any, seeds: list[int], ids: int | None = None
) -> list[list[int]]:
    """ids: how many token ids both models have, where that is not all."""
    reference = Reference(senior, junior, ids)
    words = word_boundaries(tokenizer)
    return [
        reference.greedy(tokenizer(p).input_ids, LENGTH, algorithm_1(seed, 0.5, CAP, words))
        for p in PROMPTS
        for seed in seeds
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("runner", "mode", "longer"),
    [
        ("v1", "lockstep", "senior"),
        ("v2", "lockstep", "junior"),
        pytest.param("v2", "speculative", "senior", marks=needs_drafting),
        pytest.param("v2", "speculative", "junior", marks=needs_drafting),
    ],
)
def test_vocabularies_may_be_padded_to_different_lengths(
    tmp_path: Path, tokenizer: Any, runner: str, mode: str, longer: str
) -> None:
    """Ids past the shorter vocabulary are never sampled, whoever writes."""
    from vllm import SamplingParams

    sizes = {"senior": len(tokenizer), "junior": len(tokenizer)}
    sizes[longer] += 96
    senior, junior = (
        make_model(tmp_path / name, seed=seed, tokenizer=tokenizer, vocab_size=sizes[name])
        for seed, name in enumerate(sizes)
    )
    seeds = [1, 2]
    with tandem_engine(runner, senior, {"cap": CAP, "junior": junior, "mode": mode}) as engine:
        responses = greedy(engine, tokenizer, seeds)
        flat = SamplingParams(
            n=4,
            temperature=2.0,
            max_tokens=LENGTH,
            ignore_eos=True,
            extra_args={"tandem": {"seed": 7}},
        )
        sampled = engine.generate([{"prompt_token_ids": [5]}] * 4, flat, use_tqdm=False)
        if longer == "senior":
            with pytest.raises(ValueError, match="prompt-token-not-shared"):
                engine.generate({"prompt_token_ids": [5, sizes["senior"] - 1]}, use_tqdm=False)
    assert responses == expected(senior, junior, tokenizer, seeds, len(tokenizer))
    written = [one.token_ids for output in sampled for one in output.outputs]
    assert len(written) == 16
    assert all(max(ids) < len(tokenizer) for ids in written)


@pytest.mark.long
@pytest.mark.parametrize(("runner", "mode"), ENGINES)
@pytest.mark.parametrize(
    "shape", [{"heads": 2}, {"head_dim": 64}, {"head_dim": 64, "heads": 8, "kv_heads": 8}]
)
def test_junior_may_have_another_attention_geometry(
    checkpoints: dict[str, Path],
    tmp_path: Path,
    tokenizer: Any,
    runner: str,
    mode: str,
    shape: dict[str, int],
) -> None:
    """Other query heads over the same KV heads, another head size, and all of it."""
    junior = make_model(tmp_path / "junior", seed=4, tokenizer=tokenizer, **shape)
    senior = checkpoints["senior"]
    with tandem_engine(runner, senior, {"cap": CAP, "junior": junior, "mode": mode}) as engine:
        assert greedy(engine, tokenizer, [1, 2]) == expected(senior, junior, tokenizer, [1, 2])


@pytest.mark.long
@pytest.mark.parametrize(("runner", "mode"), ENGINES)
def test_junior_with_the_seniors_checkpoint_is_the_senior_whatever_is_overridden(
    checkpoints: dict[str, Path], tokenizer: Any, runner: str, mode: str
) -> None:
    """Alone, it writes what the senior writes alone; by position, as the checkpoint would not."""
    prompts = [tokenizer(p * 3).input_ids for p in PROMPTS]

    def written(engine: Any, schedule: str) -> list[list[int]]:
        asked = {"seed": 1, "schedule": schedule}
        return requests.greedy(engine, prompts, [asked] * len(prompts), 12)

    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}
    overridden = {"hf_overrides": {**rope, "max_position_embeddings": 4096}, "max_model_len": 2048}
    responses = {}
    for name, options in {"plain": {}, "overridden": overridden}.items():
        with tandem_engine(runner, checkpoints["senior"], {"mode": mode}, **options) as engine:
            responses[name] = written(engine, "solo")
            assert written(engine, "junior") == responses[name]
    assert responses["plain"] != responses["overridden"]


@pytest.mark.long
@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_senior_samples_every_token_of_the_token_matched_control(
    checkpoints: dict[str, Path], tokenizer: Any, runner: str
) -> None:
    """Beside another junior it writes what the senior writes alone, and marks part of it."""
    prompts = [tokenizer(p).input_ids for p in PROMPTS]
    settings = {"schedule": "solo-word", "cap": CAP, "junior": str(checkpoints["junior"])}
    with tandem_engine(runner, checkpoints["senior"], settings) as engine:
        alone = requests.greedy(
            engine, prompts, [{"seed": 1, "schedule": "solo"}] * len(prompts), 12
        )
        marked = requests.greedy(engine, prompts, [{"seed": 1}] * len(prompts), 12)
    reference = Reference(checkpoints["senior"], checkpoints["junior"])
    by_team = [
        reference.greedy(ids, 12, algorithm_1(1, 0.5, CAP, word_boundaries(tokenizer)))
        for ids in prompts
    ]
    assert marked == alone
    assert marked != by_team


@pytest.mark.long
@pytest.mark.parametrize(("runner", "mode"), ON_V2)
def test_an_engine_warms_up_as_on_a_gpu(
    checkpoints: dict[str, Path], tokenizer: Any, runner: str, mode: str
) -> None:
    """Also one that takes no request without tandem, which vLLM's own have not."""
    tandem = {"cap": CAP, "junior": checkpoints["other"], "mode": mode, "require": True}
    with tandem_engine(runner, checkpoints["senior"], tandem) as engine:
        engine.collective_rpc(worker.warm_up_as_on_a_gpu)
        responses = greedy(engine, tokenizer, [3, 4])
    assert responses == expected(checkpoints["senior"], checkpoints["other"], tokenizer, [3, 4])


@pytest.mark.long
@pytest.mark.parametrize(("runner", "mode"), ENGINES)
def test_compiled_models_write_the_same_tokens(
    checkpoints: dict[str, Path],
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
    mode: str,
) -> None:
    """torch.compile on, as vLLM does by default; senior and junior are compiled apart.

    After a weight sync as well, also where the trainer only loads.
    """
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    tandem = {"cap": CAP, "junior": checkpoints["other"], "mode": mode}
    with tandem_engine(runner, checkpoints["senior"], tandem, enforce_eager=False) as engine:
        responses = greedy(engine, tokenizer, [3, 4])
        assert responses == expected(checkpoints["senior"], checkpoints["other"], tokenizer, [3, 4])
        for senior, processed in (("junior", False), ("senior", True)):  # two weight syncs
            engine.collective_rpc(worker.sync, args=(str(checkpoints[senior]), 5, processed))
            engine.reset_prefix_cache()
            responses = greedy(engine, tokenizer, [3, 4])
            theirs = expected(checkpoints[senior], checkpoints["other"], tokenizer, [3, 4])
            assert responses == theirs


@pytest.mark.long
@pytest.mark.parametrize(("runner", "mode"), ENGINES)
@pytest.mark.parametrize("width", [64, 96])
def test_tensor_parallel_ranks_agree_on_authors(
    checkpoints: dict[str, Path],
    tmp_path: Path,
    tokenizer: Any,
    runner: str,
    mode: str,
    width: int,
) -> None:
    """Beside a junior of the senior's width and a wider one of another depth."""
    senior, layers = checkpoints["senior"], 2 if width == 64 else 3
    junior = make_model(
        tmp_path / "junior", seed=4, tokenizer=tokenizer, hidden=width, layers=layers
    )
    tandem = {"cap": CAP, "junior": junior, "mode": mode}
    with tandem_engine(runner, senior, tandem, tensor_parallel_size=2) as engine:
        responses = greedy(engine, tokenizer, [5, 6])
        assert len(set(engine.collective_rpc(worker.rank))) == 2
    assert responses == expected(senior, junior, tokenizer, [5, 6])


@pytest.mark.gpu(gib=4)
def test_many_requests_keep_their_authors_beside_a_junior_on_its_own_stream(
    checkpoints: dict[str, Path], tokenizer: Any
) -> None:
    """More tiles of attention than a GPU has multiprocessors, by two models of one shape."""
    senior, junior = checkpoints["senior"], checkpoints["junior"]
    tandem = {"cap": CAP, "junior": junior, "junior_stream": True}
    options = {"max_num_seqs": 192, "dtype": "bfloat16", "max_num_batched_tokens": 4096}
    compilation = {"cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": [64, 192]}
    graphs = {"enforce_eager": False, "compilation_config": compilation}
    with tandem_engine("v2", senior, tandem, **options, **graphs) as engine:
        responses = greedy(engine, tokenizer, list(range(64)))
    check(responses, senior, junior, tokenizer, range(64))


@pytest.mark.gpu(gib=4, devices=2)
@pytest.mark.parametrize(("runner", "mode"), ON_V2)
def test_two_gpus_agree_on_authors_beside_a_wider_junior(
    checkpoints: dict[str, Path], tokenizer: Any, runner: str, mode: str
) -> None:
    """Compiled, as users have it: vLLM's fused all-reduce has room for one width."""
    senior, junior = checkpoints["senior"], checkpoints["other"]
    tandem = {"cap": CAP, "junior": junior, "mode": mode}
    options = {"tensor_parallel_size": 2, "dtype": "bfloat16"}
    graphs = graph_arguments("FULL_AND_PIECEWISE")
    with tandem_engine(runner, senior, tandem, **options, **graphs) as engine:
        responses = greedy(engine, tokenizer, [5, 6])
    check(responses, senior, junior, tokenizer, (5, 6))


def check(
    responses: list[list[int]], senior: Path, junior: Path, tokenizer: Any, seeds: Iterable[int]
) -> None:
    """Greedy responses to :func:`greedy` in bfloat16, up to its rounding."""
    asked = [(tokenizer(p).input_ids, seed) for p in PROMPTS for seed in seeds]
    words = word_boundaries(tokenizer)
    reference_of(senior, junior, "bfloat16").check(
        (prompt, response, functools.partial(algorithm_1, seed, 0.5, CAP, words))
        for (prompt, seed), response in zip(asked, responses, strict=True)
    )


@pytest.mark.long
@pytest.mark.parametrize(("runner", "mode"), ENGINES)
def test_data_parallel_engines_keep_every_authorship(
    checkpoints: dict[str, Path], tokenizer: Any, tmp_path: Path, runner: str, mode: str
) -> None:
    record = tmp_path / "record"
    tandem = {"cap": CAP, "junior": checkpoints["other"], "record": record, "mode": mode}
    drafts = mode == "speculative"
    jobs = traffic.random_jobs(
        40, tokenizer, 3, longest=20, arrival=0.01, seeded=True, abort=0.0, drafted=drafts
    )
    with async_engine(
        runner,
        checkpoints["senior"],
        tandem,
        async_scheduling=runner == "v2",
        data_parallel_size=2,
    ) as running:
        responses = running.run(traffic.send(running.engine, jobs, patience=300))
    rules = traffic.make_rules(tokenizer, {"cap": CAP})
    spare = 2 * (DEFAULT_DRAFT_TOKENS + 1) if drafts else int(runner == "v2")
    report = traffic.check(jobs, responses, rules, record, spare=spare)
    assert (report.lost, report.mismatches) == ([], [])
    assert len(list(record.glob("*.jsonl"))) == 2
