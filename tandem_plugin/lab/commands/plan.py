"""``tandem plan``: whether two models fit a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.lab.commands.options import JuniorOption, SeniorOption
from tandem_plugin.lab.costs import CARDS, ERROR, Card, Load, expected
from tandem_plugin.terminal.output import (
    JsonOption,
    cell,
    echo,
    print_fields,
    print_json,
    table_console,
)

if TYPE_CHECKING:
    from tandem_plugin.lab.planning import PlannedModel

_GIB = 2**30
_BLOCK = 16
"""Tokens per KV block: vLLM's default on a GPU."""
_WIDTH = 2
"""Bytes per value, in bfloat16."""
_LARGEST_GPU = 2000
"""More GiB than any GPU has: such a number was meant in MiB."""
_FLAGS = {
    "vllm serve": "--{dashed} {value}",
    "tandem rollout, eval": "--engine {name}={value}",
    "verl": "actor_rollout_ref.rollout.{name}={value}",
    "OpenRLHF": "--vllm.{name} {value}",
    "TRL": "--vllm_{name} {value}",
    "SkyRL": "generator.inference_engine.{name}={value}",
}
"""How each program takes a setting of the engine."""
_OWN_NAMES = {("OpenRLHF", "max_model_len"): "--data.max_len {value}",
              ("TRL", "max_model_len"): "--vllm_max_model_length {value}",
              ("SkyRL", "max_model_len"):
              "generator.inference_engine.engine_init_kwargs.max_model_len={value}"}  # fmt: skip
"""Where its name differs."""


def plan(
    senior: SeniorOption,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="GIB",
            help="Memory of one GPU in GiB as nvidia-smi shows it, such as 79.6 for 81,559 MiB.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A GPU by name, in place of --memory: its memory, and how fast each mode is there "
            "beside the senior alone. " + ", ".join(CARDS),
        ),
    ] = None,
    junior: JuniorOption = None,
    junior_quantization: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="vLLM's quantisation of the junior, such as fp8."),
    ] = None,
    gpu_memory_utilization: Annotated[
        float, typer.Option(min=0.01, max=1, help="Fraction of that memory for the engine.")
    ] = 0.9,
    tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="Number of GPUs per engine.")
    ] = 1,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Length of a sequence: prompt plus response. Default: the longest that both "
            "models read, as in vLLM.",
        ),
    ] = None,
    images: Annotated[
        bool,
        typer.Option(
            "--images", help="For prompts with images: both vision towers and what they need."
        ),
    ] = False,
    max_num_batched_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            help="Tokens of a step, for --images: the engine keeps encodings of so many tokens of "
            "images, and of the largest one if it has more.",
        ),
    ] = 8192,
    prompt: Annotated[
        int, typer.Option(min=1, help="Tokens of a prompt, for the speed; the rest is response.")
    ] = 512,
    json: JsonOption = False,
) -> None:
    """Show how much GPU memory two models leave, and how many tokens of both fit into it.

    Options have the names of vLLM's settings. Reads the models' config.json and the headers of
    their weights; no GPU is needed. Weights and KV blocks are exact, in bfloat16, with recurrent
    states and the padding of their pages; layers that attend to a window are counted as if they
    kept every token. Activations are not included: vLLM measures them at startup and subtracts them
    from the remaining memory. If it fits, the flags that set it are printed for vLLM and each
    trainer. With --gpu, the speed of both modes is computed beside the senior alone. The exit code
    is 1 if not even one sequence fits.
    """
    from tandem_plugin.lab.planning import planned_cache, read_checkpoint

    card = _card(gpu, memory)
    memory = card.memory if card else memory
    if memory is None:
        raise ConfigError("plan-without-memory", known=", ".join(CARDS))
    if memory > _LARGEST_GPU:
        raise ConfigError("plan-memory-not-gib", memory=memory, gib=memory / 1024)
    models = [read_checkpoint(senior, images), read_checkpoint(junior or senior, images)]
    if junior_quantization:
        models[1] = models[1].quantised_by(junior_quantization)
    for model in models:
        if model.heads % tensor_parallel_size:
            raise ConfigError(
                "plan-heads-not-divisible",
                name=model.name,
                heads=model.heads,
                gpus=tensor_parallel_size,
            )
    weights = [model.weights(_WIDTH) // tensor_parallel_size for model in models]
    seen = sum(model.image_bytes(_WIDTH, max_num_batched_tokens) for model in models)
    remaining = round(round(memory * _GIB) * gpu_memory_utilization) - sum(weights) - 2 * seen
    cache = planned_cache(models, _WIDTH, tensor_parallel_size, _BLOCK)
    blocks = max(0, remaining) // cache.block_bytes
    readable = min(model.longest for model in models)
    length = max_model_len or readable
    longest = min(cache.longest_sequence(blocks), readable)
    settings = {
        "max_model_len": length,
        "gpu_memory_utilization": gpu_memory_utilization,
        "tensor_parallel_size": tensor_parallel_size,
    }
    at_once = max(0, blocks - 1) // cache.blocks_of(length)
    result: dict[str, Any] = {
        "fits": longest >= length,
        "senior": _as_json(models[0], weights[0]),
        "junior": _as_json(models[1], weights[1]),
        **({"encoder_cache_bytes": seen, "embeddings_bytes": seen} if images else {}),
        "kv_cache_bytes": remaining,
        "kv_block_bytes": cache.block_bytes,
        "kv_blocks": blocks,
        "sequence_tokens": length,
        "sequences_at_once": at_once,
        "longest_sequence": longest,
        "longest_readable": readable,
        "flags": _flags(settings) if longest >= length else {},
    }
    if card:
        result["speed"] = _speeds(card, models, length, prompt, at_once)
    if json:
        print_json(result)
    else:
        _show(result)
        if result.get("speed"):
            _show_speeds(result)
    raise typer.Exit(0 if result["fits"] else 1)


def _card(name: str | None, memory: float | None) -> Card | None:
    if name is None:
        return None
    if memory is not None:
        raise ConfigError("plan-memory-twice", gpu=name, memory=memory)
    if name.lower() not in CARDS:
        raise ConfigError("plan-gpu-unknown", gpu=name, known=", ".join(CARDS))
    return CARDS[name.lower()]


_BATCHES = (1, 4, 16, 64, 128, 256)
_DRAFTS = range(1, 9)


def _speeds(
    card: Card, models: Sequence[PlannedModel], tokens: int, prompt: int, at_once: int
) -> list[dict[str, Any]]:
    """The expected speed of each mode, by requests. tokens: of a whole sequence."""
    if prompt >= tokens:
        raise ConfigError("plan-prompt-too-long", prompt=prompt, tokens=tokens)
    average = prompt + (tokens - prompt) // 2
    senior, junior = models
    return [
        asdict(expected(card, senior, junior, Load(requests, average), _DRAFTS))
        for requests in _BATCHES
        if requests <= at_once
    ]


def _show_speeds(result: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("requests", "senior alone, tokens/s", "lockstep", "speculative", "drafts"):
        table.add_column(title, justify="right")
    for row in result["speed"]:
        speed, ratios = f"{row['single']:,.0f}", (row["lockstep"], row["speculative"])
        cells = [row["requests"], speed, *(f"{ratio:.2f}" for ratio in ratios), row["drafts"]]
        table.add_row(*map(cell, cells))
    echo("Expected speed, and each mode's ratio to the senior alone (computed, not measured):")
    table_console().print(table)
    echo(
        f"At short lengths, one H100 and one H200 measured speeds within {ERROR:.0%} of these, but "
        "0.6 of the speculative mode's at 128 requests. Nothing else was measured."
    )
    drafts = {row["requests"]: row["drafts"] for row in result["speed"]}
    if any(drafts.values()):
        echo(f"Settings: mode: speculative, drafts: {_by_first_batch(drafts)}")
    else:
        echo("Settings: mode: lockstep, the faster one at every number of requests.")


def _by_first_batch(drafts: Mapping[int, int]) -> dict[int, int]:
    """Drafts by batch size, without the batch sizes that have as many as the one before."""
    before = [None, *drafts.values()]
    return {size: n for (size, n), last in zip(drafts.items(), before, strict=False) if n != last}


def _as_json(model: PlannedModel, weights: int) -> dict[str, Any]:
    return {"name": model.name, "parameters": model.parameters, "weights": weights}


def _show(result: dict[str, Any]) -> None:
    fields = {
        role: f"{result[role]['weights'] / _GIB:.2f} GiB  {result[role]['parameters']:,} "
        f"parameters  {result[role]['name']}"
        for role in ("senior", "junior")
    }
    if "encoder_cache_bytes" in result:
        sizes = [result[name] / _GIB for name in ("encoder_cache_bytes", "embeddings_bytes")]
        fields["encodings of images"] = f"{sizes[0]:.2f} GiB, and {sizes[1]:.2f} of embeddings"
    memory = f"{result['kv_cache_bytes'] / _GIB:.2f} GiB"
    at_once = f"{result['sequences_at_once']:,} of {result['sequence_tokens']:,} tokens"
    print_fields(fields | {"KV cache and activations": memory, "sequences at once": at_once})
    if result["fits"]:
        echo("Flags that set this:")
        print_fields({f"  {program}": flags for program, flags in result["flags"].items()})
    else:
        echo(_why_not(result))


def _flags(settings: Mapping[str, Any]) -> dict[str, str]:
    """The engine's settings as each program takes them, but for one GPU, which is the default."""
    engine_settings = {k: v for k, v in settings.items() if (k, v) != ("tensor_parallel_size", 1)}
    return {
        program: " ".join(
            _OWN_NAMES.get((program, name), form).format(
                name=name, dashed=name.replace("_", "-"), value=value
            )
            for name, value in engine_settings.items()
        )
        for program, form in _FLAGS.items()
    }


def _why_not(result: Mapping[str, Any]) -> str:
    """Why a sequence does not fit, and what would."""
    longest, readable = result["longest_sequence"], result["longest_readable"]
    if result["sequence_tokens"] > readable:
        why = f"the models read at most {readable:,} tokens"
    elif longest:
        why = f"the longest sequence that does has {longest:,} tokens"
    else:
        return (
            "It does not fit: the weights leave no room for a sequence. Use a larger GPU or more "
            "of them (--tensor-parallel-size), or smaller models."
        )
    larger = (
        ""
        if longest == readable
        else ", a larger GPU or more of them (--tensor-parallel-size), or smaller models"
    )
    return f"It does not fit: {why}. Use --max-model-len {longest} or less{larger}."
