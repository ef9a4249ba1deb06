"""Problem sets: read in common formats, prepared for trainers."""

from tandem_plugin.errors import DataError
from tandem_plugin.lab.data.layouts import Layout, layout_of
from tandem_plugin.lab.data.named import NAMED_SETS
from tandem_plugin.lab.data.preparation import Prepared, prepare
from tandem_plugin.lab.data.problem import (
    INSTRUCTION,
    BadRow,
    Problem,
    ProblemSet,
    PromptTemplate,
)
from tandem_plugin.lab.data.records import HubSource
from tandem_plugin.lab.data.sources import load_named, read_problems

__all__ = [
    "INSTRUCTION",
    "NAMED_SETS",
    "BadRow",
    "DataError",
    "HubSource",
    "Layout",
    "Prepared",
    "Problem",
    "ProblemSet",
    "PromptTemplate",
    "layout_of",
    "load_named",
    "prepare",
    "read_problems",
]
