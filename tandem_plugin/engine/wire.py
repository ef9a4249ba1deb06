"""What crosses processes: names that one process writes and a second looks up, and counters.

Trainers read these without torch and without vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PREFIX = "Tandem"
"""Prefix of an architecture's name in tandem: ``TandemQwen3ForCausalLM``."""

SPECULATIVE_PREFIX = PREFIX + "Speculative"
"""The same in the speculative mode."""

COMPOSITE = "tandem_plugin.engine.composite"
"""The module that has the class of each architecture, for both modes, under its name."""

AUTHORS_PROCESSOR = "tandem_plugin.engine.runners.v1.processor:AuthorsLogitsProcessor"
"""The binding to Model Runner V1: vLLM loads it in the worker."""

RPC_DRAFT_STATS = "tandem_draft_stats"
"""The ``collective_rpc`` method for a speculative engine's draft counters."""

RPC_MEASURES = "tandem_measures"
"""The ``collective_rpc`` method for the sums that an engine's workers measured."""

RPC_TOKEN_SCORES = "tandem_token_scores"
"""The same for the scores of the tokens of requests, by request name."""

RPC_ENDS = "tandem_ends"
"""The same for the junior's token ids that end a response besides the senior's."""

TOKEN_LOG_NAME = "tandem_token_log"
"""In a request's ``extra_args``: the name under which its tokens' scores are kept."""


def without_prefix(architecture: str) -> str:
    """An architecture's plain name, from that of its tandem form as well."""
    return architecture.removeprefix(SPECULATIVE_PREFIX).removeprefix(PREFIX)


def asks_for_tandem(additional_config: Any) -> bool:
    """Whether an engine's ``additional_config`` enables tandem.

    vLLM accepts any object there, and other plugins may use it too.
    """
    return isinstance(additional_config, Mapping) and "tandem" in additional_config


def chooses_drafts(additional_config: Any) -> bool:
    """Whether an engine's ``additional_config`` lets it choose its numbers of drafts at startup."""
    if not asks_for_tandem(additional_config):
        return False
    settings = additional_config["tandem"]
    return isinstance(settings, Mapping) and settings.get("drafts") == "auto"


@dataclass(frozen=True, slots=True)
class DraftStats:
    """The outcomes of a request's or an engine's drafts, for tandem requests only."""

    rounds: int = 0
    """Forward passes of the senior over a request's drafts."""
    drafts: int = 0
    """Tokens that the junior drafted for these rounds."""
    tokens: int = 0
    """Tokens that these rounds wrote."""
    senior_drafts: int = 0
    """Drafts verified as the senior's tokens, up to each round's first rejection."""
    senior_accepted: int = 0
    """The accepted ones among them."""
    junior_drafts: int = 0
    """Drafts kept because the junior is their author."""

    @property
    def acceptance(self) -> float:
        """The accepted share of the drafts verified as the senior's tokens; NaN without drafts."""
        return self.senior_accepted / self.senior_drafts if self.senior_drafts else float("nan")

    @property
    def tokens_per_round(self) -> float:
        """Tokens per forward pass of the senior; NaN without rounds."""
        return self.tokens / self.rounds if self.rounds else float("nan")

    @property
    def forwards_per_token(self) -> float:
        """Forward passes of both models per token; NaN without tokens.

        Prompts, and rounds that write a token without drafts, are excluded.
        """
        return (self.rounds + self.drafts) / self.tokens if self.tokens else float("nan")

    def since(self, earlier: DraftStats) -> DraftStats:
        """The increase over an engine's earlier counters; all of them after a restart."""
        increases = {name: count - getattr(earlier, name) for name, count in self.to_row().items()}
        return self if min(increases.values()) < 0 else DraftStats(**increases)

    def __add__(self, addend: DraftStats) -> DraftStats:
        return DraftStats(**{name: n + getattr(addend, name) for name, n in self.to_row().items()})

    def to_row(self) -> dict[str, int]:
        """The counters, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class MeasureSums:
    """Sums over the tokens of the measured steps, for tandem requests only; in nats.

    They use both models' own distributions at temperature 1, before temperature, nucleus, penalties
    and masks, as ``tandem eval legibility`` does.
    """

    senior_tokens: float = 0.0
    """Measured tokens that the senior wrote."""
    junior_cross_entropy: float = 0.0
    """The sum of the junior's -log p over these."""
    overlap: float = 0.0
    """The sum of alpha over these: the sum over the vocabulary of the smaller probability."""
    senior_entropy: float = 0.0
    """The sum of the senior's own entropy over these."""
    kl_to_junior: float = 0.0
    """The sum of KL(senior || junior) over these."""
    junior_tokens: float = 0.0
    """Measured tokens that the junior wrote."""
    senior_cross_entropy: float = 0.0
    """The sum of the senior's -log p over these."""

    def means(self) -> dict[str, float]:
        """Each sum per token of its author, by its name; a mean over zero tokens is omitted."""
        names = ("junior_cross_entropy", "overlap", "senior_entropy", "kl_to_junior")
        sums = {name: (getattr(self, name), self.senior_tokens) for name in names}
        sums["senior_cross_entropy"] = self.senior_cross_entropy, self.junior_tokens
        return {name: total / tokens for name, (total, tokens) in sums.items() if tokens}

    def since(self, earlier: MeasureSums) -> MeasureSums:
        """The increase over an engine's earlier sums; everything if the engine was restarted."""
        increases = {name: total - getattr(earlier, name) for name, total in self.to_row().items()}
        fewer = min(increases["senior_tokens"], increases["junior_tokens"]) < 0
        return self if fewer else MeasureSums(**increases)

    def __add__(self, addend: MeasureSums) -> MeasureSums:
        return MeasureSums(**{name: x + getattr(addend, name) for name, x in self.to_row().items()})

    def to_row(self) -> dict[str, float]:
        """The sums, for JSON."""
        return asdict(self)
