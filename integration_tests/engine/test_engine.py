"""The engine on both model runners and in both modes: Hugging Face, replay, distributions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.engine
from refused import refused
from scipy import stats
from support import requests
from support.boundary_ids import word_boundaries
from support.engine import tandem_engine, v2_variables
from support.records import all_records, recorded
from support.reference import Reference, algorithm_1, always, every_token
from support.speculation import ENGINES

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin._draws import draws
from tandem_plugin.config import DEFAULT_DRAFT_TOKENS
from tandem_plugin.seeds import sample_seed

CAP = 4
PROMPTS = [*requests.PROMPTS, "The senior and the junior write one response together, and the"]


@pytest.fixture(scope="module", params=ENGINES, ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The model runner and the mode."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture(scope="module")
def runner(kind: tuple[str, str]) -> str:
    return kind[0]


@pytest.fixture(scope="module")
def record_folder(kind: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def engine(kind: tuple[str, str], checkpoints: dict[str, Path], record_folder: Path) -> Any:
    runner, mode = kind
    tandem = {
        "mode": mode,
        "schedule": "word",
        "cap": CAP,
        "junior": checkpoints["other"],
        "record": record_folder,
    }
    settings = {"max_model_len": 512, "max_num_seqs": 64}
    with tandem_engine(runner, checkpoints["senior"], tandem, **settings) as engine:
        yield engine


@pytest.fixture(scope="module")
def reference(checkpoints: dict[str, Path]) -> Reference:
    return Reference(checkpoints["senior"], checkpoints["other"])


@pytest.fixture(scope="module")
def rules(tokenizer: Any) -> TandemRules:
    config = TandemConfig.from_mapping({"schedule": "word", "cap": CAP})
    return TandemRules(config, Vocabulary.from_tokenizer(tokenizer))


@pytest.fixture(scope="module")
def word_ids(tokenizer: Any) -> set[int]:
    return word_boundaries(tokenizer)


@pytest.fixture(scope="module")
def spare(kind: tuple[str, str]) -> int:
    """How many tokens a record may hold behind the end of a response: rounds write several."""
    return 2 * (DEFAULT_DRAFT_TOKENS + 1) if kind[1] == "speculative" else 0


def check_row(row: Any, response: list[int], authorship: list[int], spare: int) -> None:
    """Hold what the engine recorded against a response and its replay."""
    length = len(response)
    assert row["response_ids"][:length] == response
    assert row["authorship"][:length] == authorship
    assert len(row["authorship"]) == len(row["response_ids"]) <= length + spare


def generate(engine: Any, tokenizer: Any, asked: list[tuple[str, Any]], **sampling: Any) -> Any:
    prompts = [tokenizer(prompt).input_ids for prompt, _ in asked]
    return requests.generate(engine, prompts, [tandem for _, tandem in asked], **sampling)


def test_the_engine_is_the_one_that_was_asked_for(engine: Any, runner: str) -> None:
    from tandem_plugin.engine.runners import check_engine

    check_engine(engine.llm_engine.vllm_config)
    assert engine.llm_engine.vllm_config.use_v2_model_runner == (runner == "v2")


@pytest.mark.lane
def test_greedy_tokens_of_a_mixed_batch_equal_a_hugging_face_loop(
    engine: Any, runner: str, reference: Reference, tokenizer: Any, word_ids: set[int]
) -> None:
    length = {"v1": 40, "v2": 24}[runner]  # V2's kernels are interpreted: 20 ms a token
    kinds: list[tuple[Any, Any]] = [
        (None, lambda: always(True)),
        ("off", lambda: always(True)),
        ({"seed": 3, "schedule": "solo"}, lambda: always(True)),
        ({"seed": 3, "schedule": "junior"}, lambda: always(False)),
        ({"seed": 8, "schedule": "token"}, lambda: every_token(8, 0.5)),
        ({"seed": 5}, lambda: algorithm_1(5, 0.5, CAP, word_ids)),
        ({"seed": 6, "p": 0.3, "cap": 9}, lambda: algorithm_1(6, 0.3, 9, word_ids)),
        ({"seed": 7, "schedule": "word", "p": 0.8}, lambda: algorithm_1(7, 0.8, CAP, word_ids)),
        # The draws of these responses as a whole are 0.10 and 0.73.
        ({"seed": 9, "alone": 0.5}, lambda: always(True)),
        ({"seed": 10, "alone": 0.5}, lambda: algorithm_1(10, 0.5, CAP, word_ids)),
    ]
    asked = [(prompt, tandem) for prompt in PROMPTS for tandem, _ in kinds]
    responses = generate(
        engine, tokenizer, asked, temperature=0, max_tokens=length, ignore_eos=True
    )
    expected = [
        reference.greedy(tokenizer(prompt).input_ids, length, authors())
        for prompt in PROMPTS
        for _, authors in kinds
    ]
    assert responses == expected
    assert len({tuple(response) for response in responses}) > len(PROMPTS) * 4


def test_recorded_authorship_equals_replay_on_sampled_responses(
    engine: Any, runner: str, rules: TandemRules, tokenizer: Any, record_folder: Path, spare: int
) -> None:
    requests, length = {"v1": (520, 60), "v2": (20, 30)}[runner]
    seeds = list(range(1_000, 1_000 + requests))
    asked = [(PROMPTS[seed % len(PROMPTS)], {"seed": seed}) for seed in seeds]
    responses = generate(
        engine, tokenizer, asked, temperature=0.6, top_p=0.95, max_tokens=length, ignore_eos=True
    )
    # The engine tells its runner of finished requests at its next step.
    generate(engine, tokenizer, [(PROMPTS[0], None)], max_tokens=2)
    rows = recorded(record_folder, seeds)
    replayed = rules.default.replay_batch(responses, seeds)
    past_the_cap = 0
    for seed, response, authorship in zip(seeds, responses, replayed, strict=True):
        row = rows[seed]
        check_row(row, response, authorship.tolist(), spare)
        assert row["tandem_fingerprint"] == rules.fingerprint
        assert len(response) == length
        boundary = rules.default.boundaries.contains(response)
        runs = np.diff(np.flatnonzero(np.concatenate([[True], boundary, [True]])))
        past_the_cap += int(runs.max() > CAP + 1)
    assert past_the_cap > requests // 4


@pytest.fixture
def _in_lockstep(kind: tuple[str, str]) -> None:
    if kind[1] != "lockstep":
        pytest.skip("the speculative engine has tests of its own for this")


@pytest.mark.usefixtures("_in_lockstep")
@pytest.mark.parametrize("author", ["senior", "junior"])
def test_tokens_at_each_author_follow_that_models_own_distribution(
    engine: Any, runner: str, reference: Reference, tokenizer: Any, author: str
) -> None:
    """Chi-square at significance 1e-3 over samples of the first token at temperature 1.

    Tokens are binned by how much likelier this model finds them than the other does. The power to
    reject a mixture with a share of the other model's tokens (a tenth of 3,000 samples on V1, a
    quarter of 750 on V2) is computed from the non-central chi-square distribution, and must be
    over 0.99.
    """
    samples, share = {"v1": (3_000, 0.1), "v2": (750, 0.25)}[runner]
    significance, bins = 1e-3, 20
    prompt = PROMPTS[3]
    senior = author == "senior"
    # Seeds whose first draw chooses this author, so that the schedule is part of what is tested.
    seeds = [seed for seed in range(20_000) if (draws(seed, 1)[0] < 0.5) == senior][:samples]
    asked = [(prompt, {"seed": seed}) for seed in seeds]
    responses = generate(engine, tokenizer, asked, temperature=1.0, max_tokens=1, ignore_eos=True)
    counts = np.bincount([response[0] for response in responses], minlength=len(tokenizer))

    ids = tokenizer(prompt).input_ids
    own = reference.logits(senior, ids).softmax(-1).double().numpy()
    other = reference.logits(not senior, ids).softmax(-1).double().numpy()
    order = np.argsort(own / other)
    bin_of_token = np.empty(len(own), dtype=int)
    bin_of_token[order] = np.minimum((np.cumsum(own[order]) * bins).astype(int), bins - 1)

    def binned(weights: np.ndarray) -> np.ndarray:
        totals = np.bincount(bin_of_token, weights=weights, minlength=bins)
        return totals[np.unique(bin_of_token)]

    expected = binned(own / own.sum()) * samples
    wrong = binned(other / other.sum()) * samples
    assert expected.min() >= 5

    noncentrality = ((share * (wrong - expected)) ** 2 / expected).sum()
    freedom = len(expected) - 1
    power = stats.ncx2.sf(stats.chi2.isf(significance, freedom), freedom, noncentrality)
    assert power > 0.99
    assert stats.chisquare(binned(counts), expected).pvalue > significance


@pytest.mark.usefixtures("_in_lockstep")
def test_logprobs_are_those_of_the_author(
    engine: Any, reference: Reference, tokenizer: Any, rules: TandemRules
) -> None:
    from vllm import SamplingParams

    prompt = tokenizer(PROMPTS[2]).input_ids
    params = SamplingParams(
        temperature=1.0, seed=0, max_tokens=24, ignore_eos=True, logprobs=0,
        logit_bias={7: 3.0}, extra_args={"tandem": {"seed": 11}},
    )  # fmt: skip
    output = engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)[0].outputs[0]
    response = list(output.token_ids)
    authors = list(rules.default.replay(response, 11))
    assert {True, False} == set(authors)
    for t, (token, author) in enumerate(zip(response, authors, strict=True)):
        expected = reference.logits(author, prompt + response[:t]).log_softmax(-1)[token]
        assert output.logprobs[t][token].logprob == pytest.approx(float(expected), abs=2e-4)


@pytest.mark.parametrize(
    ("tandem", "code"),
    [
        ({}, "request-without-seed"),
        ({"seed": 1, "cap": 0}, "parameter-not-count"),
        ({"seed": 1, "fingerprint": "0" * 16}, "request-rules-differ"),
        ({"seed": 1, "prompt_length": 400}, "prompt-length-too-large"),
        ("on", "request-tandem-not-json"),
    ],
)
def test_a_bad_request_is_refused_alone_and_the_engine_lives_on(
    engine: Any, tokenizer: Any, tandem: Any, code: str
) -> None:
    with refused(code):
        generate(engine, tokenizer, [(PROMPTS[0], tandem)], max_tokens=4)
    assert len(generate(engine, tokenizer, [(PROMPTS[0], {"seed": 1})], max_tokens=4)) == 1


def go_on(engine: Any, asked: list[tuple[list[int], list[int], dict[str, Any]]], **sampling: Any):
    """The rest of each response, given (prompt, response so far, tandem)."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": prompt + prefix} for prompt, prefix, _ in asked]
    length = sampling.pop("length")
    params = [
        SamplingParams(
            **sampling,
            max_tokens=length - len(prefix),
            extra_args={"tandem": {**tandem, "prompt_length": len(prompt)}},
        )
        for prompt, prefix, tandem in asked
    ]
    outputs = engine.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_response_that_was_cut_anywhere_goes_on_as_if_it_had_not_been(
    engine: Any, runner: str, tokenizer: Any
) -> None:
    length = {"v1": 40, "v2": 20}[runner]
    kinds: list[dict[str, Any]] = [
        {"seed": 31},
        {"seed": 32, "p": 0.3, "cap": 9},
        {"seed": 33, "schedule": "token"},
        {"seed": 9, "alone": 0.5},
    ]
    asked = [(tokenizer(prompt).input_ids, tandem) for prompt in PROMPTS[:2] for tandem in kinds]
    sampling = {"temperature": 0, "ignore_eos": True, "length": length}
    whole = go_on(engine, [(prompt, [], tandem) for prompt, tandem in asked], **sampling)
    cuts = sorted({1, 2, CAP, length // 2, length - 1})
    cut = [
        (prompt, response[:stop], tandem)
        for (prompt, tandem), response in zip(asked, whole, strict=True)
        for stop in cuts
    ]
    rest = go_on(engine, cut, **sampling)
    resumed = [prefix + more for (_, prefix, _), more in zip(cut, rest, strict=True)]
    assert resumed == [response for response in whole for _ in cuts]


def test_parts_of_a_sampled_response_are_recorded_with_the_authors_of_the_whole(
    engine: Any, runner: str, rules: TandemRules, tokenizer: Any, record_folder: Path, spare: int
) -> None:
    stops = {"v1": (1, 9, 30, 60), "v2": (1, 9, 20)}[runner]
    seeds = range(7_000, 7_012)
    prompts = [tokenizer(PROMPTS[seed % len(PROMPTS)]).input_ids for seed in seeds]
    responses: list[list[int]] = [[] for _ in seeds]
    for stop in stops:
        asked = [
            (prompt, response, {"seed": seed})
            for prompt, response, seed in zip(prompts, responses, seeds, strict=True)
        ]
        parts = go_on(engine, asked, temperature=1.0, ignore_eos=True, length=stop)
        responses = [prefix + part for prefix, part in zip(responses, parts, strict=True)]
    # The engine tells its runner of finished requests at its next step.
    generate(engine, tokenizer, [(PROMPTS[0], None)], max_tokens=2)
    rows = [row for row in all_records(record_folder) if row["tandem_seed"] in seeds]
    assert len(rows) == len(seeds) * len(stops)
    for seed, response in zip(seeds, responses, strict=True):
        ours = [row for row in rows if row["tandem_seed"] == seed]
        authorship = rules.default.replay(response, seed).tolist()
        assert [row.get("tandem_prefix_length", 0) for row in ours] == [0, *stops[:-1]]
        for row, stop in zip(ours, stops, strict=True):
            check_row(row, response[:stop], authorship[:stop], spare)


def test_several_samples_of_a_response_that_began_are_refused(engine: Any) -> None:
    from vllm import SamplingParams

    tandem = {"seed": 1, "prompt_length": 3}
    params = SamplingParams(n=2, max_tokens=2, extra_args={"tandem": tandem})
    whole = {"prompt_token_ids": [5, 6, 7]}
    assert len(engine.generate(whole, params, use_tqdm=False)[0].outputs) == 2
    with refused("continuation-with-samples", samples=2, length=2):
        engine.generate({"prompt_token_ids": [5, 6, 7, 3, 4]}, params, use_tqdm=False)


@pytest.mark.parametrize("past", [0, 1])
def test_a_prompt_past_both_vocabularies_is_refused(engine: Any, tokenizer: Any, past: int) -> None:
    """By vLLM, or by tandem where vLLM lets it through: before 0.32 it counts one id too many."""
    from vllm.exceptions import VLLMValidationError

    refusals = (VLLMValidationError, ValueError)  # vLLM's own, until 0.24
    with pytest.raises(refusals, match=r"prompt-token-not-shared|out of vocabulary"):
        engine.generate({"prompt_token_ids": [5, len(tokenizer) + past]}, use_tqdm=False)


def test_samples_of_one_request_have_authors_of_their_own(
    engine: Any, rules: TandemRules, tokenizer: Any, reference: Reference, word_ids: set[int]
) -> None:
    from vllm import SamplingParams

    prompt, length, samples = tokenizer(PROMPTS[1]).input_ids, 16, 6
    params = SamplingParams(
        n=samples, top_k=1, max_tokens=length, ignore_eos=True,
        extra_args={"tandem": {"seed": 12, "p": 0.6}},
    )  # fmt: skip
    output = engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)[0]
    responses = [list(sample.token_ids) for sample in output.outputs]
    seeds = [sample_seed(12, index) for index in range(samples)]
    assert responses == [
        reference.greedy(prompt, length, algorithm_1(seed, 0.6, CAP, word_ids)) for seed in seeds
    ]
    assert len({tuple(response) for response in responses}) > 1


IN_ONE_PROCESS = """
import gc
import sys
from pathlib import Path

from support.engine import engine_settings, on_runner
from vllm import LLM, SamplingParams

runner, deleted, senior, junior, record = sys.argv[1:]
tandem = {"schedule": "word", "junior": junior, "record": record}
asked = [SamplingParams(max_tokens=4, extra_args={"tandem": {"seed": seed}}) for seed in range(3)]
with on_runner(runner):
    engine = LLM(senior, **engine_settings(tandem))
    engine.generate([{"prompt_token_ids": [5, 6, 7]}] * 3, asked)
if deleted == "deleted":
    engine.llm_engine.engine_core.shutdown()  # without it, vLLM keeps the engine to the end
    del engine
    gc.collect()
    assert len(next(Path(record).iterdir()).read_text().splitlines()) == 3
"""


@pytest.mark.parametrize(
    ("runner", "deleted"),
    [
        ("v1", "kept"),
        pytest.param("v1", "deleted", marks=pytest.mark.long),
        pytest.param("v2", "kept", marks=pytest.mark.long),
        pytest.param("v2", "deleted", marks=pytest.mark.long),
    ],
)
def test_last_responses_of_an_engine_in_the_callers_process_are_recorded(
    checkpoints: dict[str, Path], tmp_path: Path, runner: str, deleted: str
) -> None:
    """It takes no step after them, at which vLLM would remove their requests."""
    env = os.environ | (v2_variables() if runner == "v2" else {})
    paths = [str(Path(support.engine.__file__).parents[1]), env.get("PYTHONPATH", "")]
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": os.pathsep.join(paths)}
    arguments = [runner, deleted, checkpoints["senior"], checkpoints["other"], tmp_path]
    command = [sys.executable, "-c", IN_ONE_PROCESS, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(row["tandem_seed"] for row in all_records(tmp_path)) == [0, 1, 2]
