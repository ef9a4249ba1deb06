"""Schedules: who writes each token. One schedule per file."""

from tandem_plugin.lookup import Lookup
from tandem_plugin.schedules.bernoulli import (
    ChunkSchedule,
    SentenceSchedule,
    SoloWordSchedule,
    StepBernoulliSchedule,
    TokenSchedule,
    WordSchedule,
)
from tandem_plugin.schedules.parameters import (
    TRAINING_STEP,
    check_choice,
    check_count,
    check_index,
    check_probability,
    schedule_parameters,
    takes_training_step,
)
from tandem_plugin.schedules.schedule import Schedule, Tensor
from tandem_plugin.schedules.solo import JuniorSchedule, SoloSchedule, lets_junior_write
from tandem_plugin.schedules.step import StepSchedule

__all__ = [
    "TRAINING_STEP",
    "ChunkSchedule",
    "JuniorSchedule",
    "Lookup",
    "Schedule",
    "SentenceSchedule",
    "SoloSchedule",
    "SoloWordSchedule",
    "StepBernoulliSchedule",
    "StepSchedule",
    "Tensor",
    "TokenSchedule",
    "WordSchedule",
    "check_choice",
    "check_count",
    "check_index",
    "check_probability",
    "lets_junior_write",
    "schedule_parameters",
    "takes_training_step",
]
