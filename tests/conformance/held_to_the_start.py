"""The start of a run, to which the entry point of every adapter is held: subclass, say how a run
enters, run pytest.

An adapter that forgets a check, or calls none, fails here by the name of what it let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from tandem_plugin import TandemConfig
from tandem_plugin.errors import TandemError
from tandem_plugin.patching.versions import MADE_FOR
from tandem_plugin.training.checkpoint_note import CheckpointNote

VERSIONS = {package: last for package, (_, last) in MADE_FOR.items()}
HANDOVER = {"schedule": "handover", "after": 8, "steps": 4}

SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"pp": 1}, "setting-unknown"),
    ({"unproven": ["nothing"]}, "unproven-name-unknown"),
    ({**HANDOVER, "training_step": 3}, "training-step-set"),
    ({"junior": "/nonexistent/model"}, "junior-not-checkpoint"),
]
"""Settings of tandem that no trainer may start with, and the codes of their errors."""


class HeldToTheStart:
    """Every check of a start, through an adapter's own entry point."""

    package: ClassVar[str]
    """The trainer's, in whose place another series is found."""
    rejected: ClassVar[tuple[Mapping[str, Any], str]]
    """Settings of the trainer's that its table rejects, and the code."""
    pipeline: ClassVar[Mapping[str, Any] | None]
    """Settings by which the engine would be split into stages; None if there are none."""
    sampled: ClassVar[Mapping[str, Any]]
    """Settings by which training responses are drawn with top_p=0.5."""

    imitation: ClassVar[str] = ""
    """The code with which ``lambda_jun`` is rejected; empty where the loss has the term."""
    beside: ClassVar[Mapping[str, Any] | None] = None
    """Settings of tandem among the engine's own arguments, which the adapter would overwrite."""

    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        """Start a run as a user does, as far as the trainer itself; whether that was reached.

        tandem: its settings. model: the senior. settings: the trainer's, beside sound ones. Raises
        :class:`TandemError`, or ends the command with its sentence.
        """
        raise NotImplementedError

    def code(
        self,
        tandem: Mapping[str, Any],
        model: str = "organisation/model",
        settings: Mapping[str, Any] | None = None,
        **versions: str,
    ) -> str:
        """The code of the error that stops a run; empty if the trainer itself is reached."""
        found = {**VERSIONS, **versions}
        with patch("tandem_plugin.training.start.running_version", found.get):
            try:
                assert self.enter({"schedule": "word", **tandem}, model, settings or {})
            except (TandemError, SystemExit) as error:
                return str(error).rpartition(" [")[2].rstrip("]") or str(error)
        return ""

    def test_sound_run_reaches_the_trainer(self) -> None:
        assert self.code({}) == ""

    @pytest.mark.parametrize(("tandem", "expected"), SETTINGS)
    def test_settings_are_checked(self, tandem: dict[str, Any], expected: str) -> None:
        assert self.code(tandem) == expected

    def test_versions_are_checked(self) -> None:
        codes = ("trainer-version-untested", "framework-version-untested")
        assert self.code({}, **{self.package: "99.0.0"}) in codes

    def test_table_is_checked(self) -> None:
        settings, expected = self.rejected
        assert self.code({}, settings=settings) == expected

    def test_engine_is_checked(self) -> None:
        if self.pipeline is None:
            pytest.skip("the trainer has no such option")
        assert self.code({}, settings=self.pipeline) == "pipeline-parallel-unsupported"

    def test_settings_beside_the_flags_are_rejected(self) -> None:
        if self.beside is None:
            pytest.skip("the trainer has no such option, or that is where the settings are")
        assert self.code({}, settings=self.beside) == "settings-beside-flag"

    def test_imitation_is_trained_or_rejected(self) -> None:
        assert self.code({"lambda_jun": 0.1}) == self.imitation

    @pytest.mark.parametrize("validation", ["both", "all"])
    def test_validation_by_several_is_accepted(self, validation: str) -> None:
        assert self.code({"validation": validation}) == ""

    def test_models_on_this_machine_are_checked(self, tmp_path: Path) -> None:
        config = '{"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {}}'
        (tmp_path / "config.json").write_text(config)
        assert self.code({}, str(tmp_path)) == "multimodal-model-unsupported"

    def test_note_of_an_earlier_run_is_checked(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
        CheckpointNote.of_run("a/base", TandemConfig(junior="a/base"), "f").write(tmp_path)
        junior = {"junior": "organisation/model"}
        assert self.code({**junior, "seed": 0}, str(tmp_path)) == "seeds-reused-by-continuation"
        assert self.code({**junior, "seed": 1}, str(tmp_path)) == ""

    def test_changed_sampling_is_warned_of(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.code({}, settings=self.sampled) == ""
        assert "top_p=0.5: tokens are sampled from another" in capsys.readouterr().err
