"""Schedules: who writes each token. One schedule a file."""

from tandem_plugin.schedules.chunk import ChunkSchedule
from tandem_plugin.schedules.junior import JuniorSchedule
from tandem_plugin.schedules.parameters import (
    TRAINING_STEP,
    schedule_parameters,
    takes_training_step,
)
from tandem_plugin.schedules.schedule import Schedule, Tensor, WalkingSchedule
from tandem_plugin.schedules.sentence import SentenceSchedule
from tandem_plugin.schedules.solo import SoloSchedule
from tandem_plugin.schedules.solo_word import SoloWordSchedule
from tandem_plugin.schedules.step import StepSchedule
from tandem_plugin.schedules.step_bernoulli import StepBernoulliSchedule
from tandem_plugin.schedules.token import TokenSchedule
from tandem_plugin.schedules.word import WordSchedule

__all__ = [
    "TRAINING_STEP",
    "ChunkSchedule",
    "JuniorSchedule",
    "Schedule",
    "SentenceSchedule",
    "SoloSchedule",
    "SoloWordSchedule",
    "StepBernoulliSchedule",
    "StepSchedule",
    "Tensor",
    "TokenSchedule",
    "WalkingSchedule",
    "WordSchedule",
    "schedule_parameters",
    "takes_training_step",
]
