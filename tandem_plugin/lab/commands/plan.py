"""``tandem plan``: whether two models fit a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.lab.commands.options import JuniorOption, SeniorOption
from tandem_plugin.terminal.output import JsonOption, echo, print_fields, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.planning import PlannedModel

_GIB = 2**30
_BLOCK = 16
"""Tokens per KV block: vLLM's default on a GPU."""
_WIDTH = 2
"""Bytes per value, in bfloat16."""


def plan(
    senior: SeniorOption,
    memory: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Memory of one GPU in GiB as nvidia-smi shows it, such as 79.6 for 81,559 MiB.",
        ),
    ],
    junior: JuniorOption = None,
    gpu_memory_utilization: Annotated[
        float, typer.Option(min=0.01, max=1, help="Fraction of that memory for the engine.")
    ] = 0.9,
    tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="Number of GPUs per engine.")
    ] = 1,
    max_model_len: Annotated[
        int, typer.Option(min=1, help="Length of a sequence: prompt plus response.")
    ] = 4096,
    json: JsonOption = False,
) -> None:
    """Show how much GPU memory two models leave, and how many tokens of both fit into it.

    Options have the names of vLLM's settings. Reads the models' config.json and the headers of
    their weights; no GPU is needed. Weights and KV blocks are exact, in bfloat16, with recurrent
    states and the padding of their pages; layers that attend to a window are counted as if they
    kept every token. Activations are not included: vLLM measures them at startup and subtracts them
    from the remaining memory. The exit code is 1 if not even one sequence fits.
    """
    from tandem_plugin.lab.planning import planned_cache, read_checkpoint

    models = [read_checkpoint(senior), read_checkpoint(junior or senior)]
    weights = [model.weights(_WIDTH) // tensor_parallel_size for model in models]
    left = round(round(memory * _GIB) * gpu_memory_utilization) - sum(weights)
    cache = planned_cache(models, _WIDTH, tensor_parallel_size, _BLOCK)
    blocks = max(0, left) // cache.block_bytes
    longest = min(cache.longest_sequence(blocks), *(model.longest for model in models))
    result = {
        "fits": longest >= max_model_len,
        "senior": _as_json(models[0], weights[0]),
        "junior": _as_json(models[1], weights[1]),
        "kv_cache_bytes": left,
        "kv_block_bytes": cache.block_bytes,
        "kv_blocks": blocks,
        "sequence_tokens": max_model_len,
        "sequences_at_once": max(0, blocks - 1) // cache.blocks_of(max_model_len),
        "longest_sequence": longest,
    }
    if json:
        print_json(result)
    else:
        _show(result)
    raise typer.Exit(0 if result["fits"] else 1)


def _as_json(model: PlannedModel, weights: int) -> dict[str, Any]:
    return {"name": model.name, "parameters": model.parameters, "weights": weights}


def _show(result: dict[str, Any]) -> None:
    fields = {
        role: f"{result[role]['weights'] / _GIB:.2f} GiB  {result[role]['parameters']:,} "
        f"parameters  {result[role]['name']}"
        for role in ("senior", "junior")
    }
    left = f"{result['kv_cache_bytes'] / _GIB:.2f} GiB"
    at_once = f"{result['sequences_at_once']:,} of {result['sequence_tokens']:,} tokens"
    print_fields(fields | {"KV cache and activations": left, "sequences at once": at_once})
    if not result["fits"]:
        echo(
            f"It does not fit: the longest sequence has {result['longest_sequence']:,} tokens. Use "
            "a larger GPU or more of them (--tensor-parallel-size), smaller models, or shorter "
            "sequences."
        )
