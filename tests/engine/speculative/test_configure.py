"""Finished configurations that the speculative mode was not verified with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.engine.speculative.configure import check_drafting

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
