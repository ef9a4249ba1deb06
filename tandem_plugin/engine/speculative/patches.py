"""The patches of vLLM's internals that only the speculative mode needs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tandem_plugin.engine.wire import (
    RPC_DRAFT_STATS,
    SPECULATIVE_PREFIX,
    asks_for_tandem,
    chooses_drafts,
)
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once

if TYPE_CHECKING:
    import torch
    from vllm.config import SpeculativeConfig, VllmConfig
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.outputs import DraftTokenIds
    from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor, CudaGraphManager
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

    from tandem_plugin.engine.speculative.draft_choice import Lengths

_CORE = "vllm.v1.engine.core"
_RUNNER = "vllm.v1.worker.gpu.model_runner"
_GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"


def draft_with_the_junior() -> None:
    """Make Model Runner V2 use tandem's speculator for an engine in the speculative mode.

    Touches: ``init_speculator`` in the runner's module, once imported, and
    ``GPUModelRunner.execute_model`` and ``take_draft_token_ids`` if the runner does not pass a
    speculator the number of drafts that the scheduler requested, and always returns the maximum.
    Versions: 0.29 to 0.32. Why: the runner only creates vLLM's own speculators. Until 0.30 none has
    its own model; the later one reads every draft twice and runs without CUDA graphs. Goes when: a
    configuration can name a speculator's class, and all supported runners pass
    ``num_speculative_tokens`` (0.32 does).
    """
    after_import(_RUNNER, _wrap_runner)


def capture_each_batch_size() -> None:
    """Give every batch size a whole CUDA graph if the number of drafts depends on it.

    Touches: ``CudaGraphManager._init_candidates``, of Model Runner V2. Versions: 0.29 to 0.32. Why:
    vLLM captures every draft length at every size, and searches only the graphs of the next
    captured token count. If that count is a different length's, the batch runs without a whole
    graph. Goes when: vLLM's dispatch searches for the next graph of a batch's own length.
    """
    after_import(_GRAPHS, _wrap_graphs)


def choose_drafts_at_startup() -> None:
    """Let an engine with ``drafts: auto`` time its steps before its first request.

    Touches: ``EngineCoreProc.run_busy_loop``, or for an engine in the caller's process
    ``EngineCore.__init__``, and then ``Scheduler.dynamic_sd_lookup``. Versions: 0.29 to 0.32. Why:
    vLLM reads a table of drafts from the configuration, when no step has been timed yet. A process
    of its own loads plugins within ``__init__``, which is too late to wrap it there. Goes when:
    vLLM lets a plugin set the number of drafts of each step.
    """
    after_import(_CORE, _wrap_core)


def let_runner_v2_draft() -> None:
    """Make vLLM choose Model Runner V2 for an engine in the speculative mode.

    Touches: ``VllmConfig._get_v2_model_runner_unsupported_features``. Versions: 0.29, 0.30. Why: it
    lists every draft model as unsupported, because vLLM's own V2 speculators have none. Goes when:
    vLLM 0.31 is the oldest supported version.
    """
    from vllm.config import VllmConfig

    name = "_get_v2_model_runner_unsupported_features"
    if not hasattr(VllmConfig, name):  # before 0.29, where the mode is rejected by version
        return

    def wrapper(unsupported: Callable[..., Any], vllm_config: VllmConfig) -> list[str]:
        reasons: list[str] = unsupported(vllm_config)
        if not _drafts_in_tandem(vllm_config):
            return reasons
        return [feature for feature in reasons if feature != "speculative method 'draft_model'"]

    wrap_once(VllmConfig, name, wrapper)


def give_drafts_their_targets_ids() -> None:
    """Support a junior whose vocabulary is padded to a different length than the senior's.

    Touches: ``SpeculativeConfig.verify_equal_vocab_size_if_draft_model`` and the number of token
    ids in the draft's ``model_arch_config``, from which the speculator sizes its buffers; the
    junior's logits have the same length. Versions: 0.29 to 0.32. Why: vLLM requires a draft model
    to have as many ids as its target, padding included. Goes when: it no longer does.
    """
    from vllm.config import SpeculativeConfig

    def wrapper(verify: Callable[..., Any], speculative: SpeculativeConfig) -> Any:
        target, draft = speculative.target_model_config, speculative.draft_model_config
        architectures = getattr(getattr(target, "hf_config", None), "architectures", None) or [""]
        if draft is not None and architectures[0].startswith(SPECULATIVE_PREFIX):
            draft.model_arch_config.vocab_size = target.get_vocab_size()
        return verify(speculative)

    wrap_once(SpeculativeConfig, "verify_equal_vocab_size_if_draft_model", wrapper)


def let_workers_tell_of_drafts() -> None:
    """Let ``collective_rpc("tandem_draft_stats")`` return each worker's counters of drafting.

    Touches: ``WorkerBase``, which gets one more method. Versions: 0.29 to 0.32. Why: the front end
    can only read a worker's numbers through ``collective_rpc``, which accepts functions only if
    ``VLLM_ALLOW_INSECURE_SERIALIZATION`` is set, and method names always (trainers use
    ``worker_extension_cls`` themselves). Goes when: vLLM lets a model state add to its statistics.
    """
    from vllm.v1.worker.worker_base import WorkerBase

    from tandem_plugin.engine.speculative.draft_stats import worker_draft_stats

    setattr(WorkerBase, RPC_DRAFT_STATS, worker_draft_stats)


def _wrap_runner(runner: ModuleType) -> None:
    def init(
        original: Callable[..., Any], vllm_config: VllmConfig, device: torch.device, *arguments: Any
    ) -> DraftModelSpeculator:
        if not _drafts_in_tandem(vllm_config):
            return original(vllm_config, device, *arguments)
        from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

        return JuniorSpeculator(vllm_config, device)

    def execute(
        original: Callable[..., Any],
        owner: GPUModelRunner,
        output: SchedulerOutput,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        if hasattr(owner.speculator, "requested_drafts"):
            owner.speculator.requested_drafts = output.num_spec_tokens_to_schedule
        return original(owner, output, *arguments, **options)

    def take(original: Callable[..., Any], owner: GPUModelRunner) -> DraftTokenIds | None:
        drafts = original(owner)
        requested = getattr(owner.speculator, "requested_drafts", None)
        if drafts is not None and requested is not None:
            drafts.draft_token_ids = [ids[:requested] for ids in drafts.draft_token_ids]
        return drafts

    wrap_once(runner, "init_speculator", init)
    if "num_spec_tokens_to_schedule" not in runner.ExecuteModelState._fields:
        wrap_once(runner.GPUModelRunner, "execute_model", execute)
        wrap_once(runner.GPUModelRunner, "take_draft_token_ids", take)


def _wrap_core(core: ModuleType) -> None:
    def choose(owner: EngineCore) -> None:
        if chooses_drafts(owner.vllm_config.additional_config):
            from tandem_plugin.engine.speculative.step_timing import choose_drafts

            choose_drafts(owner)

    def init(
        original: Callable[..., Any], owner: EngineCore, *arguments: Any, **options: Any
    ) -> None:
        original(owner, *arguments, **options)
        if type(owner) is core.EngineCore:
            choose(owner)

    def run(
        original: Callable[..., Any], owner: EngineCore, *arguments: Any, **options: Any
    ) -> Any:
        choose(owner)
        return original(owner, *arguments, **options)

    wrap_once(core.EngineCore, "__init__", init)
    wrap_once(core.EngineCoreProc, "run_busy_loop", run)


def _wrap_graphs(graphs: ModuleType) -> None:
    def init(original: Callable[..., Any], manager: CudaGraphManager) -> None:
        original(manager)
        config = manager.vllm_config
        if (
            _drafts_in_tandem(config)
            and config.speculative_config.num_speculative_tokens_per_batch_size
        ):
            from tandem_plugin.engine.speculative.speculator import draft_lengths

            _keep_graphs(manager, graphs.CUDAGraphMode.FULL, draft_lengths(config))

    wrap_once(graphs.CudaGraphManager, "_init_candidates", init)


def _keep_graphs(manager: CudaGraphManager, full: CUDAGraphMode, lengths: Lengths) -> None:
    """Keep the whole graphs that batch sizes use, and offer each batch those of its length.

    full: the mode of whole graphs. lengths: the numbers of drafts, by batch size.

    For up to four requests and ``drafts`` of ``{1: 2, 3: 0}``, with requests x tokens of each::

        batches of 1 to 4 requests      1x3  2x3  3x1  4x1
        captured by vLLM                1x1  2x1  3x1  1x3  4x1  2x3  3x3
        captured here                             3x1  1x3  4x1  2x3
        offered by vLLM for 4 tokens                        4x1
        offered here for 4 tokens                           4x1  2x3

    So a batch whose padded size is a different length's graph finds its own among the larger ones.
    """
    descs = manager._capture_descs.get(full, [])
    by_width = _graphs_in_use(descs, lengths)
    kept_descs = {desc for descs in by_width.values() for desc in descs}
    manager._capture_descs[full] = [
        desc for desc in descs if desc in kept_descs or desc.uniform_token_count is None
    ]
    for (tokens, loras), candidates in manager._candidates.items():
        mixed = [desc for desc in candidates if desc.uniform_token_count is None]
        first_of_each = (
            next((d for d in descs if d.num_tokens >= tokens and d.num_active_loras == loras), None)
            for descs in by_width.values()
        )
        manager._candidates[tokens, loras] = [desc for desc in first_of_each if desc] + mixed


def _graphs_in_use(
    descs: list[BatchExecutionDescriptor], lengths: Lengths
) -> dict[int, list[BatchExecutionDescriptor]]:
    """The smallest fitting graph of every batch size, by its tokens per request, smallest first."""
    captured: dict[int, list[BatchExecutionDescriptor]] = {}
    for desc in sorted(descs, key=lambda desc: desc.num_tokens):
        if desc.uniform_token_count is not None:  # no graph of mixed batches
            captured.setdefault(desc.uniform_token_count, []).append(desc)
    used: dict[int, list[BatchExecutionDescriptor]] = {width: [] for width in captured}
    for requests, numbers in enumerate(lengths[1:], start=1):
        for drafts in numbers:
            fitting = (d for d in captured.get(drafts + 1, []) if d.num_reqs >= requests)
            if (smallest := next(fitting, None)) and smallest not in used[drafts + 1]:
                used[drafts + 1].append(smallest)
    return used


def _drafts_in_tandem(vllm_config: VllmConfig) -> bool:
    """Also applied to the junior's configuration, which is derived from the engine's."""
    drafts = vllm_config.speculative_config is not None  # a user's own is rejected in tandem
    return drafts and asks_for_tandem(vllm_config.additional_config)
