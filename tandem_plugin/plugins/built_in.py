"""The plugin that tandem-plugin brings itself: its own schedules and boundary resolvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.boundaries.every import every_boundary
from tandem_plugin.boundaries.newline import newline_boundaries
from tandem_plugin.boundaries.sentence import sentence_boundaries
from tandem_plugin.boundaries.step import step_boundaries
from tandem_plugin.boundaries.word import word_boundaries
from tandem_plugin.plugins.hookspecs import hookimpl
from tandem_plugin.schedules.chunk import ChunkSchedule
from tandem_plugin.schedules.handover import HandoverSchedule
from tandem_plugin.schedules.junior import JuniorSchedule
from tandem_plugin.schedules.sentence import SentenceSchedule
from tandem_plugin.schedules.solo import SoloSchedule
from tandem_plugin.schedules.step import StepSchedule
from tandem_plugin.schedules.step_bernoulli import StepBernoulliSchedule
from tandem_plugin.schedules.token import TokenSchedule
from tandem_plugin.schedules.word import WordSchedule

__all__ = ["register_boundaries", "register_schedules"]


@hookimpl
def register_schedules(register: Callable[[type[Any]], None]) -> None:
    register(WordSchedule)
    register(TokenSchedule)
    register(ChunkSchedule)
    register(SentenceSchedule)
    register(StepSchedule)
    register(StepBernoulliSchedule)
    register(HandoverSchedule)
    register(SoloSchedule)
    register(JuniorSchedule)


@hookimpl
def register_boundaries(register: Callable[[str, Callable[..., Any]], None]) -> None:
    register("word", word_boundaries)
    register("sentence", sentence_boundaries)
    register("step", step_boundaries)
    register("newline", newline_boundaries)
    register("every", every_boundary)
