"""The package as a package index serves it: found by its name and extra, installed, and started."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tandem_plugin import __version__
from tandem_plugin.lab.recipes import stacks
from tandem_plugin.lab.recipes.stacks import STACKS

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *message: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an index that has this package's wheel and nothing else."""
    building = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("index")
    project = folder / "simple" / "tandem-plugin"
    project.mkdir(parents=True)
    (built,) = building.WheelBuilder(str(ROOT)).build(directory=str(project), versions=["standard"])
    name = Path(built).name
    (project / "index.html").write_text(f'<!DOCTYPE html><a href="{name}">{name}</a>')
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


@pytest.fixture(scope="module")
def pip_install(index: str) -> Any:
    """Install from that index alone, without what is configured here, and without dependencies."""

    def install(requirement: str, target: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--index-url", index]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
        return subprocess.run(
            [*command, "--no-compile", "--target", str(target), requirement],
            env=environment | {"PIP_CONFIG_FILE": os.devnull, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
        )

    return install


@pytest.mark.parametrize("trainer", STACKS)
def test_package_is_installed_with_its_trainers_extra(
    pip_install: Any, trainer: str, tmp_path: Path
):
    extras = STACKS[trainer].extras
    done = pip_install(f"tandem-plugin[{extras}]=={__version__}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr
    (info,) = tmp_path.glob("tandem_plugin-*.dist-info")
    requirements = [Requirement(text) for text in PathDistribution(info).requires or []]
    pins = {
        requirement.name: str(requirement.specifier)
        for requirement in requirements
        if requirement.marker and requirement.marker.evaluate({"extra": trainer})
    }
    constraints = (ROOT / STACKS[trainer].constraints).read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", constraints, re.MULTILINE))
    assert pins["vllm"] == f"=={pinned['vllm']}"
    assert pins["transformers"] == f"=={pinned['transformers']}"


def test_installed_package_starts_and_is_found_by_engines(pip_install: Any, tmp_path: Path):
    assert pip_install("tandem-plugin", tmp_path).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "tandem_plugin", "--version"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(f"tandem-plugin {__version__}\n"), done.stderr
    (info,) = tmp_path.glob("tandem_plugin-*.dist-info")
    points = {(point.group, point.name) for point in PathDistribution(info).entry_points}
    assert {("console_scripts", "tandem")} < points
    assert any(group == "vllm.general_plugins" for group, _ in points)
    assert (tmp_path / "tandem_verl").is_dir(), "the adapters are part of it"


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_strangers_package_of_our_name_is_not_installed(
    installer: str, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From a clone there is no release yet, and anybody could take the name."""
    if installer == "uv" and importlib.util.find_spec("uv") is None:
        pytest.skip("uv is not installed")
    clone, info = tmp_path / "clone", tmp_path / "tandem_plugin-0.1.0.dist-info"
    (clone / "ours").mkdir(parents=True)
    (clone / "ours" / "__init__.py").touch()
    (clone / "pyproject.toml").write_text(PROJECT.format(__version__))
    info.mkdir()
    (info / "direct_url.json").write_text(json.dumps({"url": clone.as_uri(), "dir_info": {}}))
    monkeypatch.setattr(stacks, "distribution", lambda name: PathDistribution(info))
    (tmp_path / "constraints.txt").write_text(stacks.own_pin())
    options = ["--no-deps", "--no-build-isolation", "--index-url", index, "--target", "target"]
    requirement = f"tandem-plugin[verl,math,eval]=={__version__}"
    command = [sys.executable, "-m", installer, *(["pip"] if installer == "uv" else [])]
    subprocess.run(
        [*command, "install", *options, "--constraint", "constraints.txt", requirement],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
        | {"PIP_CONFIG_FILE": os.devnull},
        check=True,
    )
    assert (tmp_path / "target" / "ours").is_dir()
    assert not (tmp_path / "target" / "tandem_plugin").exists(), "that one is the index's"


PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "tandem-plugin"
version = "{}"
[project.optional-dependencies]
verl = []
math = []
eval = []
[tool.hatch.build.targets.wheel]
packages = ["ours"]
"""


def test_version_that_the_index_lacks_is_not_installed(pip_install: Any, tmp_path: Path):
    done = pip_install("tandem-plugin==9.9", tmp_path)
    assert done.returncode != 0
    assert __version__ in done.stderr, "pip says which it has"
