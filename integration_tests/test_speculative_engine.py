"""The speculative engine beside its tokens: weights, logprobs, requests, counters, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support import worker
from support.boundary_ids import word_boundaries
from support.engine import tandem_engine
from support.records import all_records, recorded
from support.reference import Reference, algorithm_1, along, always
from support.requests import PROMPTS
from support.speculation import needs_drafting
from vllm.exceptions import VLLMValidationError

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine.wire_names import RPC_DRAFT_STATS
from tandem_plugin.seeds import sample_seed

pytestmark = [needs_drafting, pytest.mark.long]

CAP, DRAFTS, LENGTH = 4, 3, 12


@dataclass
class Setup:
    engine: Any
    record: Path
    senior: Path
    junior: Path
    tokenizer: Any
    rules: TandemRules

    def generate(self, tandem: Any, prompt: list[int] | None = None, **sampling: Any) -> Any:
        """The samples of a greedy request, or of one as ``sampling`` asks."""
        from vllm import SamplingParams

        settings = {"temperature": 0, "max_tokens": LENGTH, "ignore_eos": True} | sampling
        extra = None if tandem is None else {"tandem": tandem}
        params = SamplingParams(**settings, extra_args=extra)
        ids = self.prompt(0) if prompt is None else prompt
        return self.engine.generate({"prompt_token_ids": ids}, params, use_tqdm=False)[0].outputs

    def prompt(self, number: int) -> list[int]:
        ids: list[int] = self.tokenizer(PROMPTS[number]).input_ids
        return ids

    def reference(self) -> Reference:
        return Reference(self.senior, self.junior)

    def loop(self, seed: int, p: float = 0.5) -> Iterator[bool]:
        return algorithm_1(seed, p, CAP, word_boundaries(self.tokenizer))


@pytest.fixture(scope="module")
def setup(
    checkpoints: dict[str, Path], tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    """A senior that starts from dummy weights, as trainers start it, and gets its own by a sync."""
    record = tmp_path_factory.mktemp("record")
    senior, junior = checkpoints["senior"], checkpoints["other"]
    tandem = {
        "cap": CAP, "junior": junior, "mode": "speculative", "drafts": DRAFTS,
        "record": record,
    }  # fmt: skip
    rules = TandemRules(
        TandemConfig.from_mapping({"cap": CAP}), Vocabulary.from_tokenizer(tokenizer)
    )
    with tandem_engine("v2", senior, tandem, load_format="dummy") as engine:
        made = Setup(engine, record, senior, junior, tokenizer, rules)
        reference = made.reference()
        (drafted,) = made.generate({"seed": 1, "schedule": "junior"})
        expected = reference.greedy(made.prompt(0), LENGTH, always(False))
        assert list(drafted.token_ids) == expected, "the junior was not loaded"
        before = engine.collective_rpc(worker.draft_digest)
        engine.collective_rpc(worker.sync, args=(str(senior), 5))
        engine.reset_prefix_cache()
        assert engine.collective_rpc(worker.draft_digest) == before
        yield made


@pytest.mark.parametrize("checkpoint", ["junior", "senior"])
def test_each_weight_sync_changes_the_senior_and_no_bit_of_the_junior(
    setup: Setup, checkpoints: dict[str, Path], checkpoint: str
) -> None:
    before = setup.engine.collective_rpc(worker.draft_digest)
    if checkpoint == "junior":
        setup.engine.collective_rpc(worker.sync, args=(str(checkpoints[checkpoint]), 1_000))
    else:
        setup.engine.collective_rpc(worker.reload, args=(str(checkpoints[checkpoint]),))
    setup.engine.reset_prefix_cache()
    assert setup.engine.collective_rpc(worker.draft_digest) == before
    reference = Reference(checkpoints[checkpoint], setup.junior)
    (response,) = setup.generate({"seed": 4})
    expected = reference.greedy(setup.prompt(0), LENGTH, setup.loop(4))
    assert list(response.token_ids) == expected


def test_a_weight_update_that_is_sent_to_the_junior_is_refused(
    setup: Setup, checkpoints: dict[str, Path]
) -> None:
    before = setup.engine.collective_rpc(worker.draft_digest)
    (said,) = setup.engine.collective_rpc(worker.update_draft, args=(str(checkpoints["other"]),))
    assert said.startswith("EngineError: A weight update was sent to the draft model")
    assert setup.engine.collective_rpc(worker.draft_digest) == before
    assert setup.engine.collective_rpc(worker.draft_parameter_names) == [[]]


def test_the_juniors_tensors_are_among_the_buffers_that_survive_deep_sleep(setup: Setup) -> None:
    assert setup.engine.collective_rpc(worker.draft_buffers_hold_the_juniors_storage) == [True]
    names = setup.engine.collective_rpc(worker.parameter_names)[0]
    assert "model.layers.0.self_attn.qkv_proj.weight" in names


@pytest.mark.parametrize("sampling", [{}, {"top_p": 0.8, "top_k": 50}], ids=["plain", "masked"])
def test_logprobs_are_those_of_the_author(setup: Setup, sampling: dict[str, Any]) -> None:
    """Before any parameter, as in lockstep; also where the junior's drafts were masked."""
    prompt, reference = setup.prompt(2), setup.reference()
    authors_seen = set()
    for seed in (11, 12, 13):
        (response,) = setup.generate(
            {"seed": seed}, prompt, temperature=1.0, seed=3, logprobs=0, max_tokens=20, **sampling
        )
        tokens = list(response.token_ids)
        authors = list(setup.rules.default.replay(tokens, seed))
        authors_seen.update(authors)
        assert len(response.logprobs) == len(tokens)
        for t, (token, author) in enumerate(zip(tokens, authors, strict=True)):
            expected = reference.logits(author, prompt + tokens[:t]).log_softmax(-1)[token]
            assert response.logprobs[t][token].logprob == pytest.approx(float(expected), abs=2e-4)
    assert authors_seen == {True, False}


def test_drafting_keeps_what_it_is_computed_to_keep(setup: Setup) -> None:
    setup.generate({"seed": 2}, max_tokens=3)
    ((kept, computed, is_set_aside),) = setup.engine.collective_rpc(worker.drafts_bytes)
    assert kept == computed > 0
    assert is_set_aside


def test_logprobs_and_first_tokens_in_chunks_are_those_of_the_whole_batch(setup: Setup) -> None:
    """The junior's head runs over no more rows at a time than vLLM's sampler takes."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": setup.prompt(number % 3)} for number in range(6)]
    params = [
        SamplingParams(
            temperature=1.0, seed=seed, logprobs=0, max_tokens=8, ignore_eos=True,
            extra_args={"tandem": {"seed": seed, "p": 0.3}},
        )
        for seed in range(71, 77)
    ]  # fmt: skip

    def written() -> list[list[tuple[int, float]]]:
        outputs = setup.engine.generate(prompts, params, use_tqdm=False)
        responses = [output.outputs[0] for output in outputs]
        return [
            [(t, round(at[t].logprob, 4)) for t, at in zip(r.token_ids, r.logprobs, strict=True)]
            for r in responses
        ]

    call = setup.engine.collective_rpc
    whole = written()
    setup.engine.reset_prefix_cache()
    call(worker.limit_chunks, args=(2,))
    try:
        assert written() == whole
    finally:
        (ran,) = call(worker.limit_chunks, args=(None,))
    assert max(ran) == 2
    assert len(ran) > 20


@pytest.mark.parametrize(
    "sampling",
    [{"top_p": 0.4}, {"top_k": 2}, {"allowed_token_ids": list(range(5, 40))}],
    ids=["top-p", "top-k", "allowed ids"],
)
def test_every_token_is_one_that_its_author_allows(setup: Setup, sampling: dict[str, Any]) -> None:
    """The junior's drafts stand as they are, so they must have been drawn as the request asks."""
    prompt, reference = setup.prompt(1), setup.reference()
    juniors = 0
    for seed in range(21, 27):
        (response,) = setup.generate(
            {"seed": seed}, prompt, temperature=1.3, seed=seed, max_tokens=12, **sampling
        )
        tokens = list(response.token_ids)
        authors = list(setup.rules.default.replay(tokens, seed))
        for t, (token, author) in enumerate(zip(tokens, authors, strict=True)):
            logits = reference.logits(author, prompt + tokens[:t]) / 1.3
            if "allowed_token_ids" in sampling:
                assert token in sampling["allowed_token_ids"]
            elif "top_k" in sampling:
                assert logits[token] >= logits.topk(2).values[-1] - 1e-4
            else:
                likelier = logits.softmax(-1)[logits > logits[token] + 1e-4].sum()
                assert likelier < 0.4 + 1e-4
            juniors += not author
    assert juniors > 10


@pytest.mark.parametrize("schedule", ["junior", "word"])
def test_ids_that_a_trainer_masks_are_written_by_neither_model(setup: Setup, schedule: str) -> None:
    """Token for token what the author finds likeliest of the others; and all again without it."""
    asked = {"seed": 3, "schedule": schedule}
    prompt, reference = setup.prompt(0), setup.reference()
    before = list(setup.generate(asked)[0].token_ids)
    banned = sorted(set(before))
    setup.engine.collective_rpc(worker.ban, args=(banned,))
    try:
        written = list(setup.generate(asked)[0].token_ids)
    finally:
        setup.engine.collective_rpc(worker.lift_ban)
    authors = always(False) if schedule == "junior" else setup.loop(3)
    for place, author in enumerate(along(authors, written)):
        logits = reference.logits(author, prompt + written[:place])
        logits[banned] = -torch.inf
        assert written[place] == int(logits.argmax())
    assert list(setup.generate(asked)[0].token_ids) == before


def test_no_request_ends_before_the_tokens_that_it_must_have(setup: Setup) -> None:
    """``min_tokens``: the junior's drafts hold no stop ids before."""
    stops = list(range(120))
    for seed in range(31, 37):
        (response,) = setup.generate(
            {"seed": seed}, temperature=1.0, seed=seed, min_tokens=7, stop_token_ids=stops,
            ignore_eos=False,
        )  # fmt: skip
        assert len(response.token_ids) >= 7
        assert not set(response.token_ids[:7]) & set(stops)


def test_samples_of_one_request_have_authors_of_their_own(setup: Setup) -> None:
    samples = 4
    outputs = setup.generate({"seed": 12, "p": 0.6}, n=samples, temperature=1.0, top_k=1)
    reference = setup.reference()
    expected = [
        reference.greedy(setup.prompt(0), LENGTH, setup.loop(sample_seed(12, i), 0.6))
        for i in range(samples)
    ]
    assert [list(output.token_ids) for output in outputs] == expected


def test_response_that_was_cut_anywhere_goes_on_as_if_it_had_not_been(setup: Setup) -> None:
    prompt = setup.prompt(1)
    for seed in (41, 42):
        (output,) = setup.generate({"seed": seed}, prompt, max_tokens=16)
        whole = list(output.token_ids)
        for stop in (1, 2, 5, 15):
            (rest,) = setup.generate(
                {"seed": seed, "prompt_length": len(prompt)},
                prompt + whole[:stop],
                max_tokens=16 - stop,
            )
            assert whole[:stop] + list(rest.token_ids) == whole


def test_the_record_holds_each_requests_counters_and_the_engine_their_sum(setup: Setup) -> None:
    (before,) = setup.engine.collective_rpc(RPC_DRAFT_STATS)
    seeds = range(51, 57)
    for seed in seeds:
        setup.generate({"seed": seed}, temperature=1.0, seed=seed)
    setup.generate(None, max_tokens=2)  # the engine tells its runner of the last one's end
    rows = recorded(setup.record, seeds)
    (after,) = setup.engine.collective_rpc(RPC_DRAFT_STATS)
    for seed in seeds:
        row = rows[seed]["tandem_draft_stats"]
        assert (
            rows[seed]["authorship"]
            == setup.rules.default.replay(rows[seed]["response_ids"], seed).tolist()
        )
        assert row["drafts"] <= row["rounds"] * DRAFTS
        # The first token is nobody's draft.
        assert row["tokens"] == len(rows[seed]["response_ids"]) - 1
        assert 0 <= row["senior_accepted"] <= row["senior_drafts"]
        assert row["junior_drafts"] <= rows[seed]["authorship"].count(0)
        assert row["rounds"] <= row["tokens"] <= row["rounds"] * (DRAFTS + 1)
    names = rows[51]["tandem_draft_stats"].keys()
    sums = {name: sum(rows[seed]["tandem_draft_stats"][name] for seed in seeds) for name in names}
    assert {name: after[name] - before[name] for name in names} == sums
    assert all_records(setup.record)


@pytest.mark.parametrize(
    ("sampling", "sentence"),
    [
        ({"bad_words": ["the"]}, "TP025"),
        ({"presence_penalty": 1.5}, "TP025"),
        ({"logprob_token_ids": [3, 4]}, "TP023"),
        ({"min_p": 0.1, "temperature": 1.0}, "min_p and logit_bias sampling parameters"),
        ({"logit_bias": {3: 1.0}}, "min_p and logit_bias sampling parameters"),
    ],
)
def test_what_drafting_cannot_honour_is_refused_alone(
    setup: Setup, sampling: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(VLLMValidationError, match=sentence):
        setup.generate({"seed": 1}, **sampling)
    assert len(setup.generate({"seed": 1}, max_tokens=2)[0].token_ids) == 2


def test_the_senior_alone_may_ask_for_what_vllm_drafts_with(setup: Setup) -> None:
    expected = setup.reference().greedy(setup.prompt(0), LENGTH, always(True))
    for tandem in (None, "off"):
        (response,) = setup.generate(tandem)
        assert list(response.token_ids) == expected
        (response,) = setup.generate(tandem, repetition_penalty=1.3, bad_words=["the"])
        assert len(response.token_ids) == LENGTH
