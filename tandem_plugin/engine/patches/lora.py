"""Adapters (LoRA) sent to an engine, and their base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.base_junior import check_may_load
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.wrapping import wrap_once


def adapt_no_ends(senior: Any) -> None:
    """Let vLLM put no adapters around embeddings and heads, which stay the base's for both models.

    senior: the composite model, before vLLM puts adapters around its layers.

    Touches: ``embedding_modules`` of a model and of the models within it, such as the language
    model of one that sees images. Versions: 0.29 to 0.32. Why: ``get_supported_lora_modules`` adds
    the layers that any of them names, and a head's adapter is chosen by vLLM's rows, which are not
    those of the senior's head alone. Goes when: vLLM asks its configuration for them.
    """
    for model in senior.modules():
        if getattr(model, "embedding_modules", None):
            model.embedding_modules = {}


def keep_the_mappers_former_name() -> None:
    """Let verl send an adapter to an engine of vLLM 0.29.

    Touches: ``WeightsMapper``, whose ``get_rename_mapper`` also gets its former name, if that is
    gone. Versions: vLLM 0.29 to 0.32, verl 0.9.1. Why: verl's ``utils/vllm/utils.py`` uses
    ``get_unstacked_mapper``, and every sync of an adapter fails there, in tandem or not. Goes when:
    verl uses the new name.
    """
    from vllm.model_executor.models.utils import WeightsMapper

    if not hasattr(WeightsMapper, "get_unstacked_mapper"):
        WeightsMapper.get_unstacked_mapper = WeightsMapper.get_rename_mapper


def refuse_weights_without_a_place() -> None:
    """Reject an adapter for layers that a tandem engine does not adapt: heads, embeddings, towers.

    Touches: ``LoRAModelManager._add_adapter``, called once an adapter has been read from a folder
    or from a trainer's tensors. Versions: 0.29 to 0.32. Why: vLLM omits weights without a matching
    layer, silently if a trainer sent them, and the engine's senior would differ from the trainer's.
    Goes when: vLLM checks the tensors of every adapter.
    """
    from vllm.lora.model_manager import LoRAModelManager

    def wrapper(add: Callable[..., Any], manager: Any, adapter: Any) -> Any:
        if hasattr(manager.model, "tandem_heads"):
            packed = (name for names in manager.packed_modules.values() for name in names)
            homeless = sorted(set(adapter.loras).difference(manager.modules, packed))
            if homeless:
                raise EngineError("adapter-layers-unsupported", layers=", ".join(homeless[:3]))
        return add(manager, adapter)

    wrap_once(LoRAModelManager, "_add_adapter", wrapper)


def keep_adapters_to_their_requests() -> None:
    """Let a request without an adapter be the base's in a batch with adapters, on a CPU.

    Touches: ``bgmv_shrink`` of ``vllm.lora.ops.torch_ops.lora_ops``, and the name that
    ``punica_cpu`` has for it. Versions: 0.29 to 0.32. Why: it takes the index -1, which stands for
    no adapter, for the last slot, so such a request is answered with the adapter there, in tandem
    or not. Triton's kernels skip it. Goes when: vLLM's torch kernels do.
    """
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    def wrapper(
        shrink: Callable[..., Any],
        inputs: Any,
        weights: Any,
        output: Any,
        indices: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        # What is shrunk to zero is zero when it is expanded, whichever slot expands it.
        adapted = inputs.masked_fill((indices < 0).unsqueeze(1), 0)
        return shrink(adapted, weights, output, indices, *arguments, **options)

    for module in (lora_ops, punica_cpu):
        wrap_once(module, "bgmv_shrink", wrapper)


def refuse_reloading_a_shared_base() -> None:
    """Reject vLLM's own reloading in place if the base is also the junior.

    Touches: ``Worker.reload_weights``. Versions: 0.29 to 0.32. Why: it removes the weights from
    their layers before it calls the model's loader, and writes tensors in a kernel's own layout
    without calling it at all. Goes when: vLLM calls the model first.
    """
    from vllm.v1.worker.gpu_worker import Worker

    def wrapper(reload: Callable[..., Any], worker: Any, *args: Any, **options: Any) -> Any:
        check_may_load(worker.model_runner.get_model())
        return reload(worker, *args, **options)

    wrap_once(Worker, "reload_weights", wrapper)
