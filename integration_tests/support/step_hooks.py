"""Tandem's part of a step, in which the host must not wait, and what of vLLM runs within it."""

from __future__ import annotations

from typing import Any

from support.drafting import has_drafting

Hook = tuple[Any, str]
"""A class and the name of its method."""


def hooks() -> list[Hook]:
    """What tandem does within a step.

    On V1 the authors are NumPy arrays, made from tokens that the runner has waited for by then; the
    tensors of a step are watched there as well. What happens when a request ends is outside: its
    record, where asked for, and the log of drafting wait.
    """
    from tandem_plugin.engine.heads import Heads
    from tandem_plugin.engine.runners.v1.processor import AuthorsLogitsProcessor
    from tandem_plugin.engine.runners.v2.state import AuthorsState

    found: list[Hook] = [(Heads, "logits"), (AuthorsLogitsProcessor, "update_state")]
    for name in ("apply_staged_writes", "prepare_inputs", "postprocess_state"):
        found.append((AuthorsState, name))
    return found


def drafting_hooks() -> list[Hook]:
    """The same of the speculative mode; none where this vLLM has it not."""
    if not has_drafting():
        return []
    from tandem_plugin.engine.speculative.drafting import DraftMasks
    from tandem_plugin.engine.speculative.samplers import AuthorRejectionSampler, UndraftedSampler
    from tandem_plugin.engine.speculative.speculator import JuniorSpeculator
    from tandem_plugin.engine.speculative.state import SpeculativeState

    return [
        (JuniorSpeculator, "_fill"),
        (JuniorSpeculator, "_sample"),
        (DraftMasks, "masked"),
        (UndraftedSampler, "__call__"),
        (AuthorRejectionSampler, "__call__"),
        (AuthorRejectionSampler, "_verify"),
        (SpeculativeState, "prepare_inputs"),
    ]


def excepted() -> list[Hook]:
    """vLLM's own samplers, and the making, once an engine, of what authors are kept in."""
    from vllm.v1.worker.gpu.sample.sampler import Sampler

    from tandem_plugin.engine.runners.v2.state import AuthorsState

    found: list[Hook] = [(AuthorsState, "_made")]
    found += [(Sampler, "__call__"), (Sampler, "apply_sampling_params")]
    if has_drafting():
        from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

        found.append((RejectionSampler, "__call__"))  # which calls ``_verify``
    return found
