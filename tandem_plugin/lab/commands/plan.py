"""``tandem plan``: what a run needs of its GPUs, before there are any."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.terminal.output import JsonOption, print_json

__all__ = ["plan"]

_WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4}
_SIZES = {"verl": (256, 8192), "openrlhf": (128, 2048), "rollout": (256, 8192)}
"""``max_num_seqs`` and ``max_num_batched_tokens``: verl's own defaults, and those that OpenRLHF's
engines have from vLLM."""


class For(str, Enum):
    """Who runs the engine."""

    VERL = "verl"
    OPENRLHF = "openrlhf"
    ROLLOUT = "rollout"


class Mode(str, Enum):
    """How two models share one engine."""

    LOCKSTEP = "lockstep"
    SPECULATIVE = "speculative"


class Moved(str, Enum):
    """What of the training's states waits on the host."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    ALL = "all"


class Type(str, Enum):
    """What the engine computes with."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


def plan(
    senior: Annotated[
        str,
        typer.Option(
            help="The senior: a checkpoint's folder, a config.json, or a name on the Hub."
        ),
    ],
    junior: Annotated[
        str | None, typer.Option(help="The junior; without it, the senior's own checkpoint.")
    ] = None,
    to: Annotated[
        For, typer.Option(help="Who runs the engine: a trainer, or `tandem rollout` alone.")
    ] = For.VERL,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of each machine; without it, those of this one.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="GiB of one GPU as nvidia-smi shows it, such as 79.6 for 81,559 MiB; without it, "
            "that of the smallest GPU of this machine.",
        ),
    ] = None,
    prompt: Annotated[int, typer.Option(min=1, help="The longest prompt, in tokens.")] = 1024,
    response: Annotated[int, typer.Option(min=1, help="The longest response, in tokens.")] = 3000,
    batch: Annotated[int, typer.Option(min=1, help="Problems of a step.")] = 16,
    mini_batch: Annotated[
        int | None, typer.Option(min=1, help="Problems of an update. Default: half of a step's.")
    ] = None,
    samples: Annotated[int, typer.Option("--n", min=1, help="Responses to each problem.")] = 8,
    mode: Annotated[Mode, typer.Option(help="How two models share one engine.")] = Mode.LOCKSTEP,
    drafts: Annotated[
        int | None,
        typer.Option(min=1, help="The most drafts of the speculative mode. Default: 4."),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Plan for a reference model: with a KL term.")
    ] = False,
    offload: Annotated[
        Moved | None,
        typer.Option(
            help="What of the training's states waits in the host's memory while the engine "
            "generates. Default: as little as is enough."
        ),
    ] = None,
    tensor_parallel: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of one engine. Default: as few as are enough."),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(min=1, help="vLLM's argument. Default: 256, and for openrlhf 128."),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="vLLM's argument. Default: 8192, and for openrlhf 2048."),
    ] = None,
    dtype: Annotated[Type, typer.Option(help="What the engine computes with.")] = Type.BFLOAT16,
    block_size: Annotated[
        int, typer.Option(min=1, help="Tokens of a KV block: vLLM's is 16 on a GPU, 128 on a CPU.")
    ] = 16,
    kv_memory: Annotated[
        float | None,
        typer.Option(
            min=0, help="GiB of the KV cache, as kv_cache_memory_bytes gives it. Default: the rest."
        ),
    ] = None,
    reserve: Annotated[
        float,
        typer.Option(
            min=0,
            help="GiB of one GPU that nothing is planned into, for CUDA's contexts and graphs, "
            "NCCL and fragments: within the engine's share, and again beside it.",
        ),
    ] = 2.0,
    json: JsonOption = False,
) -> None:
    """Say whether two models fit a machine, what fits beside them, and the flags to set.

    Reads two config.json, and the sizes of weights where they lie beside them; no GPU is needed.
    Engine and training share the GPUs and take turns, as both recipes have it. Weights, KV blocks,
    draft buffers and the training's states are exact, activations are estimates whose formulas are
    given. Exit code 1 when it does not fit.
    """
    from tandem_plugin.config import DEFAULT_DRAFT_TOKENS, MAX_DRAFT_TOKENS
    from tandem_plugin.lab.commands.plan_output import plan_json, print_plan
    from tandem_plugin.lab.planning import Wanted, make_plan, read_checkpoint

    if drafts is not None and mode is not Mode.SPECULATIVE:
        raise ConfigError(
            "In lockstep nothing is drafted: add --mode speculative, or leave --drafts out."
        )
    if drafts is not None and drafts > MAX_DRAFT_TOKENS:
        raise ConfigError(f"--drafts {drafts} are too many: give at most {MAX_DRAFT_TOKENS}.")
    if to is For.OPENRLHF and (max_num_seqs, max_num_batched_tokens) != (None, None):
        raise ConfigError(
            "OpenRLHF gives its engines neither max_num_seqs nor max_num_batched_tokens: leave "
            "both out."
        )
    number, size = _machine(gpus, memory)
    of_senior = read_checkpoint(senior)
    wanted = Wanted(
        senior=of_senior,
        junior=of_senior if junior in (None, senior) else read_checkpoint(str(junior)),
        user=to.value,
        nodes=nodes,
        gpus=number * nodes,
        memory=size,
        reserve=_bytes(reserve),
        prompt=prompt,
        response=response,
        batch=batch,
        mini_batch=mini_batch or max(1, batch // 2),
        samples=samples,
        drafts=(drafts or DEFAULT_DRAFT_TOKENS) if mode is Mode.SPECULATIVE else 0,
        requests=max_num_seqs or _SIZES[to.value][0],
        batched_tokens=max_num_batched_tokens or _SIZES[to.value][1],
        block_size=block_size,
        width=_WIDTHS[dtype.value],
        reference=reference,
        tensor_parallel=tensor_parallel,
        offload=offload.value if offload else None,
        kv_memory=None if kv_memory is None else _bytes(kv_memory),
    )
    found = make_plan(wanted)
    if json:
        print_json(plan_json(found))
    else:
        print_plan(found)
    raise typer.Exit(1 if found.lacks else 0)


def _machine(gpus: int | None, memory: float | None) -> tuple[int, int]:
    """GPUs of a machine and bytes of one of them: as given, or as they are here."""
    from tandem_plugin.lab.planning.devices import graphics_cards

    if gpus is not None and memory is not None:
        return gpus, _bytes(memory)
    cards = graphics_cards()
    if memory is None and not cards:
        raise ConfigError(
            "There is no NVIDIA GPU here to plan for: say what one has with --memory, in GiB as "
            "nvidia-smi shows it (79.6 for one of 81,559 MiB), and how many there are with --gpus."
        )
    number = gpus or len(cards) or 1
    return number, min(card.total for card in cards) if memory is None else _bytes(memory)


def _bytes(gib: float) -> int:
    return round(gib * 2**30)
