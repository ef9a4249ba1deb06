"""What an evaluation is given: models and benchmarks, each with its name in results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files.checkpoints import check_model, checkpoint_folder, mark_checkpoint
from tandem_plugin.lab.data import Layout, Problem, PromptTemplate, read_problems
from tandem_plugin.lab.data.generated import PREFIX
from tandem_plugin.lab.data.instructions import asks_for_no_box, without_box_note
from tandem_plugin.lab.data.named import NAMED_SETS, is_named
from tandem_plugin.lab.data.preparation import checksum, written_template
from tandem_plugin.lab.data.sources import takes_layout

_UNCHANGED = PromptTemplate("{problem}", instruction="", always=True)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Problems, in order, and their prompts."""

    name: str
    problems: tuple[Problem, ...]
    template: PromptTemplate
    written: PromptTemplate | None = None
    """The template of prompts that ``tandem data prepare`` wrote; nothing is added to these."""
    unread: str | None = None
    """A note on the fields that no prompt uses; see :meth:`ProblemSet.unread_note`."""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the tokenizer's chat template."""

    def notes(self) -> Iterator[str]:
        """What should be known of its prompts."""
        chats = (self.template.messages(problem) for problem in self.problems)
        notes = [self.unread, without_box_note(sum(map(asks_for_no_box, chats)))]
        return (f"{self.name}: {note}" for note in notes if note)

    @property
    def images(self) -> int:
        """Of all problems."""
        return sum(len(problem.images) for problem in self.problems)

    def settings(self) -> dict[str, Any]:
        """Its record in a result."""
        return {
            "problems": len(self.problems),
            "sha256": checksum(self.problems)[:16],
            "template": self.template.template,
            "instruction": self.template.instruction,
            "system": self.template.system,
            **({"images": self.images} if self.images else {}),
            **({"always": True} if self.template.always else {}),
            **({"template_args": dict(self.template_args)} if self.template_args else {}),
        }

    def questions(self) -> list[dict[str, Any]]:
        """The messages and golds of each problem, and its images if it has any."""
        return [
            {
                "messages": self.template.messages(problem),
                "golds": list(problem.golds),
                **({"images": problem.images} if problem.images else {}),
            }
            for problem in self.problems
        ]


def read_benchmark(
    argument: str, template: PromptTemplate | None = None, layout: Layout | None = None
) -> Benchmark:
    """A benchmark from ``NAME=SOURCE``, ``SOURCE``, or the name of a named set.

    SOURCE is a source of :func:`tandem_plugin.lab.data.read_problems`, or the name of a set. A file
    that `tandem data prepare` wrote keeps its prompts, which are those of the training, whatever
    the template. layout: how the rows of a source that is no named set are read. Raises
    :class:`EvaluationError` for an unusable name or a set that is the
    training split of a different named set, and :class:`DataError` for an unusable source.
    """
    name, source = named_source(argument)
    if is_named(source):
        named_set = NAMED_SETS[source]
        if named_set.evaluate_on:
            home = named_set.homes[0]
            raise EvaluationError(
                "evaluation-on-training-split", source=source, test=named_set.evaluate_on, home=home
            )
    chosen_layout = layout if layout and takes_layout(source) else Layout()
    problems = read_problems(source, layout=chosen_layout)
    chosen = checked_name(name or problems.name, "benchmark")
    written = written_template(Path(source))
    chosen_template = _UNCHANGED if written else template or PromptTemplate()
    return Benchmark(chosen, problems.problems, chosen_template, written, problems.unread_note())


def named_source(argument: str) -> tuple[str, str]:
    """The name, which may be empty, and the source of ``NAME=SOURCE`` or ``SOURCE``."""
    name, _, source = argument.partition("=")
    if not source or argument.startswith(PREFIX):  # whose settings contain =
        return "", argument
    return name, source


def checked_name(name: str, of: str) -> str:
    """A name that can be a folder and a heading; raises :class:`EvaluationError` for others."""
    if not _NAME.fullmatch(name):
        raise EvaluationError("evaluation-name-invalid", name=name, of=of)
    return name


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One model. Its fingerprint depends neither on its name nor on its location."""

    name: str
    path: str
    fingerprint: str


def find_checkpoint(argument: str) -> Checkpoint:
    """A model from ``NAME=PATH``, a folder, or a name on the Hugging Face Hub, or name@commit.

    The default name is the folder's. Raises :class:`EvaluationError` or :class:`ConfigError`
    if there is no model.
    """
    name, path = named_path(argument)
    revision = None
    if not Path(path).is_dir():
        path, _, revision = path.partition("@")
        check_model(path, "model")
    resolved = checkpoint_folder(path, revision or None).resolve()
    return Checkpoint(checked_name(name, "model"), str(resolved), fingerprint_folder(resolved))


def named_path(argument: str) -> tuple[str, str]:
    """The name and the place of ``NAME=PATH``; a path alone is called by its last part."""
    name, equals, path = argument.partition("=")
    return (name, path) if equals else (Path(argument).name, argument)


def fingerprint_folder(folder: Path) -> str:
    """The fingerprint of a checkpoint's folder: see :func:`mark_checkpoint`.

    Raises :class:`EvaluationError` for a folder without a ``config.json`` or weights.
    """
    names = [file.name for file in folder.iterdir()]
    if "config.json" not in names or not any(n.endswith((".safetensors", ".bin")) for n in names):
        raise EvaluationError("evaluation-not-checkpoint", folder=folder)
    return mark_checkpoint(folder)


def pieces_of(path: str) -> tuple[str, ...]:
    """The vocabulary of a model: the piece of every token id."""
    return Vocabulary.from_path(path).pieces
