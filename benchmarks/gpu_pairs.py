"""The pairs of models that a GPU is measured with, at real widths, and their engines' arguments.

Weights are random and made on the spot: what a pass costs does not depend on them. Output layers
are scaled so that senior and junior share about 0.96 of a distribution, as a trained senior and its
frozen junior do, so that drafts are accepted as often.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import (
    LOGITS,
    QWEN3_1_7B,
    QWEN3_4B,
    QWEN3_600M,
    TINY_JUNIOR,
    TINY_SENIOR,
    Shape,
    make,
)
from engine_process import ENGINE_ARGUMENTS, PROMPT, EngineProcess, StartError
from results import Results, tell

UNFINISHED = {"unfinished": True}
"""Marks a case that is measured again when the part is started again."""

LEFT_OUT = "use vLLM 0.", "plans a GPU's attention for the senior's shapes alone"
"""What an engine says that the installed vLLM does not have."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """How much every request of a batch reads and writes."""

    prompt: int
    decoded: Mapping[int, int]
    """Tokens of each response, by batch size."""
    rounds: int = 3

    def prompts(self, batch: int) -> list[list[int]]:
        """Random token ids."""
        return np.random.default_rng(0).integers(300, 500, (batch, self.prompt)).tolist()

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its response."""
        return self.prompt + max(self.decoded.values())

    def __str__(self) -> str:
        decoded = ", ".join(f"{tokens} at batch {n}" for n, tokens in self.decoded.items())
        return f"Prompts of {self.prompt} tokens; decoded tokens of a response: {decoded}"


SHORT = Lengths(PROMPT, {1: 128, 16: 96, 64: 96, 256: 96})
TOY = Lengths(PROMPT, {1: 12, 4: 12}, rounds=1)


def lengths_of(toy: bool, prompt: int | None, decoded: int | None) -> Lengths:
    """The usual lengths, or those of the options ``--prompt`` and ``--decoded``.

    Long responses are decoded in one round, 128 at most at once, whose caches fit beside 4B twice.
    """
    usual = TOY if toy else SHORT
    is_long = (decoded or 0) >= 1000
    tokens = {
        min(size, 128) if is_long else size: decoded or usual_tokens
        for size, usual_tokens in usual.decoded.items()
    }
    return Lengths(prompt or usual.prompt, tokens, 1 if is_long else usual.rounds)


@dataclass(frozen=True, slots=True)
class Pair:
    """A senior and a junior."""

    senior: Shape
    junior: Shape
    title: str
    quantization: str | None = None
    """vLLM's quantisation of the junior."""

    def checkpoints(self, toy: bool) -> tuple[Path, Path]:
        """Both, made unless they are there already; tiny ones for a toy."""
        shapes = (TINY_SENIOR, TINY_JUNIOR) if toy else (self.senior, self.junior)
        folder = Path(tempfile.gettempdir()) / "tandem-gpu-checkpoints"
        return make(folder, shapes[0], 0, LOGITS), make(folder, shapes[1], 1, LOGITS)


PAIRS = {
    "1.7b": Pair(QWEN3_1_7B, QWEN3_1_7B, "Qwen3 1.7B beside 1.7B"),
    "1.7b+0.6b": Pair(QWEN3_1_7B, QWEN3_600M, "Qwen3 1.7B beside 0.6B"),
    "4b": Pair(QWEN3_4B, QWEN3_4B, "Qwen3 4B beside 4B"),
    "4b+1.7b": Pair(QWEN3_4B, QWEN3_1_7B, "Qwen3 4B beside 1.7B"),
    "4b+fp8": Pair(QWEN3_4B, QWEN3_4B, "Qwen3 4B beside 4B in fp8", "fp8"),
}


def arguments(toy: bool, longest: int = 0, **more: Any) -> dict[str, Any]:
    """Of every engine alike; what vLLM would choose is left to it.

    longest: the tokens of a prompt and its response.
    """
    if toy:
        return {**ENGINE_ARGUMENTS, "kv_cache_memory_bytes": 2**26, "max_num_seqs": 8}
    return {
        **ENGINE_ARGUMENTS,
        "dtype": "bfloat16",
        "enforce_eager": False,
        "max_model_len": max(4096, longest + 64),  # drafts end behind a response
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "kv_cache_memory_bytes": None,
        "gpu_memory_utilization": 0.85,
        **more,
    }


def measure_engines(
    pair: Pair,
    engines: Mapping[str, int | None],
    figures: Callable[[EngineProcess, Callable[[dict[str, Any]], None]], dict[str, Any]],
    results: Results,
    toy: bool,
    longest: int = 0,
    **more: Any,
) -> None:
    """One case an engine, each alone on the device; what teaches most comes first.

    engines: the drafts of each mode: single, lockstep or speculative. figures: an engine's, given a
    function that keeps what there is so far. An engine that this vLLM does not have is left out, by
    its own sentence; any other that does not start is a failed check.
    Without VLLM_USE_V2_MODEL_RUNNER vLLM chooses the runner; the speculative mode has V2 alone.
    """
    for name, drafts in engines.items():
        before = results.cases.get(name, UNFINISHED)
        if before.get("passed") is not False and not before.get("unfinished"):
            continue
        senior, junior = pair.checkpoints(toy)
        beside = None if name == "single" else junior
        given = arguments(toy, longest, **more)
        tandem = {} if toy or not pair.quantization else {"junior_quantization": pair.quantization}
        if name == "speculative":
            given |= {"runner": "v2"}
            tandem |= {"mode": name, "drafts": drafts}
        if tandem and beside:
            given["tandem"] = tandem
        try:
            started = time.monotonic()
            with EngineProcess(senior, beside, **given) as engine:
                tell(f"{name}: started in {time.monotonic() - started:.0f} s")
                keep = partial(_keep, results, name)
                results.add(name, figures(engine, keep))
        except StartError as error:
            sentence = " ".join(str(error).split())[:300]
            passed = None if any(one in str(error) for one in LEFT_OUT) else False
            results.add(name, {"passed": passed, "found": sentence, "rows": []})


def _keep(results: Results, name: str, found: dict[str, Any]) -> None:
    """Keep what there is of an engine so far, and say its last row."""
    results.add(name, found | UNFINISHED)
    tell(f"{name}: {found['last']}")


def notes_of(cases: Mapping[str, Any]) -> list[str]:
    """What a table says of engines that were not measured."""
    return [f"{name}: {case['found']}" for name, case in cases.items() if "found" in case]
