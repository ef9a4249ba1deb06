"""The engine configuration of the speculative mode: the junior is vLLM's draft model."""

from __future__ import annotations

import re
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.names import SCHEDULERS
from tandem_plugin.engine.patches.drafts import give_drafts_their_targets_ids
from tandem_plugin.engine.speculative.draft_length import lengths_up_to
from tandem_plugin.errors import EngineError

__all__ = ["ask_for_drafts", "choose_scheduler", "make_junior_the_draft"]

_OLDEST = (0, 29)
"""The first vLLM whose Model Runner V2 and rejection sampler are what this mode stands on."""


def ask_for_drafts(
    args: Any,
    config: TandemConfig,
    junior: str,
    revision: str | None,
    code_revision: str | None,
) -> None:
    """Ask vLLM for a draft model, in engine arguments that ask for the speculative mode.

    revision, code_revision: the junior's, where they are not its newest. Raises
    :class:`EngineError` where this vLLM is too old for the mode.
    """
    import vllm

    release = tuple(int(part) for part in re.findall(r"\d+", vllm.__version__)[:2])
    if release < _OLDEST:
        raise EngineError(
            "mode='speculative' needs Model Runner V2 as vLLM has it from 0.29.0 on, and this is "
            f"vLLM {vllm.__version__}: use vLLM 0.29.0 or newer, or mode='lockstep'."
        )
    if args.logits_processors:
        raise EngineError(
            "logits_processors do not go with mode='speculative': nobody has shown that they treat "
            "the junior's drafts as its tokens. Remove them, or use mode='lockstep'."
        )
    if config.adaptive_drafts and args.scheduler_cls is not None:
        raise EngineError(
            f"scheduler_cls={args.scheduler_cls!r} does not go with adaptive_drafts, which brings "
            "a scheduler of its own. Leave one of the two out."
        )
    give_drafts_their_targets_ids()
    args.speculative_config = {
        "method": "draft_model",
        "model": junior,
        "revision": revision,
        "code_revision": code_revision,
        "num_speculative_tokens": config.drafts,
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "standard",
    }


def make_junior_the_draft(vllm_config: Any, junior: Any) -> None:
    """Let the speculator make tandem's junior, in a finished configuration.

    junior: the junior's model configuration, read as in lockstep; vLLM's own of a draft model
    knows nothing of the senior's. Only the number of token ids is another one, the senior's
    (:func:`~tandem_plugin.engine.patches.drafts.give_drafts_their_targets_ids`).
    """
    speculative = vllm_config.speculative_config
    junior.model_arch_config.vocab_size = speculative.target_model_config.get_vocab_size()
    speculative.draft_model_config = junior


def choose_scheduler(vllm_config: Any, config: TandemConfig) -> None:
    """Let a scheduler choose the number of drafts where it is to follow the load.

    vLLM is told of all lengths by its table of lengths by batch size, so that it captures graphs
    for each; which one a step has is the scheduler's. Where fewer requests run at once than there
    are lengths, those at the table's end go without.
    """
    if not config.adaptive_drafts:
        return
    scheduler, speculative = vllm_config.scheduler_config, vllm_config.speculative_config
    kind = "AdaptiveAsyncScheduler" if scheduler.async_scheduling else "AdaptiveScheduler"
    scheduler.scheduler_cls = f"{SCHEDULERS}.{kind}"
    lengths = sorted(lengths_up_to(config.drafts), key=lambda length: (length > 0, -length))
    speculative.num_speculative_tokens_per_batch_size = [
        (size, size, length) for size, length in enumerate(lengths, start=1)
    ]
