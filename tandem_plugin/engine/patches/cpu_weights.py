"""The weights that vLLM's CPU build packs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once


def keep_cpu_weights() -> None:
    """Keep the weights of linear layers after vLLM's CPU build has packed them.

    Touches: ``layers.utils.dispatch_cpu_unquantized_gemm``, looked up there by linear layers, once
    vLLM imports it. Versions: 0.24 to 0.32, CPU builds only. Why: the packed copy replaces the
    weight, and a weight sync then finds nothing to load into and fails. Costs the memory of one
    copy. Goes when: the CPU build can reload weights.
    """
    after_import("vllm.model_executor.layers.utils", _keep_linear_weights)


def _keep_linear_weights(utils: ModuleType) -> None:
    def dispatch(dispatch: Callable[..., Any], layer: Any, remove_weight: bool) -> Any:
        # A packed convolution has two dimensions, as a linear layer has, and would be packed again.
        return None if _is_packed(layer) else dispatch(layer, remove_weight=False)

    wrap_once(utils, "dispatch_cpu_unquantized_gemm", dispatch)


def _is_packed(layer: Any) -> bool:
    """Whether it is a convolution whose weight was replaced by its packed copy."""
    return "_cpu_unpacked_conv_weight" in vars(layer) and layer.weight.dim() == 2


@contextmanager
def plain_convolutions(model: Any) -> Iterator[None]:
    """Give convolutions that a CPU with AVX-512 BF16 packed their plain weights within.

    They are packed again afterwards. Raises :class:`EngineError` if vLLM is reloading Mamba 2's in
    place (``reload_weights``): Mamba 2 computes with a view of the first plain weight, which such a
    reload leaves as it was. Touches: a layer's ``_cpu_unpacked_conv_weight`` and ``weight``, and
    the mixer's ``conv_weights``. Why: ``load_weights`` finds no room in the packed copy. Versions:
    0.29 to 0.32, CPU builds only. Goes when: as :func:`keep_cpu_weights`.
    """
    packed = []
    for name, mixer in model.named_modules():
        for layer in mixer.children():
            if "_cpu_unpacked_conv_weight" not in vars(layer):
                continue
            if layer.weight.is_meta and type(mixer).__name__ == "MambaMixer2":
                raise EngineError("hybrid-reload-on-cpu", name=name)
            if _is_packed(layer):
                plain = getattr(mixer, "conv_weights", layer._cpu_unpacked_conv_weight)
                layer.weight.data = plain.unsqueeze(1)
                packed.append(layer)
    yield
    for layer in packed:
        _pack_linear(layer)


def check_cpu_weights(model: Any) -> None:
    """Reject new weights for layers whose packed weights no sync reaches, before ``load_weights``.

    These are quantised layers, which ``load_weights`` does not find and ``reload_weights``
    corrupts, and experts, whose rows ``load_weights`` would write into a packed copy of another
    layout. Raises :class:`EngineError`. Touches: nothing; reads each layer's ``quant_method``. Why,
    versions and goes when: as :func:`keep_cpu_weights`.
    """
    if not any("cpu_linear" in vars(module) for module in model.modules()):
        return  # no CPU build, or nothing was packed yet
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
    from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    loadable = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod, BaseKVCacheMethod)
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, QuantizeMethodBase) and not isinstance(method, loadable):
            raise EngineError(
                "packed-layer-not-reloadable", name=name, method=type(method).__name__
            )


def pack_cpu_weights_anew(model: Any, loaded: Any) -> None:
    """Make layers compute with the weights that were just loaded.

    Layers that vLLM is reloading in place and that got no weights, such as a head tied to the
    embeddings, are packed right before the next forward pass. loaded: the names of the parameters,
    as ``load_weights`` returns them; all if it returns none. Touches: ``cpu_linear``, a layer's
    function over the packed copy of its weight, and ``dispatch_cpu_unquantized_gemm``, which
    creates it. Why: copies are created when weights are processed after loading. OpenRLHF's sync
    skips that, and so does vLLM's reloading for a tied head, so the layer would keep using the old
    ones. Versions and goes when: as :func:`keep_cpu_weights`.
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
    if late := [module for module in packed if module.weight.is_meta]:
        _pack_before_the_next_pass(model, late)


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
        _pack_linear(layer)


def _pack_linear(layer: Any) -> None:
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
