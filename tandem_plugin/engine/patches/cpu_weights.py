"""The weights that vLLM's CPU build packs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["keep_cpu_weights", "pack_cpu_weights_anew", "unpack_cpu_experts"]

_LAYERS = "vllm.model_executor.layers"


@dataclass(slots=True)
class _Experts:
    """A layer's experts, as loaded and as vLLM computes with them, by parameter name.

    One of the two is the layer's own parameters, except while vLLM reloads it in place.
    """

    loaded: dict[str, Any]
    packed: dict[str, Any]
    is_packed: bool = True


def keep_cpu_weights() -> None:
    """Keep the weights of linear layers and of experts after vLLM's CPU build has packed them.

    Touches: ``layers.utils.dispatch_cpu_unquantized_gemm``, looked up there by linear layers, and
    ``UnquantizedFusedMoEMethod.process_weights_after_loading``, each once vLLM imports it.
    Versions: 0.24 to 0.32, CPU builds only. Why: the packed copy replaces the weight. A weight sync
    then finds nothing to load into and fails, or corrupts experts by loading them into the packed
    copy. Costs the memory of one copy. Goes when: the CPU build can reload weights.
    """
    after_import(f"{_LAYERS}.utils", _keep_linear_weights)
    after_import(f"{_LAYERS}.fused_moe.unquantized_fused_moe_method", _keep_experts)


def _keep_linear_weights(utils: ModuleType) -> None:
    def dispatch(dispatch: Callable[..., Any], layer: Any, remove_weight: bool) -> Any:
        return dispatch(layer, remove_weight=False)

    wrap_once(utils, "dispatch_cpu_unquantized_gemm", dispatch)


def _keep_experts(module: ModuleType) -> None:
    method = module.UnquantizedFusedMoEMethod
    wrap_once(method, "process_weights_after_loading", _process_experts)


def unpack_cpu_experts(model: Any) -> None:
    """Make a model's experts loadable, before ``load_weights``.

    A layer that vLLM is about to reload in place has its own parameters to load into, and keeps
    them. Raises :class:`EngineError` if the CPU build has packed weights that no sync reaches:
    those of quantised layers, which ``load_weights`` does not find and ``reload_weights`` corrupts.
    Touches: the parameters of experts' layers. Why: a layer computes with its packed copy, into
    which ``load_weights`` would write rows of another layout. Versions and goes when: as
    :func:`keep_cpu_weights`.
    """
    if not any("cpu_linear" in vars(module) for module in model.modules()):
        return  # no CPU build, or nothing was packed yet
    _check_loadable(model)
    for layer, experts in _experts(model):
        if _are_own(layer, experts.packed):
            _give(layer, experts.loaded)
            experts.is_packed = False


def pack_cpu_weights_anew(model: Any, loaded: Any) -> None:
    """Make layers compute with the weights that were just loaded.

    Some are packed right before the next forward pass: experts, which arrive in many small tensors,
    and layers that vLLM is reloading in place and that got no weights, such as a head tied to the
    embeddings. loaded: the names of the parameters, as ``load_weights`` returns them; all if it
    returns none. Touches: ``cpu_linear``, a layer's function over the packed copy of its weight,
    and ``dispatch_cpu_unquantized_gemm``, which creates it. Why: copies are created when weights
    are processed after loading. OpenRLHF's sync skips that, and so does vLLM's reloading for a tied
    head, so the layer would keep using the old ones. Versions and goes when: as
    :func:`keep_cpu_weights`.
    """
    packed = [module for module in model.modules() if "cpu_linear" in vars(module)]
    if not packed:
        return
    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = parameters.keys() if loaded is None else loaded
    changed = {id(parameters[name]) for name in names if name in parameters}
    for module in packed:
        # Before 0.28 some kernels hold a copy of the bias as well.
        if any(id(parameter) in changed for parameter in module.parameters(recurse=False)):
            _pack_linear(module)
    late = [module for module in packed if module.weight.is_meta]
    late += [layer for layer, experts in _experts(model) if not experts.is_packed]
    if late:
        _pack_before_the_next_pass(model, late)


def _process_experts(process: Callable[..., Any], method: Any, layer: Any) -> None:
    """vLLM's processing of a layer's experts, applied to unpacked weights only."""
    experts: _Experts | None = vars(layer).get("tandem_experts")
    if experts is None:
        loaded = _parameters(layer)
        _give(layer, _copies(loaded))
        process(method, layer)
        layer.tandem_experts = _Experts(loaded, _parameters(layer))
        for weight in layer.tandem_experts.packed.values():
            weight.weight_loader = _refuse_loading
    elif _are_own(layer, experts.loaded):
        _pack(process, method, layer, experts)
    elif not _are_own(layer, experts.packed):
        _take_reloaded(process, method, layer, experts)


def _refuse_loading(*_: Any, **__: Any) -> None:
    raise EngineError("TP325")


def _take_reloaded(process: Callable[..., Any], method: Any, layer: Any, experts: _Experts) -> None:
    """Keep the weights that vLLM reloaded in place, by copying them into the previous ones."""
    reloaded = _parameters(layer)
    for name, weight in experts.loaded.items():
        weight.data.copy_(reloaded[name].data)
    if experts.is_packed:
        _pack(process, method, layer, experts)


def _pack(process: Callable[..., Any], method: Any, layer: Any, experts: _Experts) -> None:
    """Pack the loaded weights into the memory of the last packed copy."""
    _give(layer, _copies(experts.loaded))
    kernel = getattr(method, "moe_kernel", None)  # vLLM 0.28 and newer packs only once
    if kernel is None:
        process(method, layer)
    else:
        kernel.fused_experts.process_weights_after_loading(layer)
    for name, weight in _parameters(layer).items():
        experts.packed[name].data.copy_(weight.data)
    _give(layer, experts.packed)
    experts.is_packed = True


def _pack_before_the_next_pass(model: Any, layers: list[Any]) -> None:
    """However many syncs precede it."""
    due: dict[int, Any] | None = vars(model).get("tandem_due")
    if due is None:
        due = model.tandem_due = {}
        hook: Any = model.register_forward_pre_hook(lambda *_: _pack_due(model, hook))
    due.update((id(layer), layer) for layer in layers)


def _pack_due(model: Any, hook: Any) -> None:
    hook.remove()
    for layer in vars(model).pop("tandem_due").values():
        if "tandem_experts" not in vars(layer):
            _pack_linear(layer)
        elif not layer.tandem_experts.is_packed:
            layer.quant_method.process_weights_after_loading(layer)


def _pack_linear(layer: Any) -> None:
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)


def _check_loadable(model: Any) -> None:
    """Raise :class:`EngineError` for quantised layers."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
        UnquantizedFusedMoEMethod,
    )
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
    from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    loadable = (
        UnquantizedFusedMoEMethod,
        UnquantizedLinearMethod,
        UnquantizedEmbeddingMethod,
        BaseKVCacheMethod,
    )
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, QuantizeMethodBase) and not isinstance(method, loadable):
            raise EngineError("TP326", name=name, method=type(method).__name__)


def _experts(model: Any) -> Iterator[tuple[Any, _Experts]]:
    """The layers of a model that have experts."""
    for module in model.modules():
        if "tandem_experts" in vars(module):
            yield module, module.tandem_experts


def _parameters(layer: Any) -> dict[str, Any]:
    return dict(layer.named_parameters(recurse=False))


def _give(layer: Any, parameters: dict[str, Any]) -> None:
    for name, parameter in parameters.items():
        setattr(layer, name, parameter)


def _are_own(layer: Any, parameters: dict[str, Any]) -> bool:
    own = _parameters(layer)
    return all(own.get(name) is parameter for name, parameter in parameters.items())


def _copies(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the same values and attributes, such as a weight loader."""
    from torch.nn import Parameter

    copies = {name: Parameter(p.detach().clone(), False) for name, p in parameters.items()}
    for name, copied in copies.items():
        vars(copied).update(vars(parameters[name]))
    return copies
