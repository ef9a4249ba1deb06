"""Options that several commands take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from tandem_plugin.errors import ConfigError, did_you_mean
from tandem_plugin.lab.protocols import defaults
from tandem_plugin.plugins.selection import parameter_names
from tandem_plugin.terminal.arguments import assignments

SCHEDULES = "word, token, sentence, chunk, step, step-bernoulli, handover, solo, solo-word, junior"
"""The built-in schedules, as the help of options lists them."""
RESOLVERS = "word, word-any, sentence, step, newline, every"
"""The built-in boundary resolvers."""


def complete_schedule(incomplete: str) -> list[str]:
    """The schedules that begin so, plugins' included, for a shell's completion."""
    return _registered("schedule", incomplete)


def complete_boundaries(incomplete: str) -> list[str]:
    """The boundary resolvers that begin so, plugins' included, for a shell's completion."""
    return _registered("boundaries", incomplete)


def _registered(kind: str, incomplete: str) -> list[str]:
    from tandem_plugin.plugins.loading import catalogue

    names = (
        registration.name for registration in catalogue().registrations if registration.kind == kind
    )
    return [name for name in names if name.startswith(incomplete)]


def complete_problems(incomplete: str) -> list[str]:
    """The named sets of problems that begin so; a shell completes files itself."""
    from tandem_plugin.lab.data.named import NAMED_SETS

    return [name for name in NAMED_SETS if incomplete and name.startswith(incomplete)]


FieldsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="PART=FIELD",
        help="Where the rows have a part of the problem: problem, messages, answer, choices or "
        "images, as in problem=question or answer=meta.final. Can be repeated.",
    ),
]
MapOption = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="FILE:FUNCTION",
        help="A Python function from a row to its parts, for what --field cannot say: a dict with "
        "problem or messages, answer, and choices and images if it has any; None leaves the row "
        "out.",
    ),
]


def _take_protocol(ctx: typer.Context, name: str | None) -> str | None:
    """The protocol's settings become the defaults of the other options."""
    if name is not None:
        ctx.default_map = defaults(name)
    return name


ProtocolOption = Annotated[
    Literal["paper", "paper-code", "release"] | None,
    typer.Option(
        "--protocol",
        is_eager=True,
        callback=_take_protocol,
        help="Use the settings of the paper's text, of its code at the time (f0ae0b9) or of its "
        "release (7ba85e0) as defaults. Options given explicitly override them. The output records "
        "both.",
    ),
]


def _take_path(argument: str | None) -> str | None:
    """Of ``NAME=PATH``, as in ``tandem eval``, the path: one senior or junior needs no name."""
    name, equals, path = (argument or "").partition("=")
    return (
        path
        if equals and name and "/" not in name and not os.path.exists(argument or "")
        else argument
    )


SeniorOption = Annotated[
    str,
    typer.Option(
        metavar="[NAME=]PATH",
        callback=_take_path,
        help="The senior: a checkpoint folder or a name on the Hub.",
    ),
]
JuniorOption = Annotated[
    str | None,
    typer.Option(
        metavar="[NAME=]PATH",
        callback=_take_path,
        help="The junior: a checkpoint folder or a name on the Hub. Default: the senior's own "
        "checkpoint.",
    ),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A vLLM engine argument, such as max_model_len=4096. Can be repeated.",
    ),
]
MOST_SAMPLES = 10**6
"""As in the schema of results."""
_MOST = 2**31 - 1
"""The largest number of tokens: the engine's are 32 bits wide."""

TemplateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--template-arg",
        metavar="NAME=VALUE",
        help="An argument of the senior's chat template, such as enable_thinking=false: the same "
        "as in training. Can be repeated.",
    ),
]
SamplesOption = Annotated[
    int,
    typer.Option(
        "--samples", "--n", min=1, max=MOST_SAMPLES, help="Number of responses per problem."
    ),
]
TemperatureOption = Annotated[float, typer.Option(min=0, max=1000, help="Sampling temperature.")]
TopPOption = Annotated[float, typer.Option(min=0, max=1, help="Nucleus sampling threshold.")]
TopKOption = Annotated[
    int | None,
    typer.Option(min=1, max=_MOST, help="Sample from the k most likely tokens. Default: all."),
]
TeamTemperatureOption = Annotated[
    float | None,
    typer.Option(min=0, max=1000, help="Sampling temperature of a team. Default: --temperature."),
]
TeamTopPOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Nucleus sampling threshold of a team. Default: --top-p."),
]
TeamTopKOption = Annotated[
    int | None,
    typer.Option(
        min=0, max=_MOST, help="As --top-k, of a team; 0 samples from all. Default: --top-k."
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=_MOST,
        help="Maximum number of tokens of a prompt with its response: a long prompt shortens its "
        "responses. Default: no limit but --max-tokens.",
    ),
]
MaxTokensOption = Annotated[
    int, typer.Option(min=1, max=_MOST, help="Maximum number of tokens per response.")
]
SeedOption = Annotated[
    int, typer.Option(min=0, help="Seed for the authors and for the sampled tokens.")
]
OverOption = Annotated[
    Literal["problems", "positions", "responses"],
    typer.Option(
        "--legibility-over",
        help="How to average a benchmark's cross-entropy and overlap: over problems "
        "(each the mean over its positions), over all positions at once, or over "
        "responses (each the mean over its positions).",
    ),
]


def engine_arguments(options: Sequence[str] | None) -> dict[str, Any]:
    """The engine's arguments by name; :class:`ConfigError` for one that has its own option."""
    arguments: dict[str, Any] = {}
    for written, value in assignments("--engine", options or ()).items():
        name = written.replace("-", "_")
        if name in arguments:
            raise ConfigError("option-set-twice", option="--engine", name=name)
        arguments[name] = value
    for name in ("model", "additional_config", "tandem", "seed"):
        if name in arguments:
            raise ConfigError("engine-argument-unknown", name=name)
    return arguments


_TAKEN = (
    "mode",
    "drafts",
    "junior_quantization",
    "junior_stream",
    "measure_every",
    "partner_logprobs",
    "record",
    "junior_name",
    "unproven",
)
"""The settings of tandem that take effect in an engine of a command and have no option there."""


def tandem_settings(
    ctx: typer.Context,
    arguments: Sequence[str],
    schedules: Sequence[str],
    taken: Sequence[str] = _TAKEN,
) -> dict[str, Any]:
    """The settings of ``--set``: parameters of all the schedules, and those that take effect.

    Raises :class:`ConfigError` for any other name, which names the nearest one or the option that
    sets the same; and for ``TANDEM_CONFIG``, which has no effect on a command.
    """
    if os.environ.get("TANDEM_CONFIG", "").strip():
        raise ConfigError("variable-without-effect")
    settings = assignments("--set", arguments)
    options = {str(option.name): option.opts[0] for option in ctx.command.params}
    for schedule in schedules:
        names = [*parameter_names(schedule), *taken]
        for name, value in settings.items():
            if name in names:
                continue
            if name in options:
                raise ConfigError("set-is-an-option", name=name, value=value, option=options[name])
            suggestion = did_you_mean(name, names) or did_you_mean(name, options.values())
            raise ConfigError(
                "set-name-unknown",
                name=name,
                schedule=schedule,
                meant=suggestion,
                known=", ".join(names),
            )
    return settings


_RENDERING = {
    *("messages", "conversation", "tokenize", "add_generation_prompt", "continue_final_message"),
    *("padding", "truncation", "max_length", "return_tensors", "return_dict"),
    *("return_assistant_tokens_mask", "tokenizer_kwargs"),
}
"""Parameters of ``apply_chat_template`` that are none of the template's."""


def template_arguments(options: Sequence[str] | None) -> dict[str, Any]:
    """The chat template's arguments by name; :class:`ConfigError` for one of its rendering."""
    arguments = assignments("--template-arg", options or ())
    for name in arguments:
        if name in _RENDERING:
            raise ConfigError("template-argument-unknown", name=name)
    return arguments
