"""The plan: how GPUs are divided between engine and training, and what fits then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem_plugin.lab.planning.engine import EngineMemory, engine_memory, kv_cache
from tandem_plugin.lab.planning.kv_cache import KvCache
from tandem_plugin.lab.planning.training import TrainingMemory, training_memory
from tandem_plugin.lab.planning.wanted import GIB, OFFLOADS, Offload, Wanted

__all__ = ["Plan", "make_plan"]

_ENOUGH = 32
"""Responses that an engine should hold at once: with fewer, reading weights is paid for too few."""
_MOST = 90
"""The most of a GPU's memory that an engine is given, in percent."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One division of the GPUs, with what fits into it."""

    wanted: Wanted
    tensor_parallel: int
    offload: Offload
    engine: EngineMemory
    training: TrainingMemory | None
    utilization: float
    """``gpu_memory_utilization``; 0 where nothing is left for an engine."""
    kv: KvCache
    left: int
    """Bytes of one GPU for the KV cache; negative where it is overdrawn."""
    tokens: int
    """The most tokens of a micro-batch on one GPU; 0 without training."""

    @property
    def engines(self) -> int:
        """Engines beside each other."""
        return 1 if self.wanted.user == "rollout" else self.wanted.gpus // self.tensor_parallel

    @property
    def blocks(self) -> int:
        """Blocks of the KV cache."""
        return self.kv.blocks(self.left)

    @property
    def requests(self) -> int:
        """Responses that each engine writes in a step."""
        return -(-self.wanted.batch * self.wanted.samples // self.engines)

    @property
    def at_once(self) -> int:
        """Responses of full length that each engine holds at once, were more asked for as well."""
        return self.kv.responses(self.blocks, self.wanted.held)

    @property
    def micro_batch(self) -> int:
        """Responses of a micro-batch on one GPU: the most that fit and divide an update's."""
        fit = self.tokens // self.wanted.length
        whole = self.wanted.per_update()
        return max((n for n in range(1, min(fit, whole) + 1) if whole % n == 0), default=0)

    @property
    def longest(self) -> int:
        """The most tokens of prompt and response with one response at a time, here as there."""
        wanted = self.wanted
        found = self.kv.longest(self.blocks, 1) - wanted.drafts
        if self.training is not None:
            found = min(found, self.tokens)
        both = (wanted.senior.geometry.longest, wanted.junior.geometry.longest)
        return max(0, min(found, *both))

    @property
    def longest_of_all(self) -> int:
        """The same with all of a step's responses held at once."""
        together = min(self.requests, self.wanted.requests)
        return max(
            0, min(self.longest, self.kv.longest(self.blocks, together) - self.wanted.drafts)
        )

    @property
    def lacks(self) -> tuple[str, ...]:
        """Why it does not fit, in sentences; empty where it does."""
        reasons = []
        length = f"{self.wanted.length:,} tokens"
        if self.at_once < 1:
            reasons.append(
                f"The KV cache does not hold one sequence of {length}: beside "
                f"{self.engine.total / GIB:.1f} GiB for the engine's models and activations, "
                f"{max(0, self.left) / GIB:.1f} GiB of a GPU are left."
            )
        if self.training is not None and self.micro_batch < 1:
            needed = self.training.update.total + self.training.gathered
            needed += self.wanted.reserve + self.wanted.length * self.training.per_token
            reasons.append(
                f"An update with one sequence of {length} needs {needed / GIB:.1f} GiB of a GPU's "
                f"{self.wanted.memory / GIB:.1f}."
            )
        if self.training is not None and self.sync > self.wanted.memory:
            reasons.append(
                f"A weight sync needs {self.sync / GIB:.1f} GiB of a GPU's "
                f"{self.wanted.memory / GIB:.1f}: training's states and both models are there "
                "together."
            )
        return tuple(reasons)

    @property
    def host(self) -> int:
        """Bytes of the host's memory for each GPU: states, and what an engine that sleeps leaves.

        The junior is copied there at the first sleep; OpenRLHF's sleep keeps the senior too.
        """
        if self.training is None:
            return 0
        senior = self.engine.senior if self.wanted.user == "openrlhf" else 0
        return self.training.host + self.engine.junior + senior

    @property
    def sync(self) -> int:
        """Bytes of one GPU while weights are sent to the engine, whose KV cache is not there."""
        if self.training is None:
            return 0
        resting, update = self.training.resting, self.training.update
        states = max(resting.weights, update.weights) + resting.optimizer + resting.reference
        return states + self.engine.weights + self.training.sync + self.wanted.reserve


def make_plan(wanted: Wanted) -> Plan:
    """The division that moves the least and in which an engine holds enough responses at once.

    First of all what moves the least states to the host, then what spreads an engine over the
    fewest GPUs. Where none holds enough, the one that holds the most; where none fits, the one
    that comes nearest: :attr:`Plan.lacks` says what is missing.
    """
    plans = list(_plans(wanted))
    fitting = [plan for plan in plans if not plan.lacks]
    for plan in fitting:
        if plan.at_once >= min(plan.requests, _ENOUGH):
            return plan
    if fitting:
        return max(fitting, key=lambda plan: plan.at_once * plan.engines)
    return min(plans, key=lambda plan: (len(plan.lacks), -plan.left, plan.sync))


def _plans(wanted: Wanted) -> Iterator[Plan]:
    offloads: tuple[Offload, ...] = OFFLOADS
    if wanted.user == "rollout":
        offloads = ("none",)
    elif wanted.offload is not None:
        offloads = (wanted.offload,)
    groups = wanted.groups() if wanted.tensor_parallel is None else [wanted.tensor_parallel]
    for offload in offloads:
        training = None if wanted.user == "rollout" else training_memory(wanted, offload)
        for group in groups:
            yield _plan(wanted, group, offload, training)


def _plan(wanted: Wanted, group: int, offload: Offload, training: TrainingMemory | None) -> Plan:
    engine, cache = engine_memory(wanted, group), kv_cache(wanted, group)
    resting = training.resting.total if training else 0
    free = wanted.memory - resting - (wanted.reserve if training else 0)
    percent = max(0, min(_MOST, 100 * free // wanted.memory))
    left = percent * wanted.memory // 100 - engine.total - wanted.reserve
    tokens = 0
    if training is not None:
        beside = training.update.total + training.gathered + wanted.reserve
        tokens = max(0, wanted.memory - beside) // training.per_token
    return Plan(
        wanted,
        group,
        offload,
        engine,
        training,
        percent / 100,
        cache,
        left if wanted.kv_memory is None else wanted.kv_memory,
        tokens,
    )
