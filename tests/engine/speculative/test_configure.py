"""Finished configurations that the speculative mode was not verified with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.engine.speculative.configure import check_drafting, table_of_setting
from tandem_plugin.engine.speculative.draft_choice import CANDIDATES

CONFIG = TandemConfig.from_mapping({"mode": "speculative"})


def finished(experts: str, ranks: int) -> Any:
    """A configuration of vLLM with mixtures of experts in the senior, the junior or neither."""
    draft = SimpleNamespace(is_moe=experts == "junior")
    return SimpleNamespace(
        use_v2_model_runner=True,
        model_config=SimpleNamespace(is_moe=experts == "senior"),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, data_parallel_size=ranks),
        speculative_config=SimpleNamespace(draft_model_config=draft, num_speculative_tokens=4),
        lora_config=None,
        cache_config=SimpleNamespace(kv_sharing_fast_prefill=False),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=2048, max_num_seqs=8),
    )


@pytest.mark.parametrize("experts", ["senior", "junior"])
def test_experts_in_either_model_do_not_go_with_several_ranks(experts: str) -> None:
    with refused("speculative-data-parallel-experts"):
        check_drafting(finished(experts, 2), CONFIG)
    check_drafting(finished(experts, 1), CONFIG)
    check_drafting(finished("neither", 2), CONFIG)


def test_an_engine_chooses_its_drafts_alone_and_for_several_requests() -> None:
    auto = TandemConfig.from_mapping({"mode": "speculative", "drafts": "auto"})
    with refused("drafts-data-parallel", drafts=8):
        check_drafting(finished("neither", 2), auto)
    few = finished("neither", 1)
    few.scheduler_config.max_num_seqs = 3
    with refused("drafts-auto-too-few-requests", max_num_seqs=3, least=4):
        check_drafting(few, auto)
    few.scheduler_config.max_num_seqs = 4
    check_drafting(few, auto)
    check_drafting(finished("neither", 2), CONFIG)


@pytest.mark.parametrize("requests", [4, 5, 50, 256, None])
def test_every_number_that_may_be_chosen_is_in_the_first_table(requests: int | None) -> None:
    """vLLM prepares the numbers that its table has up to ``max_num_seqs``."""
    ranges = table_of_setting("auto", requests)
    assert ranges is not None
    last = requests or 256
    assert {drafts for first, _, drafts in ranges if first <= last} == set(CANDIDATES)
    assert ranges[0][0] == 1
    assert ranges[-1][1] == last
    assert [first for first, _, _ in ranges[1:]] == [end + 1 for _, end, _ in ranges[:-1]]


def test_one_number_is_no_table() -> None:
    assert table_of_setting(4, 16) is None
    assert table_of_setting({1: 3, 8: 3}, 16) is None
    assert table_of_setting({1: 3, 8: 0}, 16) == [(1, 7, 3), (8, 8, 0)]
