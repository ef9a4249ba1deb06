"""The wheel alone contains what ``tandem init`` writes, from the files of the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin import __version__
from tandem_plugin.lab.recipes import RECIPES, shipped, write_recipe

ROOT = Path(__file__).parents[2]
STACKS = ROOT / "constraints"


@pytest.mark.parametrize("trainer", RECIPES)
def test_recipe_is_the_checkouts_with_the_pins_of_its_stack(trainer: str, tmp_path: Path) -> None:
    recipe = RECIPES[trainer]
    train, settings, constraints = write_recipe(recipe, tmp_path / "new" / "folder")
    assert train.read_text() == (ROOT / "examples" / trainer / "train.sh").read_text()
    assert settings.read_text() == (ROOT / "examples" / "settings.sh").read_text()
    assert constraints.read_text() == (STACKS / f"{recipe.stack}.txt").read_text()
    assert os.access(train, os.X_OK)
    assert re.search(rf"^{trainer}==", constraints.read_text(), re.MULTILINE)


@pytest.mark.parametrize("trainer", RECIPES)
def test_install_names_extras_that_exist_and_versions_of_the_stack(trainer: str) -> None:
    recipe = RECIPES[trainer]
    extras = (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2]
    assert set(recipe.extras.split(",")) <= set(re.findall(r"^([\w-]+) = \[", extras, re.MULTILINE))
    assert f'--constraint constraints.txt "tandem-plugin[{recipe.extras}]=={__version__}"' in (
        recipe.install
    )
    pins = (STACKS / f"{recipe.stack}.txt").read_text().splitlines()
    assert not recipe.then or recipe.then in pins


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "settings.sh").write_text("mine")
    with refused("init-file-exists", folder=str(tmp_path), files="settings.sh"):
        write_recipe(RECIPES["verl"], tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["settings.sh"]
    assert (tmp_path / "settings.sh").read_text() == "mine"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel, unpacked, as an environment would hold it."""
    building = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = building.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as file:
        file.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("trainer", RECIPES)
def test_wheel_alone_writes_every_recipe(trainer: str, wheel: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tandem_plugin", "init", trainer, "--out", "here"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name, source in RECIPES[trainer].sources.items():
        assert (tmp_path / "here" / name).read_bytes() == (ROOT / source).read_bytes()
        assert (wheel / "tandem_plugin" / "lab" / "shipped" / source).exists()
    commands = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert commands == [
        f"  cd here && {RECIPES[trainer].install}",
        f"  tandem doctor {trainer}",
        "  ./train.sh tandem",
    ]


def test_wheel_has_the_shared_part_of_the_recipes(wheel: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tandem_plugin", "path", "recipe"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == wheel / "tandem_plugin" / "lab" / "recipe.sh"


def test_checkout_holds_each_of_these_files_once() -> None:
    for recipe in RECIPES.values():
        for source in recipe.sources.values():
            assert shipped(source) == ROOT / source
