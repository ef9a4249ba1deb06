"""Settings next to TRL's checkpoints, compared when a training resumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from tandem_plugin.training.run import TandemRun
from tandem_trl.batch import TRLRun

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments
    from trl import GRPOTrainer

_STATE = "tandem"
"""The note's name in ``trainer_state.json``: TRL does not keep the folder of a checkpoint that a
training resumes, which may be any."""


def note_checkpoints(tandem: TRLRun, trainer: GRPOTrainer) -> None:
    """Compare a training with the one it resumes, and let every checkpoint say how it was made.

    trainer: a ``GRPOTrainer``, before its first rollout. Raises :class:`ConfigError` as
    :meth:`CheckpointNote.check_resumed` does.
    """
    notes = _Notes(tandem, str(trainer.model.name_or_path))
    notes.begin(trainer.args, trainer.state)
    trainer.add_callback(notes)


class _Notes(TrainerCallback):  # type: ignore[misc]
    """Writes the note into each checkpoint, and next to the model saved at the end."""

    def __init__(self, tandem: TandemRun, start: str) -> None:
        """start: the model that the senior starts from."""
        self._note = tandem.note(start)

    def begin(self, args: TrainingArguments, state: TrainerState) -> None:
        """Compare a training with the one it resumes; raises :class:`ConfigError` as that does."""
        states = state.stateful_callbacks
        if step := state.global_step:
            self._note.check_resumed(_resumed_folder(args, step), states.get(_STATE))
        states[_STATE] = asdict(self._note)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        if state.is_world_process_zero:
            self._note.write(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        if state.is_world_process_zero:
            self._note.write(args.output_dir)


class NotedCheckpoints(_Notes):
    """The same for a trainer that is not known before it begins, with the checks of its start."""

    has_begun = False

    def __init__(self, tandem: TandemRun, start: str, check: Callable[[Any, bool], None]) -> None:
        """check: called with the trainer's model, and whether it resumes a checkpoint."""
        super().__init__(tandem, start)
        self._check = check

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **options: Any,
    ) -> None:
        """Raises :class:`ConfigError` as the start of a run and a note's comparison do."""
        self._check(model, bool(state.global_step))
        self.begin(args, state)
        self.has_begun = True


def _resumed_folder(args: TrainingArguments, step: int) -> Path:
    """The checkpoint that a training resumes, which TRL does not keep: the named or the usual."""
    checkpoint = args.resume_from_checkpoint
    if isinstance(checkpoint, str) and Path(checkpoint).is_dir():
        return Path(checkpoint)
    return Path(args.output_dir) / f"checkpoint-{step}"
