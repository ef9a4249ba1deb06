"""The engine of a command, in the command's own process, and its progress bar."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from inspect import signature
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from tandem_plugin.errors import ConfigError, EngineError, TandemError
from tandem_plugin.lab.planning import cpu_arguments
from tandem_plugin.progress import NoteColumn, ShownProgress, TimeLeft, waiting

_NEUTRAL = {
    "disable_log_stats",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_num_batched_tokens",
    "max_num_seqs",
    "tensor_parallel_size",
}
"""Engine arguments that do not affect the responses: a resumed run may change them."""


def deciding(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's arguments that affect the responses."""
    return {k: v for k, v in arguments.items() if k not in _NEUTRAL}


def with_images(
    arguments: Mapping[str, Any], tandem: Mapping[str, Any] | None, most: int
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """An engine's arguments and tandem settings for prompts of up to ``most`` images.

    Both stay as they are for none. The engine reserves memory for the images that it admits.
    """
    if not most:
        return arguments, tandem
    limits = {"image": most, "video": 0, **(arguments.get("limit_mm_per_prompt") or {})}
    settings = None if tandem is None else {**tandem, "images": True}
    return {**arguments, "limit_mm_per_prompt": limits}, settings


def start_engine(
    model: str, arguments: Mapping[str, Any], tandem: Mapping[str, Any] | None, tokens: int
) -> Any:
    """vLLM's own ``LLM``, or a :class:`TandemLLM` if ``tandem`` settings are given.

    tokens: the longest response. On a CPU the engine is sized to fit the free memory, unless
    ``arguments`` set it; the choice is printed on stderr.

    Raises :class:`EngineError` if vLLM is missing, lacks an argument or does not start.
    """
    _before_vllm()
    try:
        from tandem_plugin.engine.llm import LLM, EngineArgs, TandemLLM
        from tandem_plugin.engine.runners import is_on_cpu
    except ImportError as error:
        raise EngineError("vllm-import-failed", error=error) from error
    _check_arguments(
        arguments, {field.name for field in fields(EngineArgs)} | signature(LLM).parameters.keys()
    )
    if is_on_cpu():
        models = [model] if tandem is None else [model, str(tandem.get("junior") or model)]
        memory, sentence = cpu_arguments(models, arguments, tokens)
        arguments = {**_WHOLE_PROMPTS, **memory, **arguments}
        if sentence:
            print(sentence, file=sys.stderr)
    arguments = {"disable_log_stats": False, **arguments}  # counts tokens, and logs below warnings
    try:
        with waiting("start the engine"), _without_expected_warnings():
            if tandem is None:
                return _seeing(LLM(model, **arguments), model, arguments)
            return TandemLLM(model, tandem=dict(tandem), **arguments)
    except TandemError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".strip()
        raise EngineError("engine-start-failed", why=why) from error


def _seeing(llm: Any, model: str, arguments: Mapping[str, Any]) -> Any:
    """The engine; :class:`EngineError` if it is of text and its arguments admit images."""
    admitted = (arguments.get("limit_mm_per_prompt") or {}).get("image")
    if admitted and not llm.llm_engine.model_config.is_multimodal_model:
        raise EngineError("engine-without-images", model=model)
    return llm


def _check_arguments(arguments: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise :class:`EngineError` for an argument that this version of vLLM lacks."""
    for name in sorted(arguments.keys() - names):
        raise EngineError.misspelt("vllm-argument-unknown", name, names, name=name)


def check_drafting_here() -> None:
    """Raise :class:`EngineError` if engines on this machine do not run in the speculative mode.

    No model is loaded: the model runner is the one that vLLM chooses by itself.
    """
    _before_vllm()
    try:
        from tandem_plugin.engine.runners import default_runner

        _, runner = default_runner()
    except ImportError as error:
        raise EngineError("vllm-import-failed", error=error) from error
    if runner == "V1":
        raise EngineError("speculative-runner-v1")


def _before_vllm() -> None:
    """Set the variables that vLLM reads when it is imported, unless the user has."""
    # The engine runs in this process: vLLM's own engine process would outlive a killed command and
    # keep its memory, so the command could not be resumed.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    # stdout is for the result: vLLM logs warnings and errors to stderr.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")


def check_template_args(tokenizer: Any, template_args: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for an argument that the chat template does not use."""
    from tandem_plugin.lab.data.problem import template_names

    names = template_names(tokenizer, template_args)
    for name in template_args:
        if name not in names:
            raise ConfigError.misspelt("template-argument-unused", name, names, name=name)


_WHOLE_PROMPTS = {"enable_chunked_prefill": False}
"""Keeps vLLM on a CPU from reading prompts in parts.

Every response has its own seed. For each part of a prompt but the last, vLLM resets the
generator of that seed, which fails on a CPU: "CPU Generator does not use offset" (Model Runner V1,
0.24 to 0.32). Goes when: vLLM draws nothing for unfinished prompts.
"""


_EXPECTED = (
    "This model does not officially support disabling chunked prefill",  # see _WHOLE_PROMPTS
    "The global random seed is set to",  # of this process, which runs the engine alone
    "CPU backend doesn't allow to use `torch.set_num_threads`",  # which vLLM itself calls
    "Enforce eager set, disabling torch.compile",  # as asked, like the next
    "Inductor compilation was disabled by user settings",
    "Model Runner V2 requires Triton; using the V1",  # the only runner on a CPU
)
"""The beginnings of warnings that an engine of a command always causes, and that tell its user
nothing: what the first warns of is the way in which tandem's tests run every engine on a CPU."""


@contextmanager
def _without_expected_warnings() -> Iterator[None]:
    """While an engine starts, without vLLM's warnings of :data:`_EXPECTED`; others are shown."""
    handlers = logging.getLogger("vllm").handlers

    def is_news(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(_EXPECTED)

    for handler in handlers:
        handler.addFilter(is_news)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_news)


@contextmanager
def response_progress(
    name: str, total: int, done: int, written: Callable[[], int | None]
) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields a function to call with each finished response's length.

    total: all responses. done: those that exist already. written: the number of tokens so far,
    unfinished responses' included; None if only finished ones can be counted.
    """
    finished, time_left = 0, TimeLeft(total, done)

    def note() -> str:
        tokens = written()
        return f"{finished if tokens is None else tokens:,} tokens"

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), NoteColumn()
    with ShownProgress(*columns, TimeElapsedColumn(), transient=False) as progress:
        task = progress.add_task(name, total=total, completed=done, note=note, left=time_left)

        def advance(length: int) -> None:
            nonlocal finished
            finished += length
            time_left.advance()
            progress.advance(task)

        yield advance
