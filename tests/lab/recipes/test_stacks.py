"""The wheel alone contains what ``tandem init`` writes, from the files of the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin import __version__
from tandem_plugin.lab.recipes import stacks
from tandem_plugin.lab.recipes.settings import written
from tandem_plugin.lab.recipes.stacks import STACKS, shipped, write_recipe

ROOT = Path(__file__).parents[3]
CONSTRAINTS = ROOT / "constraints"


@pytest.mark.parametrize("trainer", STACKS)
def test_recipe_is_the_checkouts_with_the_pins_of_its_stack(
    trainer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(stacks, "distribution", not_installed)
    stack = STACKS[trainer]
    recipe, constraints = write_recipe(stack, tmp_path / "new" / "folder")
    assert recipe.read_text() == written(trainer)
    assert recipe.read_text() == (ROOT / "examples" / trainer / "recipe.yaml").read_text()
    assert constraints.read_text() == (CONSTRAINTS / f"{stack.name}.txt").read_text()
    assert re.search(rf"^{trainer}==", constraints.read_text(), re.MULTILINE)


COMMIT = {"vcs": "git", "commit_id": "4a7da63b"}


@pytest.mark.parametrize(
    ("record", "origin"),
    [
        (None, ""),  # from an index
        ({"url": "file://{0}", "dir_info": {}}, "file://{0}"),
        ({"url": "file://{0}", "dir_info": {"editable": True}}, ""),
        ({"url": "file://{0}/gone.whl", "archive_info": {}}, ""),
        ({"url": "https://host/x.whl", "archive_info": {}}, "https://host/x.whl"),
        ({"url": "https://host/own", "vcs_info": COMMIT}, "git+https://host/own@4a7da63b"),
        (
            {"url": "file://{0}", "dir_info": {}, "subdirectory": "plugin"},
            "file://{0}#subdirectory=plugin",
        ),
    ],
    ids=["index", "clone", "editable", "deleted", "wheel", "git", "subfolder"],
)
def test_constraints_name_the_place_that_the_package_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: dict[str, Any] | None, origin: str
) -> None:
    """Else the printed command would take a stranger's package in an environment without ours."""
    clone = tmp_path / "a clone"
    info = tmp_path / "tandem_plugin-0.1.0.dist-info"
    for folder in (clone, info):
        folder.mkdir()
    if record is not None:
        url = record["url"].format(clone.as_uri().removeprefix("file://"))
        (info / "direct_url.json").write_text(json.dumps(record | {"url": url}))
    monkeypatch.setattr(stacks, "distribution", lambda name: PathDistribution(info))
    _, constraints = write_recipe(STACKS["verl"], tmp_path / "new")
    pinned = (CONSTRAINTS / "verl-vllm-0.29.0.txt").read_text()
    added = constraints.read_text().removeprefix(pinned).splitlines()
    place = origin.format(clone.as_uri().removeprefix("file://"))
    assert added[1:] == ([f"tandem-plugin @ {place}"] if origin else [])


@pytest.mark.parametrize("trainer", STACKS)
def test_install_names_extras_that_exist_and_versions_of_the_stack(trainer: str) -> None:
    stack = STACKS[trainer]
    extras = (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2]
    assert set(stack.extras.split(",")) <= set(re.findall(r"^([\w-]+) = \[", extras, re.MULTILINE))
    assert f'--constraint constraints.txt "tandem-plugin[{stack.extras}]=={__version__}"' in (
        stack.install
    )
    pins = (CONSTRAINTS / f"{stack.name}.txt").read_text().splitlines()
    assert not stack.then or stack.then in pins


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("mine")
    with refused("init-file-exists", folder=str(tmp_path), files="recipe.yaml"):
        write_recipe(STACKS["verl"], tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.yaml"]
    assert (tmp_path / "recipe.yaml").read_text() == "mine"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel, unpacked, as an environment would hold it."""
    building = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = building.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as file:
        file.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("trainer", STACKS)
def test_wheel_alone_writes_every_recipe(trainer: str, wheel: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tandem_plugin", "init", trainer, "--out", "here"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    source = STACKS[trainer].constraints
    assert (tmp_path / "here" / "constraints.txt").read_bytes() == (ROOT / source).read_bytes()
    assert (tmp_path / "here" / "recipe.yaml").read_text() == written(trainer)
    assert (wheel / "tandem_plugin" / "lab" / "shipped" / source).exists()
    commands = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert commands == [
        f"  cd here && {STACKS[trainer].install}",
        f"  tandem doctor {trainer}",
        "  tandem train",
    ]


def test_wheel_prints_the_command_of_a_run(wheel: Path, tmp_path: Path) -> None:
    """With what a run on a CPU imports at its start."""
    write_recipe(STACKS["openrlhf"], tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tandem_plugin", "train", "--print", "--set", "device=cpu"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = wheel / "tandem_plugin" / "lab" / "recipes" / "on_cpu"
    assert str(folder) in done.stdout
    assert (folder / "sitecustomize.py").exists()


def test_checkout_holds_each_of_these_files_once() -> None:
    for stack in STACKS.values():
        assert shipped(stack.constraints) == ROOT / stack.constraints
