"""What a plan is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tandem_plugin.errors import ConfigError
from tandem_plugin.lab.planning.checkpoint import Checkpoint

__all__ = ["GIB", "OFFLOADS", "Offload", "User", "Wanted"]

GIB = 2**30

User = Literal["verl", "openrlhf", "rollout"]
"""Who runs the engine: a trainer on the same GPUs, or ``tandem rollout`` alone."""

Offload = Literal["none", "optimizer", "all"]
"""What of the training's states waits in the host's memory while the engine generates."""

OFFLOADS: tuple[Offload, ...] = get_args(Offload)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Models, machine and lengths. Raises :class:`ConfigError` for what cannot be together."""

    senior: Checkpoint
    junior: Checkpoint
    user: User
    nodes: int
    gpus: int
    """Machines, and GPUs of all of them together."""
    memory: int
    """Bytes of one GPU."""
    reserve: int
    """Bytes of one GPU that nothing here is planned into, of the engine's share as of the rest."""
    prompt: int
    response: int
    """The longest prompt and the longest response, in tokens."""
    batch: int
    mini_batch: int
    samples: int
    """Problems of a step and of an update, and responses to each."""
    drafts: int
    """Tokens that the junior drafts a round; 0 in lockstep."""
    requests: int
    """``max_num_seqs``."""
    batched_tokens: int
    """``max_num_batched_tokens``."""
    block_size: int
    width: int
    """Bytes of a value that the engine computes with."""
    reference: bool
    """Whether a reference model is needed: for a KL term."""
    tensor_parallel: int | None
    offload: Offload | None
    """None: the least that is enough."""
    kv_memory: int | None
    """Bytes of the KV cache on one GPU, where they are given and not worked out."""

    def __post_init__(self) -> None:
        if self.gpus % self.nodes:
            raise ConfigError(
                f"{self.gpus} GPUs do not divide over {self.nodes} machines: give as many to each."
            )
        given = self.tensor_parallel
        if given is not None and given not in self.groups():
            raise ConfigError(
                f"tensor_parallel={given} does not go with {self.gpus} GPUs, {self._heads()}: give "
                f"one of {', '.join(map(str, self.groups()))}."
            )
        if self.user != "rollout":
            self._check_training()
        for model in (self.senior, self.junior):
            if self.length > model.geometry.longest:
                raise ConfigError(
                    f"A prompt of {self.prompt:,} and a response of {self.response:,} tokens are "
                    f"more than the {model.geometry.longest:,} that {model.name!r} reads. Give a "
                    "shorter --prompt or --response."
                )
        if (self.senior.geometry.latent is None) != (self.junior.geometry.latent is None):
            raise ConfigError(
                f"{self.senior.name!r} and {self.junior.name!r} do not go together: one has latent "
                "attention (MLA), the other has not. Choose another junior."
            )

    @property
    def length(self) -> int:
        """The most tokens of one sequence: ``max_model_len``."""
        return self.prompt + self.response

    @property
    def held(self) -> int:
        """The most tokens of one sequence that the KV cache makes room for."""
        return self.length + self.drafts

    def groups(self) -> list[int]:
        """Over how many GPUs of one machine an engine can be spread."""
        heads = (self.senior.geometry.heads, self.junior.geometry.heads)
        here = self.gpus // self.nodes
        return [
            size
            for size in range(1, here + 1)
            if here % size == 0
            and all(number % size == 0 for number in heads)
            and all(_shares(model.geometry.kv_heads, size) for model in (self.senior, self.junior))
        ]

    def per_update(self) -> int:
        """Responses of one update on one GPU."""
        return self.mini_batch * self.samples // self.gpus

    def _heads(self) -> str:
        senior, junior = self.senior.geometry, self.junior.geometry
        return (
            f"{senior.heads} and {junior.heads} attention heads, {senior.kv_heads} and "
            f"{junior.kv_heads} KV heads"
        )

    def _check_training(self) -> None:
        if self.senior.stored is not None:
            raise ConfigError(
                f"{self.senior.name!r} is quantised and cannot be trained: give the checkpoint "
                "that it was made from."
            )
        responses = self.mini_batch * self.samples
        if responses % self.gpus:
            raise ConfigError(
                f"{self.mini_batch} problems with {self.samples} responses each are {responses} "
                f"responses an update, which do not divide over {self.gpus} GPUs. Change one of "
                "the three."
            )
        if self.batch % self.mini_batch:
            raise ConfigError(
                f"A step of {self.batch} problems does not divide into updates of "
                f"{self.mini_batch}. Give a multiple."
            )


def _shares(kv_heads: int, size: int) -> bool:
    return kv_heads % size == 0 or size % kv_heads == 0
