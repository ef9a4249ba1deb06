"""What a tandem engine needs in memory: KV blocks and weights, computed and as vLLM reports them.

``python benchmarks/engine_memory.py``: a block of the KV cache holds keys and values of
``block size`` tokens in every layer of both models, which share block tables. So

    blocks = KV memory // (block size * sum over layers of 2 * KV heads * head size * bytes)

with the senior's layers and the junior's in the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoints import BYTES, SENIOR, SMALL_JUNIOR, TINY_JUNIOR, TINY_SENIOR, Shape, make
from command import progress_bar, run_benchmark
from engine_process import ENGINE_ARGUMENTS, EngineProcess
from results import Results
from table import Table

__all__ = ["NAME", "measure", "table"]

NAME = "engine_memory"

ADAPTER = "tandem, adapter and its base"
"""The senior is the base with an adapter (LoRA), the junior that base."""


def measure(results: Results, quick: bool) -> None:
    """One engine after the other."""
    senior = TINY_SENIOR if quick else SENIOR
    small = TINY_JUNIOR if quick else SMALL_JUNIOR
    engines: dict[str, Shape | None] = {
        "single model": None,
        "tandem, equal sizes": senior,
        "tandem, small junior": small,
        ADAPTER: senior,
    }
    folder = results.path.parent / "checkpoints"
    with progress_bar() as progress:
        for case, junior in progress.track(engines.items(), description="engines"):
            if case in results:
                continue
            model = make(folder, senior)
            path = None if junior is None else make(folder, junior)
            arguments: dict[str, Any] = {}
            if case == ADAPTER:
                path, arguments = model, {"enable_lora": True, "max_lora_rank": 32}
            with EngineProcess(model, path, **arguments) as engine:
                found = engine.memory()
            computed = _computed(senior, junior, found["block_size"])
            if case == ADAPTER:
                computed["computed_junior_bytes"] = 0
            results.add(case, computed | found)


def _computed(senior: Shape, junior: Shape | None, block_size: int) -> dict[str, int]:
    shapes = [senior] if junior is None else [senior, junior]
    kv_bytes = sum(shape.kv_bytes_a_token for shape in shapes)
    kv_memory = int(ENGINE_ARGUMENTS["kv_cache_memory_bytes"])
    return {
        "kv_memory_bytes": kv_memory,
        "kv_bytes_a_token": kv_bytes,
        "computed_blocks": kv_memory // (block_size * kv_bytes),
        "computed_senior_bytes": senior.parameters * BYTES,
        "computed_junior_bytes": 0 if junior is None else junior.parameters * BYTES,
    }


def table(content: Mapping[str, Any]) -> Table:
    """Computed against reported, by engine."""
    rows = [
        [
            name,
            f"{case['kv_bytes_a_token']:,}",
            f"{case['computed_blocks']:,}",
            f"{case['blocks']:,}",
            *(
                f"{case[key] / 2**20:,.0f}"
                for key in (
                    "computed_senior_bytes",
                    "senior_bytes",
                    "computed_junior_bytes",
                    "junior_bytes",
                    "resident_bytes",
                )
            ),
        ]
        for name, case in content["cases"].items()
    ]
    sizes = {case["block_size"] for case in content["cases"].values()}
    memory = {case["kv_memory_bytes"] / 2**30 for case in content["cases"].values()}
    return Table(
        title="Memory",
        columns=[
            "engine",
            "KV bytes a token",
            "blocks, computed",
            "blocks, vLLM's",
            "senior MiB, computed",
            "senior MiB",
            "junior MiB, computed",
            "junior MiB",
            "process MiB",
        ],
        rows=rows,
        unit=(
            f"float32, {', '.join(f'{m:g}' for m in memory)} GiB for the KV cache, blocks of "
            f"{', '.join(map(str, sizes))} tokens"
        ),
        notes=(
            "KV bytes a token are 2 x layers x KV heads x head size x bytes a value, summed over "
            "both models; blocks are the KV memory over block size times that, rounded down. "
            "Process memory includes the KV cache and libraries. On a CPU vLLM packs each linear "
            "layer's weight into a second copy: an engine of a single model then drops the first, "
            "so that its parameters are less than computed; a tandem engine keeps it, since a "
            "weight sync loads into it. An adapter's base is both models', held once; room for an "
            "adapter of rank 32 is in the process's memory alone.",
        ),
    )


if __name__ == "__main__":
    run_benchmark(NAME, "KV blocks and weights of tandem engines.", measure)
