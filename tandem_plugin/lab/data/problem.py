"""One problem of a set, and how it is presented to a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tandem_plugin.errors import DataError
from tandem_plugin.lab.data.instructions import says_how_to_answer
from tandem_plugin.lab.data.pictures import PLACE, Picture

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
"""Requests a final answer in a box; the paper does so without giving the wording."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which a text can hold, and which no tokenizer takes."""
_PLACES = ("problem", "instruction")
_PLACE = re.compile(r"\{(problem|instruction)\}")

_NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})

Message = dict[str, str]
"""A chat turn: ``role`` and ``content``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and all of its correct answers."""

    row: int
    """The row of its source, counted from 1; the line of a JSONL file."""
    messages: tuple[Message, ...]
    """The chat of its source, without an added instruction."""
    golds: tuple[str, ...]
    """Never empty, unless the reader allows missing answers."""
    raw: str | None = None
    """The text as its row has it, white space included; None for a chat."""
    images: tuple[Picture, ...] = ()
    """One for each :data:`~tandem_plugin.lab.data.pictures.PLACE` in the turns, in their order.
    Without images, that is text."""

    @property
    def text(self) -> str:
        """The text of the last turn."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is not a valid problem."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where problems are from."""

    source: str
    """As a user names it; of a file its name alone."""
    files: Mapping[Path, str] = field(default_factory=dict)
    """The files that were read, with their SHA-256."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """The fields that a user named, or the function that made rows of the records."""

    def record(self) -> dict[str, Any]:
        """What a manifest notes: equal for equal files, wherever they are."""
        digests = {file.name: digest for file, digest in self.files.items()}
        return {"name": self.source, "sha256": digests, **self.layout}


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """The problems of one source, in order, and its invalid rows."""

    name: str
    problems: tuple[Problem, ...]
    bad_rows: tuple[BadRow, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    """The fields that no prompt and no gold has, and in how many problems they stand."""
    origin: Origin | None = None

    def __len__(self) -> int:
        return len(self.problems)

    def unread_note(self) -> str | None:
        """A line that counts and names the fields that are not read, if there are any."""
        counts = [f"{name} ({rows:,} rows)" for name, rows in self.unread.items()]
        ellipsis = f" and {len(counts) - 10:,} more" if len(counts) > 10 else ""
        return f"not in the prompts: {', '.join(counts[:10])}{ellipsis}" if counts else None


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The prompt around a problem.

    Raises :class:`DataError` for a template without ``{problem}``, without ``{instruction}`` where
    there is an instruction, or with an unknown name in braces.
    """

    template: str = "{problem}\n{instruction}"
    """The template of the user's turn, with ``{problem}`` and ``{instruction}``."""
    instruction: str = INSTRUCTION
    system: str | None = None
    """A system turn to put first; None keeps the problem's own."""
    always: bool = False
    """Whether to add the instruction even if the problem's turns say how to answer, and to keep the
    text's white space. A problem that already has this instruction never gets it twice."""

    def __post_init__(self) -> None:
        for text in (self.template, self.instruction, self.system or ""):
            if SURROGATE.search(text):
                raise DataError("text-lone-surrogate", text=text)
        if "{problem}" not in self.template:
            raise DataError("template-without-problem", template=self.template)
        for name in _names(self.template):
            if name not in _PLACES:
                raise DataError.misspelt(
                    "template-name-unknown", name, _PLACES, template=self.template, name=name
                )
        if self.instruction.strip() and "{instruction}" not in self.template:
            raise DataError(
                "template-without-instruction",
                template=self.template,
                instruction=self.instruction,
            )

    def messages(self, problem: Problem) -> list[Message]:
        """The problem as a chat.

        A problem whose turns say how to answer keeps them unchanged.
        """
        *before, last = [dict(turn) for turn in problem.messages]
        if self.system is not None:
            before = [turn for turn in before if turn["role"] != "system"]
            before.insert(0, {"role": "system", "content": self.system})
        text = last["content"]
        if self.always:
            if self.instruction not in text:
                last["content"] = self._filled(text if problem.raw is None else problem.raw)
        elif not any(says_how_to_answer(turn["content"]) for turn in [*before, last]):
            last["content"] = self._filled(text).strip()
        return [*before, last]

    def _filled(self, problem: str) -> str:
        """The template around a problem; braces within what is put in stay."""
        parts = {"problem": problem, "instruction": self.instruction}
        return _PLACE.sub(lambda match: parts[match[1]], self.template)


_TEX = re.compile(r"(?:\\[A-Za-z]+\s*|[\^_])(?:\[\w*\])?(?:\{\w*\})+")
"""A command with its arguments."""


def _names(template: str) -> list[str]:
    """The names in a template's braces, without the arguments of TeX commands."""
    return re.findall(r"\{(\w+)\}", _TEX.sub("", template))


def with_parts(messages: Sequence[Message], images: bool) -> list[dict[str, Any]]:
    """A chat of texts as processors and TRL take it: each turn's content in parts.

    images: whether it has images, so that :data:`PLACE` stands for one.
    """
    return [{**turn, "content": _parts(turn["content"], images)} for turn in messages]


def _parts(text: str, images: bool) -> list[dict[str, str]]:
    pieces = re.split(f"({re.escape(PLACE)})", text) if images else [text]
    return [
        {"type": "image"} if images and piece == PLACE else {"type": "text", "text": piece}
        for piece in pieces
        if piece
    ]


def prompt_ids(
    messages: Sequence[Message],
    tokenizer: Any,
    template_args: Mapping[str, Any] = _NO_ARGUMENTS,
    has_images: bool = False,
) -> list[int]:
    """The token ids of a chat as the model's input, with one placeholder for each image.

    tokenizer: a Hugging Face tokenizer. One without a chat template belongs to a base model, which
    continues the turns as one text. template_args: the chat template's further arguments.
    has_images: whether :data:`PLACE` in a turn is an image. Raises :class:`DataError` for a prompt
    that the chat template cannot render, and for images without one.
    """
    if has_images:
        if not has_template(tokenizer, template_args):
            raise DataError("image-prompt-without-template")
        messages = with_parts(messages, images=True)
    if has_template(tokenizer, template_args):
        return list(rendered(messages, tokenizer, template_args, return_dict=False))
    return list(tokenizer.encode("\n\n".join(turn["content"] for turn in messages)))


def rendered(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    template_args: Mapping[str, Any],
    **form: Any,
) -> Any:
    """A chat in the chat template, up to the answer; :class:`DataError` if it cannot be rendered.

    form: what ``apply_chat_template`` returns.
    """
    try:
        return tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, **form, **template_args
        )
    except Exception as error:  # a template's own, for roles or arguments that it does not take
        raise DataError(
            "chat-template-failed", error_type=type(error).__name__, error=error
        ) from error


def has_template(tokenizer: Any, template_args: Mapping[str, Any] = _NO_ARGUMENTS) -> bool:
    """Whether prompts are rendered by a chat template: the tokenizer's, or one among these."""
    return bool(template_args.get("chat_template") or getattr(tokenizer, "chat_template", None))


def template_names(tokenizer: Any, template_args: Mapping[str, Any]) -> set[str]:
    """The names of the arguments that the chat template uses."""
    if not has_template(tokenizer, template_args):
        return set()
    template = template_args.get("chat_template") or tokenizer.chat_template
    templates = template.values() if isinstance(template, Mapping) else [template]
    return {"chat_template"}.union(*map(_variables, templates))


def _variables(template: str) -> set[str]:
    """The names that a chat template takes from outside; all of its words if it cannot be parsed.

    Hugging Face's templates may have an additional tag, ``generation``, which marks the answer.
    """
    from jinja2 import Environment, TemplateError, meta

    plain = re.sub(r"{%-?\s*(end)?generation\s*-?%}", "", template)
    try:
        return meta.find_undeclared_variables(
            Environment(extensions=["jinja2.ext.loopcontrols"]).parse(plain)
        )
    except TemplateError:
        return set(re.findall(r"\w+", template))
