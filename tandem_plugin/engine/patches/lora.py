"""Adapters (LoRA) that an engine is given, and the base that they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.base_junior import check_may_load
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.wrapping import wrap_once

__all__ = [
    "keep_the_mappers_former_name",
    "refuse_reloading_a_shared_base",
    "refuse_weights_without_a_place",
]


def keep_the_mappers_former_name() -> None:
    """Let verl send an engine of vLLM 0.29 an adapter.

    Touches: ``WeightsMapper``, whose ``get_rename_mapper`` gets the name that it had before, if it
    has it no more. Versions: vLLM 0.29 to 0.32, verl 0.9.1. Why: verl's
    ``utils/vllm/utils.py`` asks for ``get_unstacked_mapper``, and every sync of an adapter fails
    there, in tandem or not. Goes when: verl asks for the new name.
    """
    from vllm.model_executor.models.utils import WeightsMapper

    if not hasattr(WeightsMapper, "get_unstacked_mapper"):
        WeightsMapper.get_unstacked_mapper = WeightsMapper.get_rename_mapper


def refuse_weights_without_a_place() -> None:
    """Refuse an adapter for layers that a tandem engine does not adapt: heads and embeddings.

    Touches: ``LoRAModelManager._add_adapter``, before which an adapter has been read from a folder
    or from a trainer's tensors. Versions: 0.29 to 0.32. Why: vLLM leaves out what it finds no layer
    for, in silence where a trainer sent it, and the engine's senior would not be the trainer's.
    Goes when: vLLM checks the tensors of every adapter.
    """
    from vllm.lora.model_manager import LoRAModelManager

    def wrapper(add: Callable[..., Any], manager: Any, adapter: Any) -> Any:
        if hasattr(manager.model, "tandem_heads"):
            packed = (name for names in manager.packed_modules.values() for name in names)
            homeless = sorted(set(adapter.loras).difference(manager.modules, packed))
            if homeless:
                raise EngineError("TP327", layers=", ".join(homeless[:3]))
        return add(manager, adapter)

    wrap_once(LoRAModelManager, "_add_adapter", wrapper)


def refuse_reloading_a_shared_base() -> None:
    """Refuse vLLM's own reloading in place where the base is the junior as well.

    Touches: ``Worker.reload_weights``. Versions: 0.29 to 0.32. Why: it takes the weights off their
    layers before it asks the model to load others, and tensors that are in a kernel's own order it
    writes without asking at all. Goes when: vLLM asks a model first.
    """
    from vllm.v1.worker.gpu_worker import Worker

    def wrapper(reload: Callable[..., Any], worker: Any, *args: Any, **options: Any) -> Any:
        check_may_load(worker.model_runner.get_model())
        return reload(worker, *args, **options)

    wrap_once(Worker, "reload_weights", wrapper)
