"""The weights that vLLM's CPU build packs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["keep_cpu_linear_weights", "pack_cpu_linear_weights_anew"]


def keep_cpu_linear_weights() -> None:
    """Keep a linear layer's weight after vLLM's CPU build has packed it.

    Touches: ``layers.utils.dispatch_cpu_unquantized_gemm``, looked up there by linear layers.
    Versions: 0.27 to 0.32, CPU builds only. Why: the packed copy replaces the weight, so that a
    weight sync finds nothing to load into and fails. Costs the memory of one copy. Goes when: the
    CPU build can reload weights.
    """
    from vllm.model_executor.layers import utils

    def wrapper(dispatch: Callable[..., Any], layer: Any, remove_weight: bool) -> Any:
        return dispatch(layer, remove_weight=False)

    wrap_once(utils, "dispatch_cpu_unquantized_gemm", wrapper)


def pack_cpu_linear_weights_anew(model: Any, loaded: Any) -> None:
    """Let the linear layers that weights were loaded into compute with these weights.

    loaded: the names of the parameters, as ``load_weights`` returns them; all where it says
    nothing. Touches: ``cpu_linear``, a layer's function over the packed copy of its weight, and
    ``dispatch_cpu_unquantized_gemm``, which makes it. Versions: 0.27 to 0.32, CPU builds only. Why:
    the copy is made when weights are processed after loading, which OpenRLHF's sync leaves out, so
    that the layer would go on with the old ones. Goes when: as :func:`keep_cpu_linear_weights`.
    """
    packed = [module for module in model.modules() if "cpu_linear" in vars(module)]
    if not packed:
        return
    from vllm.model_executor.layers import utils

    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = parameters.keys() if loaded is None else loaded
    changed = {id(parameters[name]) for name in names if name in parameters}
    for module in packed:
        if id(module.weight) in changed:
            utils.dispatch_cpu_unquantized_gemm(module, remove_weight=False)
