"""``tandem drafts``: how many tokens to draft at each batch size, measured on this machine."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from tandem_plugin.engine.speculative.draft_choice import table_of
from tandem_plugin.lab.commands.options import (
    EngineOption,
    JuniorOption,
    SeniorOption,
    engine_arguments,
    tandem_settings,
)
from tandem_plugin.terminal.arguments import SettingsOption
from tandem_plugin.terminal.output import JsonOption, print_json

Speeds = Mapping[int, Mapping[int, float]]
"""Tokens per second, by batch size and number of drafts; lockstep is under 0."""

_PROMPT = "Question {}: a train leaves at noon and travels {} miles an hour. How far does it come?"
_BATCHES = "1,2,4,8,16,32,64,128,256"
_RUNS = 3
_TAKEN = ("boundaries", "measure_every", "unproven")
"""The settings that the engines have in common: each has its own mode and drafts."""


def drafts(
    ctx: typer.Context,
    senior: SeniorOption,
    junior: JuniorOption = None,
    schedule: Annotated[str, typer.Option(help="The schedule.")] = "word",
    settings: SettingsOption = None,
    lengths: Annotated[
        str, typer.Option("--drafts", help="Numbers of drafts to time.")
    ] = "1,2,4,8",
    batches: Annotated[str, typer.Option(help="Batch sizes to time.")] = _BATCHES,
    max_tokens: Annotated[int, typer.Option(min=1, help="Number of tokens per response.")] = 128,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Time lockstep and the speculative mode on this machine, and print a table for `drafts`.

    The engines run one after another, each with the machine to itself: lockstep first, then one
    engine per draft count. Each answers short questions at every batch size, three times after a
    warm-up. For each batch size the table contains the fastest draft count, or 0 if lockstep was
    fastest. Between two measured batch sizes it uses the lower of their counts, and beyond the
    largest it does not draft. Where engines do not draft, it says so before the first starts.
    """
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.errors import ConfigError
    from tandem_plugin.files.checkpoints import check_model
    from tandem_plugin.lab.rollouts.engine import check_drafting_here
    from tandem_plugin.terminal.processes import end_with_this_process

    check_model(senior, "senior")
    check_model(junior or senior, "junior")
    arguments = engine_arguments(engine)
    sizes, numbers = _numbers("--batches", batches), _numbers("--drafts", lengths)
    taken = tandem_settings(ctx, settings or (), [schedule], _TAKEN)
    shared = {**taken, "schedule": schedule, "junior": junior}
    modes: dict[int, dict[str, Any]] = {0: {}}
    modes |= {number: {"mode": "speculative", "drafts": number} for number in numbers}
    configs = {n: TandemConfig.from_mapping({**shared, **mode}) for n, mode in modes.items()}
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    check_drafting_here()
    end_with_this_process()
    speeds: dict[int, dict[int, float]] = {}
    for number, config in configs.items():
        with _engine(senior, arguments, config.settings(), max_tokens) as llm:
            scheduler = llm.llm_engine.vllm_config.scheduler_config
            seqs, budget = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
            for size in sizes:
                if size > seqs or (number and size * (number + 2) + max(numbers) + 2 > budget):
                    continue  # no engine would start with it
                speeds_of_size = speeds.setdefault(size, {})
                speeds_of_size[number] = _tokens_per_second(llm, size, max_tokens)
                ratio = (
                    f", {speeds_of_size[number] / speeds_of_size[0]:.2f} of lockstep"
                    if number
                    else ""
                )
                name = f"{number} drafts" if number else "lockstep"
                typer.echo(
                    f"batch {size}, {name}: {speeds_of_size[number]:,.1f} tokens/s{ratio}", err=True
                )
    if not speeds:
        raise ConfigError("draft-batches-too-large", batches=batches, seqs=seqs)
    table = table_of(speeds, seqs)
    if json:
        print_json({"drafts": table, "tokens_per_second": speeds})
    elif any(table.values()):
        typer.echo(f"mode: speculative\ndrafts: {table}")
    else:
        typer.echo("mode: lockstep\n# No number of drafts was faster at any of these batch sizes.")


def _numbers(option: str, text: str) -> list[int]:
    from tandem_plugin.errors import ConfigError

    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise ConfigError("option-not-counts", option=option, given=text)
    return counts


@contextmanager
def _engine(
    senior: str, arguments: Mapping[str, Any], settings: Mapping[str, Any], tokens: int
) -> Iterator[Any]:
    """An engine in its own process, which frees the device for the next one."""
    from tandem_plugin.lab.rollouts.engine import start_engine

    llm = start_engine(senior, arguments, settings, tokens)
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()


def _tokens_per_second(llm: Any, size: int, tokens: int) -> float:
    """The median of several runs after a warm-up, in which kernels are compiled."""
    from tandem_plugin.lab.rollouts.generate import sampling_parameters

    params = sampling_parameters(None, max_tokens=tokens, ignore_eos=True)
    prompts = [_PROMPT.format(number, 10 + number) for number in range(size)]
    seconds = []
    for _ in range(_RUNS + 1):
        began = time.perf_counter()
        llm.generate(prompts, params, tandem=1, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
    return size * tokens / statistics.median(seconds[1:])
