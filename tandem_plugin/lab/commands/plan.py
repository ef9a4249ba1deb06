"""``tandem plan``: whether two models fit a GPU, before there is one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.lab.commands.options import JuniorOption
from tandem_plugin.terminal.output import JsonOption, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.lab.planning.checkpoint import PlannedModel
    from tandem_plugin.lab.planning.geometry import KvCache

__all__ = ["plan"]

_GIB = 2**30
_WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4}


class Type(str, Enum):
    """What the engine computes with."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


def plan(
    senior: Annotated[
        str,
        typer.Option(help="The senior: a checkpoint folder, a config.json, or a name on the Hub."),
    ],
    junior: JuniorOption = None,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Memory of one GPU in GiB as nvidia-smi shows it, such as 79.6 for "
            "81,559 MiB. Default: the smallest GPU of this machine.",
        ),
    ] = None,
    utilization: Annotated[
        float,
        typer.Option(
            min=0.01, max=1, help="Fraction of that memory for the engine (gpu_memory_utilization)."
        ),
    ] = 0.9,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Number of GPUs per engine.")] = 1,
    tokens: Annotated[
        int, typer.Option(min=1, help="Length of a sequence: prompt plus response.")
    ] = 4096,
    dtype: Annotated[Type, typer.Option(help="What the engine computes with.")] = Type.BFLOAT16,
    block_size: Annotated[
        int, typer.Option(min=1, help="Tokens per KV block; vLLM uses 16 on a GPU, 128 on a CPU.")
    ] = 16,
    kv_memory: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Size of the KV cache in GiB (kv_cache_memory_bytes). Default: the memory left.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show how much GPU memory two models leave, and how many tokens of both fit into it.

    Reads the two config.json files, and the sizes of the weights if they are in the same folders;
    no GPU is needed. Weights and KV blocks are exact. Activations are not included: vLLM measures
    them at startup and subtracts them from the remaining memory. The exit code is 1 if not even one
    sequence fits.
    """
    from tandem_plugin.lab.planning.checkpoint import read_checkpoint
    from tandem_plugin.lab.planning.geometry import KvCache

    size = _smallest_gpu() if memory is None else round(memory * _GIB)
    first = read_checkpoint(senior)
    second = first if junior in (None, senior) else read_checkpoint(str(junior))
    width = _WIDTHS[dtype.value]
    weights = first.weights(width) // tensor_parallel, second.weights(width) // tensor_parallel
    rest = round(size * utilization) - sum(weights)
    found = _Plan(
        senior=first,
        junior=second,
        weights=weights,
        rest=rest if kv_memory is None else round(kv_memory * _GIB),
        overdrawn=rest < 0,
        kv=KvCache.of((first.geometry, second.geometry), width, tensor_parallel, block_size),
        tokens=tokens,
    )
    if json:
        print_json(found.as_json())
    else:
        found.show()
    raise typer.Exit(0 if found.fits else 1)


def _smallest_gpu() -> int:
    """Bytes of this machine's smallest GPU; raises :class:`ConfigError` where there is none."""
    from tandem_plugin.lab.planning.machine import graphics_cards

    cards = graphics_cards()
    if not cards:
        raise ConfigError("TP999")
    return min(card.total for card in cards)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Two models on one GPU; sizes in bytes."""

    senior: PlannedModel
    junior: PlannedModel
    weights: tuple[int, int]
    rest: int
    """For the KV cache: what is left beside the weights, or what was given."""
    overdrawn: bool
    """Whether the weights alone are more than the engine may take."""
    kv: KvCache
    tokens: int

    @property
    def blocks(self) -> int:
        return self.kv.blocks(self.rest)

    @property
    def longest(self) -> int:
        """The most tokens of one sequence."""
        both = self.senior.geometry.longest, self.junior.geometry.longest
        return min(self.kv.longest(self.blocks, 1), *both)

    @property
    def fits(self) -> bool:
        return not self.overdrawn and self.longest >= self.tokens

    def as_json(self) -> dict[str, Any]:
        """Everything in bytes, tokens and counts."""
        return {
            "fits": self.fits,
            "senior": _as_json(self.senior, self.weights[0]),
            "junior": _as_json(self.junior, self.weights[1]),
            "kv_cache_bytes": self.rest,
            "kv_block_bytes": self.kv.bytes_per_block,
            "kv_block_size": self.kv.block_size,
            "kv_blocks": self.blocks,
            "sequence_tokens": self.tokens,
            "sequences_at_once": self.kv.responses(self.blocks, self.tokens),
            "longest_sequence": self.longest,
        }

    def show(self) -> None:
        """A table, and what fits."""
        from rich.table import Table
        from rich.text import Text

        console = table_console(soft_wrap=True)
        table = Table("", "parameters", "GiB of one GPU", box=None, pad_edge=False)
        for role, model, weights in (
            ("senior", self.senior, self.weights[0]),
            ("junior", self.junior, self.weights[1]),
        ):
            name = Text(f"{role}: {model.name} (from {model.counted})")
            table.add_row(name, f"{model.parameters:,}", f"{weights / _GIB:.2f}")
        table.add_row("KV cache and activations", "", f"{self.rest / _GIB:.2f}")
        console.print(table)
        console.print(
            f"\nA block of {self.kv.block_size} tokens takes {self.kv.bytes_per_block:,} bytes in "
            f"both models: {self.blocks:,} blocks, {self.blocks * self.kv.block_size:,} tokens, "
            f"{self.kv.responses(self.blocks, self.tokens):,} sequences of {self.tokens:,} at "
            "once, before vLLM subtracts the memory for its activations."
        )
        for role, model in (("senior", self.senior), ("junior", self.junior)):
            if windowed := model.geometry.windowed:
                console.print(
                    f"{windowed} of the {role}'s {model.geometry.layers} layers attend to a window "
                    "only and are counted as if they kept every token, so vLLM may fit more."
                )
        if not self.fits:
            console.print(
                f"It does not fit: the longest sequence has {max(0, self.longest):,} tokens. Use "
                "a larger GPU or more of them (--tensor-parallel), smaller models, or shorter "
                "sequences."
            )


def _as_json(model: PlannedModel, weights: int) -> dict[str, Any]:
    return {
        "name": model.name,
        "parameters": model.parameters,
        "counted_from": model.counted,
        "weights": weights,
    }
