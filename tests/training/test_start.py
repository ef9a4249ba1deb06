"""The start of a run: every check of what an adapter describes, in one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytest
from refused import refused
from started import started

from tandem_plugin import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.training import start as module
from tandem_plugin.training.checkpoint_note import CheckpointNote
from tandem_plugin.training.start import TrainerRun
from tandem_plugin.unsupported import Unsupported

HANDOVER = {"schedule": "handover", "after": 8, "steps": 4}


class Run(TrainerRun):
    """A trainer with a table of three rows."""

    package = "verl"
    unsupported = (
        Unsupported.untested("estimator", (None, "grpo"), "estimator"),
        Unsupported.on("tandem.lambda_jun", "trl-imitation-unsupported"),
        Unsupported("tandem", lambda tandem, _: tandem.seed == 9, "verl-mask-as-length"),
    )
    unproven: ClassVar[Mapping[str, str]] = {"estimator": "one of your own", "version": "another"}


def described(
    settings: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    name: str | None = None,
    sampled: Mapping[str, Any] | None = None,
    resumes: bool | None = False,
    adapter: str = "",
) -> Run:
    """A run of that trainer."""

    def check_adapter() -> None:
        raise ConfigError("verl-adapter-differs", what=adapter, remedy="")

    return Run(
        (settings or {}).get,
        (engine or {}).get,
        name,
        resumes,
        sampled or {},
        check_adapter if adapter else None,
    )


def tandem(**settings: Any) -> TandemConfig:
    return TandemConfig.from_mapping(settings)


def trained(folder: Path, seed: int) -> str:
    """A senior that a tandem run with this seed has exported."""
    CheckpointNote.of_run("a/base", tandem(junior="a/base", seed=seed), "f").write(folder)
    return str(folder)


def test_checks_come_in_one_order(tmp_path: Path) -> None:
    """Each run has the faults of all checks that come after the one that stops it."""
    faults: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("training-step-set", {}, {**HANDOVER, "training_step": 1}),
        ("trainer-setting-untested", {"settings": {"estimator": "own"}}, {}),
        ("verl-adapter-differs", {"adapter": "r"}, {}),
        ("pipeline-parallel-unsupported", {"engine": {"pipeline_parallel_size": 2}}, {}),
        ("seeds-reused-by-continuation", {"name": trained(tmp_path, 0)}, {"junior": "a/base"}),
    ]  # fmt: skip
    (tmp_path / "config.json").write_text("{}")
    for first in range(len(faults)):
        code = faults[first][0]
        facts: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        for _, run, own in faults[first:]:
            facts |= run
            settings |= own
        if code == "seeds-reused-by-continuation":
            (tmp_path / "config.json").unlink()
            (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
        with refused(code):
            started(described(**facts), tandem(**settings))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"lambda_jun": 0.1}, "trl-imitation-unsupported"),
        ({"seed": 9}, "verl-mask-as-length"),
        ({"unproven": ["nothing"]}, "unproven-name-unknown"),
    ],
)
def test_tandems_own_settings_are_in_the_table(settings: dict[str, Any], code: str) -> None:
    with refused(code):
        started(described(), tandem(**settings))


def test_more_is_checked_once_more_is_known_and_warned_of_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = started(described({"estimator": "own"}, resumes=None), tandem(unproven=["estimator"]))
    model = trained(tmp_path / "senior", 0)
    for sampled in ({}, {"top_k": 3}, {"top_k": 3}):
        first.check(described({"estimator": "own"}, sampled=sampled, resumes=True, name="a/model"))
    assert capsys.readouterr().err.count("estimator=own was not tested") == 1
    assert len(first.warnings) == 1
    again = started(described(sampled={"top_k": 3}, resumes=None, name="a/model"), tandem())
    again.check(described(sampled={"top_k": 3}, name="a/model"))
    assert capsys.readouterr().err.count("WARNING: top_k=3") == 1
    assert CheckpointNote.read(Path(model)) is not None
    with refused("trainer-setting-untested"):
        again.check(described({"estimator": "own"}))


def test_a_forgotten_part_of_a_description_is_a_type_error() -> None:
    parts = {field.name: getattr(described(), field.name) for field in fields(Run)}
    assert Run(**parts) == Run(*parts.values())
    for name in parts:
        with pytest.raises(TypeError, match=name):
            Run(**{part: value for part, value in parts.items() if part != name})


@pytest.mark.parametrize(
    ("verl", "allowed", "name", "code", "said"),
    [
        ("0.9.1", (), "version", None, []),
        ("0.9.0", (), "version", None, ["warning: verl 0.9.0"]),
        ("0.12.0", (), "version", "trainer-version-untested", []),
        ("0.12.0", ("version",), "version", None, ["WARNING: verl 0.12.0"]),
        # There is no name that would allow it.
        ("0.12.0", ("version",), "", "framework-version-untested", []),
        (None, (), "version", "trainer-not-installed", []),
    ],
)
def test_another_series_starts_only_where_its_name_is_allowed(
    verl: str | None,
    allowed: tuple[str, ...],
    name: str,
    code: str | None,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    versions = {"verl": verl, "vllm": "0.33.0"}
    monkeypatch.setattr(module, "running_version", versions.get)
    monkeypatch.setattr(Run, "untested_version", classmethod(lambda kind: name))
    if code is not None:
        with refused(code):
            described().start(tandem(unproven=allowed))
        return
    described().start(tandem(unproven=allowed))
    lines = [line.split(" is not ")[0] for line in capsys.readouterr().err.splitlines()]
    assert sorted(lines) == sorted([*said, "warning: vllm 0.33.0"])


def test_training_step_is_the_trainers_and_no_setting() -> None:
    started(described(), tandem(**HANDOVER))
    with refused("training-step-set", value=3):
        Run.begin(tandem(**HANDOVER, training_step=3))


@pytest.mark.parametrize("name", ["tandem", "tandm", "tandem_config", "junior", "seed"])
def test_settings_that_the_adapter_would_overwrite_are_rejected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(described(engine={"additional_config": {"other": 1}}), tandem())
    run = described(engine={"additional_config": {name: {"p": 0.3}, "other": 1}})
    with refused("settings-beside-flag", names=name):
        started(run, tandem())
    monkeypatch.setattr(Run, "in_additional_config", True)
    started(run, tandem())
