"""Problem sets: read in common formats, prepared for trainers."""

from tandem_plugin.errors import DataError
from tandem_plugin.lab.data.named import NAMED_SETS, load_named
from tandem_plugin.lab.data.preparation import Prepared, prepare
from tandem_plugin.lab.data.problem import (
    INSTRUCTION,
    BadRow,
    Problem,
    ProblemSet,
    PromptTemplate,
)
from tandem_plugin.lab.data.records import HubSource
from tandem_plugin.lab.data.rows import read_problems

__all__ = [
    "INSTRUCTION",
    "NAMED_SETS",
    "BadRow",
    "DataError",
    "HubSource",
    "Prepared",
    "Problem",
    "ProblemSet",
    "PromptTemplate",
    "load_named",
    "prepare",
    "read_problems",
]
