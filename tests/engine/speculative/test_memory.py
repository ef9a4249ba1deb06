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
from tandem_plugin.engine.speculative.memory import draft_memory, row_chunks, set_aside

QWEN = 151_936


def config(
    requests: int = 1024,
    drafts: int = 4,
    vocabulary: int = QWEN,
    head: torch.dtype = torch.bfloat16,
    batch: int = 8192,
) -> Any:
    draft = SimpleNamespace(get_hidden_size=lambda: 2048, dtype=torch.bfloat16)
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=requests, max_num_batched_tokens=batch),
        model_config=SimpleNamespace(get_vocab_size=lambda: vocabulary, head_dtype=head),
        speculative_config=SimpleNamespace(num_speculative_tokens=drafts, draft_model_config=draft),
    )


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
    hidden = 2048 * 2  # of one row more, for padding
    assert found.lasting == drafts * (
        requests * vocabulary * head.itemsize + (requests + 1) * hidden
    )
    assert found.a_round >= logits + 2 * chunk * vocabulary * 4, "processed, and without rejected"
    assert found.a_round >= logits + 3 * chunk * vocabulary * head.itemsize, "logprobs"
    assert found.a_round >= requests * vocabulary * (head.itemsize + 4 + 1), "drafting"
    assert found.a_round > found.logits > 0


def test_profiling_sees_what_a_round_takes_or_the_engine_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside the logits of one row a request, which vLLM's own profiling sees."""
    needed, taken = draft_memory(config()), []
    monkeypatch.setattr(torch, "empty", lambda size, **options: taken.append(size))
    set_aside(needed, torch.device("meta"))
    assert taken == [needed.a_round - 1024 * QWEN * 2]

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", full)
    with refused("speculative-memory-too-small"):
        set_aside(needed, torch.device("cpu"))


@given(st.integers(0, 9000), st.integers(1, 400_000))
def test_chunks_cover_every_row_once_and_hold_what_vllms_hold(rows: int, vocabulary: int) -> None:
    chunks = list(row_chunks(rows, vocabulary))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(rows))
    for chunk in chunks:
        size = chunk.stop - chunk.start
        assert size == 1 or size * vocabulary * 4 <= memory.CHUNK_BYTES
