"""The speculative engine beside its tokens: logprobs, masks, counters, what the senior may ask."""

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
from tandem_plugin.engine.wire import RPC_DRAFT_STATS

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
    record = tmp_path_factory.mktemp("record")
    senior, junior = checkpoints["senior"], checkpoints["other"]
    tandem = {
        "cap": CAP, "junior": junior, "mode": "speculative", "drafts": DRAFTS,
        "record": record,
    }  # fmt: skip
    rules = TandemRules(
        TandemConfig.from_mapping({"cap": CAP}), Vocabulary.from_tokenizer(tokenizer)
    )
    with tandem_engine("v2", senior, tandem) as engine:
        yield Setup(engine, record, senior, junior, tokenizer, rules)


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


def test_the_senior_alone_may_ask_for_what_vllm_drafts_with(setup: Setup) -> None:
    with pytest.raises(VLLMValidationError, match="sampling-depends-on-history"):
        setup.generate({"seed": 1}, bad_words=["the"])
    with pytest.raises(VLLMValidationError, match="min_p and logit_bias"):  # vLLM's own
        setup.generate({"seed": 1}, temperature=1.0, min_p=0.1)
    expected = setup.reference().greedy(setup.prompt(0), LENGTH, always(True))
    for tandem in (None, "off"):
        (response,) = setup.generate(tandem)
        assert list(response.token_ids) == expected
        (response,) = setup.generate(tandem, repetition_penalty=1.3, bad_words=["the"])
        assert len(response.token_ids) == LENGTH
