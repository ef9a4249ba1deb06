"""What drafting takes of a device's memory: computed, refused where it cannot fit, in chunks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.engine.speculative import memory
from tandem_plugin.engine.speculative.memory import (
    check_memory,
    draft_memory,
    row_chunks,
    set_aside,
)

GIB = 2**30
QWEN = 151_936


def config(
    requests: int = 1024,
    drafts: int = 4,
    vocabulary: int = QWEN,
    head: torch.dtype = torch.bfloat16,
    batch: int = 8192,
    share: float = 0.9,
    kv: int | None = None,
) -> Any:
    draft = SimpleNamespace(get_hidden_size=lambda: 2048, dtype=torch.bfloat16)
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=requests, max_num_batched_tokens=batch),
        model_config=SimpleNamespace(get_vocab_size=lambda: vocabulary, head_dtype=head),
        speculative_config=SimpleNamespace(num_speculative_tokens=drafts, draft_model_config=draft),
        cache_config=SimpleNamespace(gpu_memory_utilization=share, kv_cache_memory_bytes=kv),
    )


def on_device_of(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.platforms import current_platform

    monkeypatch.setattr(
        type(current_platform), "get_device_total_memory", classmethod(lambda cls: total)
    )


def test_kept_are_the_drafts_logits_and_the_juniors_hidden_states() -> None:
    """1,024 requests and 4 drafts over Qwen's ids in bfloat16: 1.24 GB, and what is behind them."""
    assert draft_memory(config()).kept == 4 * (1024 * QWEN * 2 + 1025 * 2048 * 2)
    assert pytest.approx(1.24e9, rel=0.01) == 1024 * 4 * QWEN * 2


@given(
    st.integers(1, 2048),
    st.integers(1, 16),
    st.integers(100, 300_000),
    st.sampled_from([torch.bfloat16, torch.float32]),
    st.integers(16, 16_384),
)
def test_a_round_holds_what_is_there_at_once(
    requests: int, drafts: int, vocabulary: int, head: torch.dtype, batch: int
) -> None:
    found = draft_memory(config(requests, drafts, vocabulary, head, batch))
    rows = min(requests * (drafts + 1), batch)
    chunk = max(c.stop - c.start for c in row_chunks(rows, vocabulary))
    logits = rows * vocabulary * head.itemsize
    assert found.a_round >= logits + 2 * chunk * vocabulary * 4, "processed, and without rejected"
    assert found.a_round >= logits + 3 * chunk * vocabulary * head.itemsize, "logprobs"
    assert found.a_round >= requests * vocabulary * (head.itemsize + 4 + 1), "drafting"
    assert found.a_round > found.logits > 0


def test_an_engine_whose_drafts_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = draft_memory(config())
    total = needed.kept + needed.a_round
    on_device_of(int(total / 0.9) - GIB, monkeypatch)
    with refused("TP353") as caught:
        check_memory(config())
    for part in (
        "max_num_seqs=1024", "drafts=4", "151,936 token ids",
        f"needs {needed.kept / GIB:.2f} GiB for drafts", f"{needed.a_round / GIB:.2f} GiB for a",
        "gpu_memory_utilization=0.9",
    ):  # fmt: skip
        assert part in str(caught.value)
    on_device_of(int(total / 0.9) + GIB, monkeypatch)
    check_memory(config())
    check_memory(config(requests=256))
    with refused("TP353", setting="gpu_memory_utilization", value=0.3):
        check_memory(config(share=0.3))
    check_memory(config(share=0.3, kv=GIB))
    with refused("TP353", setting="kv_cache_memory_bytes", value=3 * GIB):
        check_memory(config(kv=3 * GIB))


def test_a_front_end_that_sees_no_device_leaves_it_to_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.platforms import current_platform

    def nothing(cls: type) -> int:
        raise RuntimeError("no device is visible")

    monkeypatch.setattr(type(current_platform), "get_device_total_memory", classmethod(nothing))
    check_memory(config(share=0.0001))


def test_profiling_sees_what_a_round_takes_beside_the_logits_of_one_row_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed, taken = draft_memory(config()), []
    monkeypatch.setattr(torch, "empty", lambda size, **options: taken.append((size, options)))
    set_aside(needed, torch.device("meta"))
    ((size, options),) = taken
    assert size == needed.a_round - 1024 * QWEN * 2
    assert options == {"dtype": torch.uint8, "device": torch.device("meta")}


def test_a_device_without_room_for_a_round_is_refused_with_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", full)
    with refused("TP354"):
        set_aside(draft_memory(config()), torch.device("cpu"))


@given(st.integers(0, 9000), st.integers(1, 400_000))
def test_chunks_cover_every_row_once_and_hold_what_vllms_hold(rows: int, vocabulary: int) -> None:
    chunks = list(row_chunks(rows, vocabulary))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(rows))
    for chunk in chunks:
        size = chunk.stop - chunk.start
        assert size == 1 or size * vocabulary * 4 <= memory.CHUNK_BYTES
