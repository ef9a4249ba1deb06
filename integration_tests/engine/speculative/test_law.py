"""The speculative engine, sampling: the exact law of a tiny vocabulary.

Every response of four tokens over six token ids is enumerated with its probability, and the
engine's responses are tested against it, jointly with their authors, at a significance of 1e-4 a
statistic. The power of the test against an engine that lets the senior write a share of the
junior's tokens is computed, and two engines that are wrong on purpose must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import enumerated, worker
from support.calling_models import installed_plugin
from support.engine import tandem_engine
from support.enumerated import Chances, Response, fit, law, law_of, power, window
from support.models import make_model
from support.reference import algorithm_1
from support.speculation import needs_drafting

pytestmark = [needs_drafting, pytest.mark.long]

LENGTH, P, CAP, DRAFTS = 4, 0.5, 2, 2
PROMPT = [1, 2, 3]
SAMPLES, SIGNIFICANCE = 700, 1e-4
SAMPLINGS = {
    "temperature 1": {"temperature": 1.0},
    "temperature 0.6 and top-p 0.95": {"temperature": 0.6, "top_p": 0.95},
}
POSITIONS = [window(t, t + 1) for t in range(LENGTH)]
STATISTICS = [*POSITIONS, window(0, 3), window(1, 4)]
SHARE = 1 / 3
"""Of the junior's tokens that a wrong engine lets the senior write, for the power of the tests."""


@dataclass(frozen=True)
class Models:
    senior: Path
    junior: Path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder, tokenizer = tmp_path_factory.mktemp("tiny"), enumerated.tiny_tokenizer()
    sizes = {"hidden": 32, "layers": 1, "heads": 1, "kv_heads": 1}
    ids = {"eos_token_id": None, "pad_token_id": None}
    senior, junior = (
        make_model(folder / name, seed=seed, tokenizer=tokenizer, spread=0.3, **sizes, **ids)
        for seed, name in ((0, "senior"), (1, "junior"))
    )
    return Models(senior, junior)


@pytest.fixture(scope="module")
def engine(models: Models) -> Iterator[Any]:
    tandem = {
        "cap": CAP, "p": P, "junior": models.junior, "mode": "speculative",
        "drafts": DRAFTS,
    }  # fmt: skip
    with tandem_engine(
        "v2", models.senior, tandem, max_num_seqs=64, max_model_len=64, enable_prefix_caching=False
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def varying(models: Models) -> Iterator[Any]:
    """An engine whose rounds have other lengths, 0 among them."""
    tandem = {
        "cap": CAP, "p": P, "junior": models.junior, "mode": "speculative",
        "drafts": {1: DRAFTS, 2: 1, 3: 0},
    }  # fmt: skip
    with tandem_engine(
        "v2", models.senior, tandem, max_num_seqs=64, max_model_len=64, enable_prefix_caching=False
    ) as engine:
        engine.collective_rpc(worker.note_steps)
        engine.collective_rpc(worker.vary_drafts)
        yield engine


def authors_of_words(seed: int, tokens: tuple[int, ...]) -> tuple[bool, ...]:
    """The authors of a response by the paper's own loop."""
    loop = algorithm_1(seed, P, CAP, enumerated.BOUNDARIES)
    authors = [next(loop)]
    return tuple(authors + [loop.send(token) for token in tokens[:-1]])


def responses(
    engine: Any,
    sampling: dict[str, Any],
    base: int,
    authors_of: Callable[[int, tuple[int, ...]], tuple[bool, ...]] = authors_of_words,
) -> list[Response]:
    """Responses of an engine, with their authors."""
    from vllm import SamplingParams

    seeds = range(base, base + SAMPLES)
    params = [
        SamplingParams(
            **sampling, seed=7 * seed + 1, max_tokens=LENGTH, ignore_eos=True,
            extra_args={"tandem": {"seed": seed}},
        )
        for seed in seeds
    ]  # fmt: skip
    prompts = [{"prompt_token_ids": PROMPT} for _ in seeds]
    outputs = engine.generate(prompts, params, use_tqdm=False)
    tokens = [tuple(output.outputs[0].token_ids) for output in outputs]
    return [(ids, authors_of(seed, ids)) for seed, ids in zip(seeds, tokens, strict=True)]


@pytest.fixture(scope="module")
def samples(engine: Any) -> dict[str, list[Response]]:
    """The speculative engine's responses."""
    return {name: responses(engine, sampling, 10_000) for name, sampling in SAMPLINGS.items()}


def exact(models: Models, sampling: dict[str, Any]) -> enumerated.Distribution:
    temperature, top_p = sampling["temperature"], sampling.get("top_p", 1.0)
    return enumerated.distributions(
        models.senior, models.junior, PROMPT, LENGTH, temperature, top_p
    )


def seniors_share(position: int, own: dict[bool, np.ndarray], author: bool) -> np.ndarray:
    """A wrong engine: of the junior's tokens, the senior writes some."""
    return own[True] if author else (1 - SHARE) * own[False] + SHARE * own[True]


@pytest.mark.parametrize("name", SAMPLINGS)
def test_responses_and_authors_follow_the_enumerated_law(
    samples: dict[str, list[Response]], models: Models, name: str
) -> None:
    after = exact(models, SAMPLINGS[name])
    right, wrong = law(after, LENGTH, P, CAP), law(after, LENGTH, P, CAP, seniors_share)
    assert sum(right.values()) == pytest.approx(1)
    powers = {s.name: power(s, right, wrong, SAMPLES, SIGNIFICANCE) for s in STATISTICS}
    assert max(powers.values()) > 0.99
    assert min(powers[s.name] for s in POSITIONS) > 0.6, powers
    seen = samples[name]
    p_values = {s.name: fit(s, right, seen) for s in STATISTICS}
    print(name, p_values, powers)
    assert min(p_values.values()) > SIGNIFICANCE, p_values


@pytest.mark.parametrize("name", SAMPLINGS)
def test_rounds_of_other_lengths_and_without_drafts_follow_the_same_law(
    models: Models, varying: Any, name: str
) -> None:
    """Each step's length is drawn anew, whatever was written."""
    right = law(exact(models, SAMPLINGS[name]), LENGTH, P, CAP)
    seen = responses(varying, SAMPLINGS[name], 90_000)
    (steps,) = varying.collective_rpc(worker.noted_steps)
    assert {asked for _, _, asked, _ in steps} == {0, 1, DRAFTS}
    p_values = {s.name: fit(s, right, seen) for s in STATISTICS}
    print(name, "lengths that vary", p_values)
    assert min(p_values.values()) > SIGNIFICANCE, p_values


@pytest.mark.parametrize("fault", ["bonus", "first token"])
def test_an_engine_that_is_wrong_fails(engine: Any, models: Models, fault: str) -> None:
    """Without the rule for the token behind the drafts; or with the senior's first token always."""
    name = "temperature 1"
    sampling = SAMPLINGS[name]
    right = law(exact(models, sampling), LENGTH, P, CAP)
    engine.collective_rpc(worker.break_speculation, args=(fault,))
    try:
        seen = responses(engine, sampling, 10_000)
    finally:
        engine.collective_rpc(worker.mend_speculation)
    p_values = {s.name: fit(s, right, seen) for s in STATISTICS}
    print(fault, p_values)
    assert min(p_values.values()) < SIGNIFICANCE, p_values


PARTS = """
from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin import hookimpl
from tandem_plugin.boundaries.marked_parts import marked_parts
from tandem_plugin.boundaries.markers import Markers

MARKERS = Markers({"out": {" a": "in"}, "in": {"c": "out"}})


@dataclass(frozen=True, slots=True)
class PartsSchedule:
    name: ClassVar[str] = "parts"
    boundaries: ClassVar[str] = "parts"
    classes: ClassVar[tuple[str, ...]] = MARKERS.classes

    def start(self, u):
        return u >= 0

    def advance(self, author, run, token_class, u):
        run = marked_parts(MARKERS, "in", 2, 9).advance(run, token_class)
        return run >= 0, run


@hookimpl
def register_schedules(register):
    register(PartsSchedule)


@hookimpl
def register_boundaries(register):
    register("parts", MARKERS.table, MARKERS.classes)
"""
OPENS, CLOSES = (enumerated.PIECES.index(piece) for piece in ("Ġa", "c"))


def after_token(author: bool, left: int, token: int) -> Chances:
    """Behind `` a`` the junior writes two tokens, or up to its ``c``."""
    if author:
        return [(1.0, token != OPENS, 2 * (token == OPENS))]
    left = 0 if token == CLOSES else left - 1
    return [(1.0, left == 0, left)]


def authors_by_parts(seed: int, tokens: tuple[int, ...]) -> tuple[bool, ...]:
    author, left, authors = True, 0, []
    for token in tokens:
        authors.append(author)
        ((_, author, left),) = after_token(author, left, token)
    return tuple(authors)


@pytest.fixture(scope="module")
def reading(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An engine in which the text decides who writes."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "parts_of_a_text.py").write_text(PARTS)
    tandem = {
        "schedule": "parts", "junior": models.junior, "mode": "speculative", "drafts": DRAFTS,
    }  # fmt: skip
    arguments = {"max_num_seqs": 64, "max_model_len": 64, "enable_prefix_caching": False}
    with (
        installed_plugin(folder, "parts_of_a_text", [folder]),
        tandem_engine("v2", models.senior, tandem, **arguments) as engine,
    ):
        yield engine


@pytest.mark.parametrize("name", SAMPLINGS)
def test_responses_of_a_schedule_that_reads_the_text_follow_their_law(
    models: Models, reading: Any, name: str
) -> None:
    """The authors of drafted tokens depend on the drafts before them."""
    after, start = exact(models, SAMPLINGS[name]), [(1.0, True, 0)]
    right = law_of(after, LENGTH, start, after_token)
    wrong = law_of(after, LENGTH, start, after_token, seniors_share)
    assert sum(right.values()) == pytest.approx(1)
    powers = {s.name: power(s, right, wrong, SAMPLES, SIGNIFICANCE) for s in STATISTICS}
    seen = responses(reading, SAMPLINGS[name], 50_000, authors_by_parts)
    p_values = {s.name: fit(s, right, seen) for s in STATISTICS}
    print(name, "parts", p_values, powers)
    assert max(powers.values()) > 0.99
    assert min(p_values.values()) > SIGNIFICANCE, p_values
    assert 0.1 < np.mean([not author for _, authors in seen for author in authors]) < 0.9
