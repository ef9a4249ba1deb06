"""Makes an environment of a tested stack: constraints/install.py ENVIRONMENT STACK REQUIREMENT ...

The Makefile's environments are made with it. STACK names a constraint file of this folder, such as
verl-vllm-0.29.0, by which uv installs the requirements, in a third of pip's time, from where pip is
configured to look. vLLM's CPU build wants a CPU build of torch, which the package index does not
have: it is taken from there as well, or from PyTorch's own index.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
"""PyTorch's index of CPU builds, as its page on installing gives it."""
IMPATIENT = ("--disable-pip-version-check", "--retries", "1", "--timeout", "12")
"""An index that does not answer is given up after 12 s twice: both are, within a minute."""
UNNEEDED = ("torchvision", "torchaudio", "torchcodec")
"""The package index has CUDA builds of them; beside a CPU torch they break transformers' import."""
VISION = ("torchvision", "qwen_vl_utils", "num2words", "docopt")
"""What processors of images import."""

UV_NAMES = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip, and the variables by which uv knows them: of two names that which yields."""

ALONE = {"openrlhf": ["openrlhf"], "skyrl": ["skyrl"]}
"""Trainers that require packages built for CUDA: what they need besides is in our extras."""
LATER_TYPES = "import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict\n"
"""What SkyRL takes from Python 3.12, as a line of a ``.pth`` file for an earlier one."""


def torch_of(stack: str) -> str:
    """The version of torch that the stack's constraint file pins."""
    pins = (HERE / f"{stack}.txt").read_text()
    return re.findall(r"^torch==(\S+)", pins, re.MULTILINE)[0]


def overrides_of(stack: str) -> Path | None:
    """The file of what the stack has otherwise than its packages ask for; None without one."""
    file = HERE / f"overrides-{stack.partition('-')[2]}.txt"
    return file if file.exists() else None


def refusal(pip: list[str], requirement: str, *places: str) -> str:
    """Install one package without its dependencies; what pip says where it is not to be had."""
    what = ["--quiet", "--no-deps", "--no-compile"]
    command = [*pip, "install", *what, *IMPATIENT, *places, requirement]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return ""
    said = [line for line in done.stderr.splitlines() if line and "for help visit" not in line]
    return [f"pip ended with {done.returncode}.", *said][-1]


def install_cpu_torch(pip: list[str], version: str, index: str = CPU_BUILDS) -> str:
    """Install torch's CPU build from the first place that has it; a sentence where none has."""
    requirement = f"torch=={version}+cpu"
    here = refusal(pip, requirement)
    there = here and refusal(pip, requirement, "--index-url", index)
    if not there:
        return ""
    return (
        f"{requirement}, which vLLM's CPU build needs, was found neither where pip looks for "
        f"packages ({here}) nor at {index} ({there}). Connect this machine to one of them, or "
        "download the wheel elsewhere and set PIP_FIND_LINKS to its folder."
    )


def uv_environment(listed: str) -> dict[str, str]:
    """The environment of uv, which reads nothing of pip's settings: what is set for uv comes first.

    listed: what ``pip config list`` prints. As pip does, uv takes the best version of all indexes.
    """
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # the later one holds
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listed, re.MULTILINE):
            if name in UV_NAMES:
                between = "," if name == "find-links" else " "
                found[UV_NAMES[name]] = between.join(ast.literal_eval(value).split())
    ours = {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_CACHE_DIR": str(HERE.parent / "build" / "uv"),
    }
    return {**ours, **found, **os.environ}


def install(environment: Path, stack: str, requirements: list[str]) -> None:
    """Make the environment where there is none, and install the requirements in their stack.

    Ends the process with a sentence where a CPU build of torch is needed and not to be had.
    """
    python = str(environment / "bin" / "python")
    if not Path(python).exists():
        venv.create(environment, with_pip=True, symlinks=True)
    pip = [python, "-m", "pip"]
    constraints = ["--constraint", str(HERE / f"{stack}.txt")]
    overrides = overrides_of(stack)
    missing = install_cpu_torch(pip, torch_of(stack))
    if missing and overrides is None:
        sys.exit(missing)
    if missing:
        print(f"{missing} Any other build of it, several GB larger, is taken in its place.")
    run([*pip, "install", "--quiet", *IMPATIENT, "--upgrade", "pip", "uv"])
    uv = [python, "-m", "uv", "pip", "install", "--quiet", *constraints]
    if overrides:
        uv += ["--override", str(overrides)]
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True).stdout
    run([*uv, "--python", python, *requirements], uv_environment(listed))
    trainer = stack.partition("-")[0]
    if trainer in ALONE:
        alone = ["--no-deps", "--ignore-requires-python", *constraints, *ALONE[trainer]]
        run([*pip, "install", "--quiet", *alone])
    if trainer == "skyrl":
        for packages in (environment / "lib").glob("python3.1[01]/site-packages"):
            (packages / "later_types.pth").write_text(LATER_TYPES)
    run([*pip, "uninstall", "--quiet", "--yes", *UNNEEDED])
    if overrides is None:
        put_vision_packages_beside(environment, pip, constraints)


def put_vision_packages_beside(environment: Path, pip: list[str], constraints: list[str]) -> None:
    """Put torchvision's Python code where tests of images find it, and nothing else does.

    Its files that register compiled operations are emptied: those are for CUDA, and processors of
    images use none. ``integration_tests/support/vision_packages.py`` reads the folder; where it
    cannot be filled, tests of images are skipped.
    """
    folder = environment / "torchvision"
    target = ["--target", str(folder), "--upgrade", "--no-deps"]
    command = [*pip, "install", "--quiet", *IMPATIENT, *target, *constraints, *VISION]
    if subprocess.run(command).returncode:
        print("Tests of images will be skipped: torchvision was not to be had.")
        return
    for name in ("_meta_registrations.py", "_autograd_registrations.py"):
        if (file := folder / "torchvision" / name).exists():
            file.write_text("")


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a command that must succeed; its own words say why where it does not."""
    done = subprocess.run(command, env=environment)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    files = {file.stem for file in HERE.glob("*.txt")}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("stack", choices=sorted(s for s in files if not s.startswith("overrides")))
    parser.add_argument("requirements", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    print(f"Installing {' '.join(given.requirements)} into {given.environment}: a few minutes.")
    install(given.environment.absolute(), given.stack, given.requirements)


if __name__ == "__main__":
    main()
