"""A third party's plugin from its own folder: installed, tested, and used in vLLM and in verl."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from support.boundary_ids import word_boundaries
from support.engine import RUNNERS
from support.records import recorded
from support.reference import algorithm_1
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin.authorship import Authorship

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "tandem-plugin-curriculum"
TANDEM_COMMAND = "from tandem_plugin.cli import main; main()"


def run(*command: str | Path, check: bool = True, **environment: str) -> Any:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def install(python: Path, *sources: Path) -> None:
    """By pip, from folders, with what is installed already: nothing is downloaded."""
    run(
        python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps",
        "--no-index", "--disable-pip-version-check", *sources,
    )  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the example installed.

    torch and vLLM are gigabytes, so they are not installed again: the environment sees the running
    one's packages. `venv --system-site-packages` would show those of the interpreter that the
    running environment was itself made from, not its own; a .pth file shows exactly its own, and
    `addsitedir` honours the .pth files there (editable installations). pip installs into the fresh
    environment alone, so nothing of this is left behind in the running one.
    """
    folder = tmp_path_factory.mktemp("plugins")
    home = folder / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    running = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (packages / "running_environment.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in dict.fromkeys(running))
    )
    python = home / "bin" / "python"
    install(python, EXAMPLE)
    return python


def test_example_passes_its_own_tests_where_it_is_installed(python: Path) -> None:
    done = run(
        python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", EXAMPLE,
        EXAMPLE / "tests",
    )  # fmt: skip
    assert "passed" in done.stdout
    where = run(python, "-c", "import tandem_plugin_curriculum as t; print(t.__file__)").stdout
    assert str(python.parents[1]) in where
    assert not list(EXAMPLE.glob("**/*.egg-info"))
    assert not (EXAMPLE / "dist").exists()


def test_plugin_is_listed_with_its_distribution(python: Path) -> None:
    listed = json.loads(run(python, "-c", TANDEM_COMMAND, "plugins", "--strict", "--json").stdout)
    (curriculum,) = [e for e in listed["registered"] if e["name"] == "curriculum"]
    assert curriculum["distribution"] == "tandem-plugin-curriculum"
    assert curriculum["version"] == "0.1.0"
    assert {"name": "training_step", "type": "int", "default": 0} in curriculum["parameters"]


def replayed(ids: list[int], seed: int, p: float, cap: int, words: set[int]) -> list[int]:
    """Algorithm 1 in plain Python, without the package."""
    if not ids:
        return []
    authors = algorithm_1(seed, p, cap, words)
    bits = [next(authors)]
    bits += [authors.send(token) for token in ids[:-1]]
    return [int(bit) for bit in bits]


@pytest.fixture(scope="module")
def words(tokenizer: Any) -> set[int]:
    return word_boundaries(tokenizer)


@pytest.mark.parametrize("runner", RUNNERS)
def test_engine_serves_the_plugins_schedule_by_name(
    runner: str, python: Path, checkpoints: dict[str, Path], tmp_path: Path, words: set[int]
) -> None:
    run(
        python,
        Path(__file__).parents[1] / "support" / "serve_curriculum.py",
        runner,
        checkpoints["senior"],
        checkpoints["other"],
        tmp_path,
    )
    result = json.loads((tmp_path / "responses.json").read_text())
    assert "training_step=-1 is not a valid count" in result["refusal"]
    rows = recorded(tmp_path, [response["seed"] for response in result["responses"]])
    assert len(rows) == len(result["responses"]) == 34
    shares: dict[int, list[float]] = {}
    for response in result["responses"]:
        row, step = rows[response["seed"]], response["training_step"]
        p = 0.9 + (0.1 - 0.9) * min(step / 4, 1)
        assert row["response_ids"] == response["response_ids"]
        expected = replayed(row["response_ids"], response["seed"], p, 4, words)
        assert row["authorship"] == expected
        assert row["tandem_schedule"]["training_step"] == step
        shares.setdefault(step, []).append(Authorship(expected).senior_share)
    assert len({row["tandem_fingerprint"] for row in rows.values()}) == 6
    assert sum(shares[0]) / len(shares[0]) > sum(shares[5]) / len(shares[5]) + 0.3


@pytest.fixture(scope="module")
def trained(
    python: Path, tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]
) -> VerlRun:
    pytest.importorskip("verl", reason="verl is not installed")
    bench = VerlBench.make(
        tmp_path_factory.mktemp("verl"), checkpoints["senior"], python=str(python)
    )
    run = bench.run(
        f"{TANDEM}.schedule=curriculum",
        f"{TANDEM}.p_start=1.0",
        f"{TANDEM}.p_end=0.25",
        f"{TANDEM}.warmup_steps=3",
        f"{TANDEM}.cap=6",
        f"{TANDEM}.validation=team",
        f"{TANDEM}.junior={checkpoints['junior']}",
        "trainer.total_training_steps=2",
        "trainer.test_freq=2",
        name="curriculum",
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run


def test_verl_fills_in_its_step_and_p_follows_it(trained: VerlRun, words: set[int]) -> None:
    assert "tandem is on: schedule=curriculum" in trained.log
    assert "training_step=(the trainer's)" in trained.log
    fingerprints = {}
    dumps = [(1, "rollouts", 8), (2, "rollouts", 8), (2, "validation", 2)]
    for step, kind, count in dumps:
        rows = trained.rollouts(step, kind)
        assert len(rows) == count
        for row in rows:
            settings = row["tandem_schedule"]
            assert settings["training_step"] == step
            p = 1.0 - 0.25 * step
            at = settings["training_step"] / settings["warmup_steps"]
            assert (1 - at) * settings["p_start"] + at * settings["p_end"] == pytest.approx(p)
            expected = replayed(row["response_ids"], row["tandem_seed"], p, 6, words)
            assert row["authorship"] == expected
            fingerprints.setdefault(step, set()).add(row["tandem_fingerprint"])
    assert len(fingerprints[1]) == len(fingerprints[2]) == 1
    assert fingerprints[1] != fingerprints[2]


def test_rollout_and_actor_agree_on_every_trained_token_at_both_steps(trained: VerlRun) -> None:
    differences = [step["training/rollout_probs_diff_max"] for step in trained.steps]
    assert len(differences) == 2
    assert max(differences) <= 1e-6


def test_command_replays_the_dump_from_its_own_columns(
    python: Path, trained: VerlRun, checkpoints: dict[str, Path]
) -> None:
    for step in (1, 2):
        done = run(
            python, "-c", TANDEM_COMMAND, "replay",
            trained.folder / "rollouts" / f"{step}.jsonl",
            "--tokenizer", checkpoints["senior"], "--json",
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert found["ok"] is True
        assert found["rows"] == 8
