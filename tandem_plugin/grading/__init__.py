"""Verifiable rewards: does the last box of a response contain the right answer?

Model output is compared, never evaluated; computer algebra runs in worker processes with hard
limits on time and memory. Importing this package imports no computer algebra.
"""

from tandem_plugin.errors import GradingError
from tandem_plugin.grading.extraction import Extraction, extract_answer
from tandem_plugin.grading.grader import Grader, default_grader, grade, grade_batch
from tandem_plugin.grading.outcomes import OUTCOMES, Grade, GradingLimits, Outcome

__all__ = [
    "OUTCOMES",
    "Extraction",
    "Grade",
    "Grader",
    "GradingError",
    "GradingLimits",
    "Outcome",
    "default_grader",
    "extract_answer",
    "grade",
    "grade_batch",
]
