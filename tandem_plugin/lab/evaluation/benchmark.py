"""A benchmark of an evaluation: a problem set with its name in results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.data import Problem, PromptTemplate, read_problems
from tandem_plugin.lab.data.generated import is_generated_source
from tandem_plugin.lab.data.named import NAMED_SETS, is_named, load_named
from tandem_plugin.lab.data.prepare import checksum, is_prepared

__all__ = ["Benchmark", "checked_name", "read_benchmark"]

_UNCHANGED = PromptTemplate("{problem}", instruction="", always=True)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Problems, in order, and their prompts."""

    name: str
    problems: tuple[Problem, ...]
    template: PromptTemplate

    def settings(self) -> dict[str, Any]:
        """Its record in a result."""
        return {
            "problems": len(self.problems),
            "sha256": checksum(self.problems)[:16],
            "template": self.template.template,
            "instruction": self.template.instruction,
            "system": self.template.system,
            **({"always": True} if self.template.always else {}),
        }

    def questions(self) -> list[dict[str, Any]]:
        """The messages and golds of each problem."""
        return [
            {"messages": self.template.messages(problem), "golds": list(problem.golds)}
            for problem in self.problems
        ]


def read_benchmark(given: str, template: PromptTemplate | None = None) -> Benchmark:
    """A benchmark from ``NAME=SOURCE``, ``SOURCE``, or the name of a named set.

    SOURCE is a source of :func:`tandem_plugin.lab.data.read_problems`, or the name of a set. A file
    that `tandem data prepare` wrote keeps its prompts, which are those of the training, unless
    there is a template. Raises :class:`EvaluationError` for an unusable name or a set that is the
    training split of another named set, and :class:`DataError` for an unusable source.
    """
    name, _, source = given.partition("=")
    if not source or is_generated_source(given):  # whose settings contain =
        name, source = "", given
    if is_named(source):
        known = NAMED_SETS[source]
        if known.evaluate_on:
            home = known.homes[0]
            raise EvaluationError("TP821", source=source, test=known.evaluate_on, home=home)
        problems = load_named(source)
    else:
        problems = read_problems(source)
    chosen = checked_name(name or problems.name, "benchmark")
    usual = _UNCHANGED if is_prepared(Path(source)) else PromptTemplate()
    return Benchmark(chosen, problems.problems, template or usual)


def checked_name(name: str, of: str) -> str:
    """A name that can be a folder and a heading; raises :class:`EvaluationError` for another."""
    if not _NAME.fullmatch(name):
        raise EvaluationError("TP822", name=name, of=of)
    return name
