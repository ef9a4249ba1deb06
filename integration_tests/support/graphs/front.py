"""Engines that start within ask for CUDA graphs on a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

CAPTURE_SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96]


@contextmanager
def with_graphs(mode: str = "FULL_AND_PIECEWISE", **compilation: Any) -> Iterator[dict[str, Any]]:
    """The engine arguments with which an engine captures graphs; it must start within."""
    # Compiled code is neither loaded nor saved: its hash does not know of the stand-in.
    with mock.patch.dict(os.environ, VLLM_DISABLE_COMPILE_CACHE="1"), platform_has_graphs():
        yield {
            "enforce_eager": False,
            # No passes over generated code: no code is generated.
            "optimization_level": 0,
            "worker_cls": "support.graphs.worker.GraphsWorker",
            "compilation_config": {
                "mode": 3,
                "backend": "eager",
                "cudagraph_mode": mode,
                "cudagraph_capture_sizes": CAPTURE_SIZES,
                **compilation,
            },
        }


@contextmanager
def platform_has_graphs() -> Iterator[None]:
    """Let vLLM's CPU platform leave the configuration of compilation and graphs as it is asked."""
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config

    def check_and_keep(vllm_config: Any) -> None:
        compilation = vllm_config.compilation_config
        names = "mode", "backend", "cudagraph_capture_sizes", "ir_enable_torch_wrap"
        kept = {name: getattr(compilation, name) for name in names}
        check(vllm_config)
        for name, value in kept.items():
            setattr(compilation, name, value)

    with mock.patch.multiple(
        CpuPlatform,
        check_and_update_config=staticmethod(check_and_keep),
        support_static_graph_mode=staticmethod(lambda: True),
        get_static_graph_wrapper_cls=staticmethod(
            lambda: "vllm.compilation.cuda_graph.CUDAGraphWrapper"
        ),
    ):
        yield
