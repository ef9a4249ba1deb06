"""Problem sets: read in the forms found in practice, prepared for trainers, checked for overlap."""

from tandem_plugin.data.named import NAMED_SETS, NamedSet, load_named, record_named
from tandem_plugin.data.overlap import Overlap, find_overlaps
from tandem_plugin.data.prepare import Prepared, prepare
from tandem_plugin.data.problem import BadRow, Problem, ProblemSet
from tandem_plugin.data.prompt import INSTRUCTION, PromptTemplate
from tandem_plugin.data.records import HubSource
from tandem_plugin.data.rows import read_problems
from tandem_plugin.errors import DataError

__all__ = [
    "INSTRUCTION",
    "NAMED_SETS",
    "BadRow",
    "DataError",
    "HubSource",
    "NamedSet",
    "Overlap",
    "Prepared",
    "Problem",
    "ProblemSet",
    "PromptTemplate",
    "find_overlaps",
    "load_named",
    "prepare",
    "read_problems",
    "record_named",
]
