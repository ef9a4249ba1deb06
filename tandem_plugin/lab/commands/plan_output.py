"""A plan in words, a table and flags; and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tandem_plugin.terminal.output import table_console

if TYPE_CHECKING:
    from tandem_plugin.lab.planning import Checkpoint, Plan

__all__ = ["plan_json", "print_plan"]

_GIB = 2**30
_PHASES = ("generating", "weight sync", "training")
_MOVED = {
    "none": "no state of the training is moved to the host for good",
    "optimizer": "Adam's states wait on the host",
    "all": "all states of the training that can wait on the host do",
}

Row = tuple[str, tuple[int | None, int | None, int | None]]
"""A part, and its bytes in each phase; None where it is not there."""


def plan_json(plan: Plan) -> dict[str, Any]:
    """Everything in bytes, tokens and counts."""
    from tandem_plugin.lab.planning.flags import flags

    training = plan.training
    return {
        "fits": not plan.lacks,
        "lacks": list(plan.lacks),
        "senior": _model(plan.wanted.senior),
        "junior": _model(plan.wanted.junior),
        "gpus": plan.wanted.gpus,
        "gpu_bytes": plan.wanted.memory,
        "tensor_parallel_size": plan.tensor_parallel,
        "engines": plan.engines,
        "offload": plan.offload if training else None,
        "gpu_memory_utilization": plan.utilization,
        "engine": {
            **asdict(plan.engine),
            "kv_cache": max(0, plan.left),
            "kv_block_bytes": plan.kv.bytes_per_block,
            "kv_block_size": plan.kv.block_size,
            "kv_blocks": plan.blocks,
        },
        "training": None if training is None else asdict(training),
        "phases": {
            phase: {name: size[i] for name, size in _rows(plan) if size[i] is not None}
            for i, phase in enumerate(_PHASES[: 3 if training else 1])
        },
        "host_bytes_per_gpu": plan.host,
        "responses": {
            "of_full_length_at_once": plan.at_once,
            "to_write_in_a_step": plan.requests,
            "micro_batch_per_gpu": plan.micro_batch if training else None,
        },
        "tokens": {
            "of_a_sequence": plan.wanted.length,
            "longest_sequence": plan.longest,
            "longest_with_all_at_once": plan.longest_of_all,
            "of_a_micro_batch": plan.tokens if training else None,
        },
        "flags": flags(plan),
        "estimates": _formulas(plan),
        "notes": list(_notes(plan)),
    }


def _model(model: Checkpoint) -> dict[str, Any]:
    return {"name": model.name, "parameters": model.parameters, "counted_from": model.counted}


def _formulas(plan: Plan) -> dict[str, str]:
    from tandem_plugin.lab.planning import engine, training

    found = dict(engine.FORMULAS)
    if plan.training is not None:
        other = "OpenRLHF" if plan.wanted.user == "verl" else "verl"
        found |= {k: v for k, v in training.FORMULAS.items() if f"({other})" not in k}
    return found


def _rows(plan: Plan) -> Iterator[Row]:
    """What is on one GPU, part by part."""
    engine, training = plan.engine, plan.training
    yield "senior's weights", (engine.senior, engine.senior, None)
    yield "junior's weights", (engine.junior, engine.junior, None)
    yield "KV cache", (max(0, plan.left), None, None)
    yield "engine activations *", (engine.activations, None, None)
    if engine.drafts:
        yield "drafting", (engine.drafts, None, None)
    if training is not None:
        rest, update = training.resting, training.update
        yield "training: weights", (rest.weights, update.weights, update.weights)
        yield "training: gradients", (None, None, update.gradients)
        yield "training: optimizer", (rest.optimizer, rest.optimizer, update.optimizer)
        if plan.wanted.reference:
            yield "training: reference", (rest.reference, rest.reference, update.reference)
        batch = max(1, plan.micro_batch) * plan.wanted.length * training.per_token
        yield "training: gathered parameters *", (None, training.sync, training.gathered)
        yield "training: micro-batch *", (None, None, batch)
    kept = plan.wanted.reserve
    yield "kept free", (kept * (2 if training else 1), kept, kept)


def print_plan(plan: Plan) -> None:
    """The verdict, the table, what fits, and the flags."""
    from rich.table import Table
    from rich.text import Text

    from tandem_plugin.lab.planning.flags import flags

    console = table_console(soft_wrap=True)
    for sentence in _verdict(plan):
        console.print(Text(sentence))
    phases = _PHASES[: 3 if plan.training else 1]
    table = Table("GiB of one GPU", box=None, pad_edge=False)
    for phase in phases:
        table.add_column(phase, justify="right")
    totals = [0, 0, 0]
    for name, sizes in _rows(plan):
        shown = ["" if size is None else f"{size / _GIB:.2f}" for size in sizes]
        table.add_row(name, *shown[: len(phases)])
        totals = [a + (b or 0) for a, b in zip(totals, sizes, strict=True)]
    table.add_row("together", *(f"{t / _GIB:.2f}" for t in totals[: len(phases)]), style="bold")
    console.print()
    console.print(table)
    console.print()
    for sentence in (*_limits(plan), *_notes(plan)):
        console.print(Text(sentence))
    console.print(Text("\n* An estimate:"))
    for name, formula in _formulas(plan).items():
        console.print(Text(f"  {name}: {formula}."))
    console.print(Text("\nFlags:"))
    for flag in flags(plan):
        console.print(Text(f"  {flag}"))


def _verdict(plan: Plan) -> Iterator[str]:
    wanted = plan.wanted
    if plan.lacks:
        yield "It does not fit. " + " ".join(plan.lacks)
        yield (
            "The nearest division follows. Take more or larger GPUs, smaller models, shorter "
            "sequences (--prompt, --response), or lower --max-num-seqs."
        )
    else:
        yield "It fits."
    for role, model in (("senior", wanted.senior), ("junior", wanted.junior)):
        yield f"  {role}: {model.name}, {model.parameters:,} parameters (from {model.counted})"
    engines = "1 engine" if plan.engines == 1 else f"{plan.engines} engines"
    spread = f"on {plan.tensor_parallel} GPU{'s' if plan.tensor_parallel > 1 else ''}"
    moved = f"; {_MOVED[plan.offload]}" if plan.training else ""
    yield (
        f"  {wanted.gpus} GPU{'s' if wanted.gpus > 1 else ''} of {wanted.memory / _GIB:.1f} GiB: "
        f"{engines}, {'each ' if plan.engines > 1 else ''}{spread}, with "
        f"gpu_memory_utilization={plan.utilization:.2f}{moved}"
    )


def _limits(plan: Plan) -> Iterator[str]:
    wanted = plan.wanted
    yield (
        f"KV cache: {plan.blocks:,} blocks of {plan.kv.block_size} tokens and "
        f"{plan.kv.bytes_per_block:,} bytes, {plan.blocks * plan.kv.block_size:,} tokens; "
        f"{plan.at_once:,} sequences of {wanted.length:,} at once, and an engine writes "
        f"{plan.requests:,} a step."
    )
    if plan.training is not None:
        yield (
            f"Micro-batch: {plan.micro_batch} responses on a GPU; {plan.tokens:,} tokens fit, and "
            f"an update has {wanted.per_update():,} responses on each."
        )
        yield f"Memory of the host: {plan.host / _GIB:.1f} GiB for each GPU."
    yield (
        f"Longest sequence (prompt and response): {plan.longest:,} tokens; with all responses of a "
        f"step at once, {plan.longest_of_all:,}."
    )


def _notes(plan: Plan) -> Iterator[str]:
    wanted = plan.wanted
    if 0 < plan.at_once < min(plan.requests, wanted.requests):
        yield (
            f"Fewer sequences of full length fit than run at once (max_num_seqs="
            f"{wanted.requests}): where responses are that long, vLLM preempts some and computes "
            "them anew."
        )
    for role, model in (("senior", wanted.senior), ("junior", wanted.junior)):
        if model.geometry.windowed:
            yield (
                f"{model.geometry.windowed} of the {role}'s {model.geometry.layers} layers attend "
                "to a window only and are counted as if they kept every token: vLLM may hold more."
            )
    if plan.offload == "all" and wanted.user == "openrlhf" and not wanted.reference:
        yield "Without a reference, OpenRLHF has nothing to move beyond Adam's states."
