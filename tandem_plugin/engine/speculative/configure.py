"""Configures an engine for the speculative mode, and rejects what it does not support."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tandem_plugin.config import AUTO, TandemConfig
from tandem_plugin.engine.speculative.draft_choice import CANDIDATES, ranges_of
from tandem_plugin.engine.speculative.patches import give_drafts_their_targets_ids
from tandem_plugin.engine.unsupported import Row, engine_view, is_older, of
from tandem_plugin.unsupported import (
    Option,
    Unsupported,
    check_supported,
    is_on,
    is_set,
    option_of,
)

if TYPE_CHECKING:
    from vllm.config import ModelConfig, VllmConfig
    from vllm.engine.arg_utils import EngineArgs


_USUAL_REQUESTS = 256
"""Requests at once, for what is captured if the arguments name no ``max_num_seqs``."""


def _drafts(value: Any, option: Option) -> bool:
    return bool(option("tandem.max_drafts")) and bool(value)


def _unverified(name: str, rejects: Callable[[Any, Option], bool]) -> Unsupported:
    short = name.rpartition(".")[2]
    return Row(name, rejects, "speculative-setting-unsupported", fields={"name": short})


DRAFTING_ARGUMENTS = (
    Row(
        "vllm",
        # The first whose Model Runner V2 and rejection sampler support this mode.
        lambda version, option: _drafts(version, option) and is_older(version, (0, 29)),
        "speculative-vllm-too-old",
        fields={"version": of("vllm")},
    ),
    Row("logits_processors", _drafts, "speculative-logits-processors"),
    _unverified("enable_lora", _drafts),
    _unverified("enable_dbo", _drafts),
)
"""Of vLLM and its arguments, in the speculative mode."""


def ask_for_drafts(
    args: EngineArgs,
    config: TandemConfig,
    junior: str,
    revision: str | None,
    code_revision: str | None,
) -> None:
    """Configure the junior as vLLM's draft model, in engine arguments with the speculative mode.

    revision, code_revision: the junior's, if not its newest. Raises :class:`EngineError` for a vLLM
    or an argument that this mode does not support.
    """
    import vllm

    view = engine_view(option_of(args), config, vllm.__version__)
    check_supported(DRAFTING_ARGUMENTS, view)
    give_drafts_their_targets_ids()
    args.speculative_config = {
        "method": "draft_model",
        "model": junior,
        "revision": revision,
        "code_revision": code_revision,
        "num_speculative_tokens": config.max_drafts,
        "num_speculative_tokens_per_batch_size": table_of_setting(config.drafts, args.max_num_seqs),
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "standard",
    }


def make_junior_the_draft(vllm_config: VllmConfig, junior: ModelConfig) -> None:
    """Let the speculator build tandem's junior, in a finished configuration.

    junior: the junior's model configuration, read as in lockstep; vLLM's own draft model
    configuration ignores the senior's. Only the number of token ids differs: it is the senior's
    (:func:`~tandem_plugin.engine.speculative.patches.give_drafts_their_targets_ids`).
    """
    speculative = vllm_config.speculative_config
    junior.model_arch_config.vocab_size = speculative.target_model_config.get_vocab_size()
    speculative.draft_model_config = junior


def table_of_setting(
    drafts: int | dict[int, int] | str | None, requests: int | None
) -> list[tuple[int, int, int]] | None:
    """vLLM's table for the setting; None without one. requests: ``max_num_seqs``, if it is set.

    The table of ``auto`` holds until the engine has started, and has every number it may choose.
    vLLM captures graphs for each of them, up to the largest size that has it.
    """
    if drafts == AUTO:
        first = max(1, (requests or _USUAL_REQUESTS) - len(CANDIDATES) + 1)
        sizes = [1, *range(first + 1, first + len(CANDIDATES))]
        return ranges_of(dict(zip(sizes, sorted(CANDIDATES, reverse=True), strict=True)))
    if not isinstance(drafts, dict) or len(set(drafts.values())) == 1:
        return None
    return ranges_of(drafts)


def _has_experts_in_ranks(size: Any, option: Option) -> bool:
    return size > 1 and bool(option("senior.is_moe") or option("junior.is_moe"))


def _is_above_1(size: Any, option: Option) -> bool:
    return (size or 1) > 1


_DRAFTING = (
    Row("config.use_v2_model_runner", lambda value, _: not value, "speculative-runner-v1"),
    _unverified("config.parallel_config.enable_dbo", is_on),
    _unverified("config.parallel_config.decode_context_parallel_size", _is_above_1),
    _unverified("config.parallel_config.prefill_context_parallel_size", _is_above_1),
    Row(
        "config.lora_config",
        is_set,
        "speculative-setting-unsupported",
        fields={"name": "enable_lora"},
    ),
    _unverified("config.watermark_config", is_set),
    _unverified("config.model_config.return_sampling_mask", is_on),
    _unverified("config.model_config.enable_trace_replay", is_on),
    _unverified("config.cache_config.kv_sharing_fast_prefill", is_on),
    Row(
        "config.parallel_config.data_parallel_size",
        _has_experts_in_ranks,
        "speculative-data-parallel-experts",
    ),
    Row(
        "config.scheduler_config",
        lambda scheduler, _: scheduler.max_num_batched_tokens < 2 * scheduler.max_num_seqs,
        "speculative-batched-tokens-too-few",
        fields={
            "max_num_batched_tokens": of("config.scheduler_config.max_num_batched_tokens"),
            "max_num_seqs": of("config.scheduler_config.max_num_seqs"),
        },
    ),
    Row(
        "config.scheduler_config.max_num_seqs",
        lambda requests, option: option("tandem.drafts") == AUTO and requests < len(CANDIDATES),
        "drafts-auto-too-few-requests",
        fields={
            "max_num_seqs": of("config.scheduler_config.max_num_seqs"),
            "least": len(CANDIDATES),
        },
    ),
    Row(
        "tandem.drafts",
        lambda drafts, option: (
            (isinstance(drafts, dict) or drafts == AUTO)
            and option("config.parallel_config.data_parallel_size") > 1
        ),
        "drafts-data-parallel",
        fields={"drafts": of("tandem.max_drafts")},
    ),
)
"""Of a finished configuration of the speculative mode."""


def check_drafting(vllm_config: VllmConfig, config: TandemConfig) -> None:
    """Raise :class:`EngineError` for a finished configuration with unverified drafting."""
    junior = vllm_config.speculative_config.draft_model_config
    senior = vllm_config.model_config
    view = engine_view(lambda name: None, config, None, senior, junior, vllm_config)
    check_supported(_DRAFTING, view)
