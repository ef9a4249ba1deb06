"""SmolLM2-135M-Instruct, as senior of a copy with two thirds of its layers, and with adapters.

Token for token a Hugging Face loop of Algorithm 1, and records equal to the replay.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import requests, traffic
from support.boundary_ids import word_boundaries
from support.checked_engine import CheckedEngine
from support.engine import RUNNERS, async_engine, tandem_engine
from support.lora import RANK, has_lora, make_adapter
from support.reference import Reference, algorithm_1
from support.speculation import needs_drafting

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
sys.path.append(str(Path(__file__).parents[2] / "examples"))

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
SETTINGS: dict[str, Any] = {"schedule": "word", "cap": 8}
SCHEDULES: list[dict[str, Any]] = [
    {},
    {"p": 0.3, "cap": 3},
    {"schedule": "token"},
    {"schedule": "junior"},
    {"schedule": "solo"},
]
LAYERS = 20
LENGTH = 32
GREEDY = {"v1": (20, LENGTH), "v2": (5, 12)}
SAMPLED = {"v1": (60, 64), "v2": (5, 16)}
"""Requests and their tokens: without a GPU, the kernels of Model Runner V2 are interpreted, which
takes seconds a step at a vocabulary of 49,152."""
NEAR_TIE = 1e-3
"""Logits by which kernels of vLLM and Hugging Face may order two tokens differently."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The senior, and its copy with fewer layers; each is taught to box the answers of sums."""
    from real_model import get_model, teach
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("real")
    senior, junior = folder / "senior", folder / "junior"
    try:
        get_model(senior)
    except SystemExit as error:
        pytest.skip(str(error))
    model = AutoModelForCausalLM.from_pretrained(senior, dtype="float32")
    model.model.layers = model.model.layers[:LAYERS]
    model.config.num_hidden_layers = LAYERS
    model.config.layer_types = None
    model.save_pretrained(junior)
    AutoTokenizer.from_pretrained(senior).save_pretrained(junior)
    for one in (senior, junior):
        teach(one, 6)
    return {"senior": senior, "junior": junior}


@pytest.fixture(scope="module")
def tokenizer(models: dict[str, Path]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(models["senior"])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("v1", {}), id="v1"),
        pytest.param(("v2", {}), id="v2"),
        pytest.param(
            ("v2", {"mode": "speculative", "drafts": 4}), id="speculative", marks=needs_drafting
        ),
    ],
)
def setup(
    request: pytest.FixtureRequest,
    models: dict[str, Path],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[CheckedEngine, str]]:
    runner, mode = request.param
    record = tmp_path_factory.mktemp("record")
    tandem = {**SETTINGS, **mode, "junior": models["junior"], "record": record}
    spare = 2 * mode.get("drafts", 0) + 2
    with async_engine(runner, models["senior"], tandem, async_scheduling=False) as running:
        references = {"senior": Reference(models["senior"], models["junior"])}
        engine = CheckedEngine(running, record, tokenizer, SETTINGS, spare, references)
        yield engine, runner


def prompts(tokenizer: Any, count: int, seed: int) -> list[list[int]]:
    """Sums, and stories that begin."""
    from real_model import TAUGHT

    from tandem_plugin.lab.data import read_problems
    from tandem_plugin.lab.data.problem import prompt_ids

    sums = read_problems(f"{TAUGHT},count={count},seed={seed}").problems
    rng = random.Random(seed)
    names, places = ("Tom", "Anna", "The old man", "A teacher"), ("sea", "market", "school")
    texts = [f"{rng.choice(names)} went to the {rng.choice(places)} because" for _ in sums]
    return [
        prompt_ids(sums[i].messages, tokenizer) if i % 2 else tokenizer.encode(texts[i])
        for i in range(count)
    ]


def jobs_of(
    name: str, tokenizer: Any, count: int, length: int, temperature: float
) -> list[traffic.Job]:
    """Jobs of every schedule in turn, all at once."""
    sampling = {"max_tokens": length, "temperature": temperature, "ignore_eos": not temperature}
    return [
        traffic.Job(
            f"{name}-{i}",
            prompt,
            {"seed": 1000 * len(name) + i, **SCHEDULES[i % len(SCHEDULES)]},
            dict(sampling),
            0.0,
            None,
        )
        for i, prompt in enumerate(prompts(tokenizer, count, seed=len(name)))
    ]


@pytest.mark.skipif(not has_lora(), reason="adapters need vLLM 0.29 or newer")
@pytest.mark.parametrize("runner", RUNNERS)
def test_an_adapter_is_the_seniors_and_its_base_the_juniors(
    runner: str, models: dict[str, Path], tokenizer: Any, tmp_path: Path
) -> None:
    """Before the module's engines, whose model runner stays chosen while they run."""
    from vllm.lora.request import LoRARequest

    base = models["senior"]
    adapter, merged = make_adapter(base, tmp_path, seed=1, spread=0.02)
    options = {"enable_lora": True, "max_loras": 1, "max_lora_rank": RANK}
    count, length = (8, LENGTH) if runner == "v1" else (3, 12)
    asked = prompts(tokenizer, count, seed=5)
    with tandem_engine(runner, base, SETTINGS, **options) as engine:
        responses = requests.greedy(
            engine,
            asked,
            [{"seed": seed} for seed in range(len(asked))],
            length,
            adapters=[LoRARequest("senior", 1, str(adapter))] * len(asked),
        )
    reference, words = Reference(merged, base), word_boundaries(tokenizer)
    strayed = 0
    for seed, (prompt, response) in enumerate(zip(asked, responses, strict=True)):
        authors = [algorithm_1(seed, 0.5, SETTINGS["cap"], words) for _ in range(2)]
        assert reference.shortfall(prompt, response, authors[0]) < NEAR_TIE
        strayed += reference.choices(prompt, response, authors[1]) != response
    assert strayed <= 1


def test_greedy_responses_equal_a_hugging_face_loop(setup: tuple[CheckedEngine, str]) -> None:
    engine, runner = setup
    count, length = GREEDY[runner]
    jobs = jobs_of("greedy", engine.tokenizer, count, length, 0.0)
    responses = engine.send(jobs)
    assert [len(response.token_ids) for response in responses] == [length] * len(jobs)
    differing = engine.differing(responses)
    assert all(gap < NEAR_TIE for gap in differing.values()), differing
    assert len(differing) <= 1, differing
    engine.check_records(jobs, responses)


def test_records_of_sampled_responses_equal_the_replay(setup: tuple[CheckedEngine, str]) -> None:
    engine, runner = setup
    count, length = SAMPLED[runner]
    jobs = jobs_of("sampled", engine.tokenizer, count, length, 1.0)
    report = engine.report(jobs, engine.send(jobs))
    assert (report.lost, report.mismatches) == ([], [])
    assert report.tokens > 5 * count
