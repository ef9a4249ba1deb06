"""verl's vLLM servers in tandem, made by a replica of ours in verl's registry, and routed to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tandem_plugin.errors import TandemError
from tandem_plugin.patching.in_place import put_in_place
from tandem_plugin.patching.subclasses import ForeignBase, actor_in_tandem, in_tandem
from tandem_plugin.training.juniors import counters_of_engine, junior_of, take_junior
from tandem_verl.switch import running_config, tandem_node

__all__ = ["ReplicaInTandem", "ServerInTandem", "engines_that_stay", "register_replica"]

ROUTER = str(Path(__file__).with_name("router.yaml"))
"""The name of our router in verl."""


def engines_that_stay(of: Callable[[str], Any]) -> int:
    """The number of rollout engines on GPUs that separate_async does not also train on."""
    rollout = "actor_rollout_ref.rollout"
    apart = of("trainer.v1.trainer_mode") == "separate_async"
    where = rollout if apart else "trainer"
    size = (of(f"{rollout}.tensor_model_parallel_size") or 1) * (
        of(f"{rollout}.data_parallel_size") or 1
    )
    return int(of(f"{where}.nnodes") * of(f"{where}.n_gpus_per_node") // size)


def register_replica(config: Any) -> None:
    """Let verl make a run's vLLM replicas of a subclass of ours, and route to them; repeatable."""
    if len(running_config(config, "A trainer").juniors) > 1:
        config.actor_rollout_ref.rollout.router_config_path = ROUTER
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base = RolloutReplicaRegistry.get("vllm")
    RolloutReplicaRegistry.register("vllm", lambda: in_tandem(base, ReplicaInTandem))


class ReplicaInTandem(ForeignBase):  # type: ignore[misc]
    """Before verl's ``vLLMReplica``: its servers are ours, but for reward models and teachers."""

    config: Any
    server_class: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if tandem_node(self.config) is not None:
            self.server_class = actor_in_tandem(self.server_class, ServerInTandem)


class ServerInTandem(ForeignBase):  # type: ignore[misc]
    """Before verl's ``vLLMHttpServer``: checks its engine, and passes its errors on."""

    config: Any
    engine: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        put_in_place("verl", (), "")  # requested by the engine before it starts
        super().__init__(*args, **options)
        take_junior(self.config.engine_kwargs["vllm"], options.get("replica_rank"))

    async def run_server(self, *args: Any, **options: Any) -> Any:
        """Abort if the engine that has just started does not run in tandem."""
        result = await super().run_server(*args, **options)
        try:
            from tandem_plugin.engine.runners import check_engine

            check_engine(self.engine.vllm_config)
        except BaseException:
            self.engine.shutdown()
            raise
        return result

    async def generate(self, *args: Any, **options: Any) -> Any:
        """Pass the reason for a rejected request on: Ray loses the cause of vLLM's own error."""
        try:
            return await super().generate(*args, **options)
        except Exception as error:
            refusal: BaseException | None = error
            while refusal is not None and not isinstance(refusal, TandemError):
                refusal = refusal.__cause__
            if refusal is None or refusal is error:
                raise
            raise refusal from None

    def tandem_junior(self) -> str:
        """The name of the engine's junior."""
        return junior_of(self.engine.vllm_config)

    async def tandem_counters(self, what: str) -> dict[str, Any]:
        """A worker's counters; verl's ``collective_rpc`` returns no answers."""
        return await counters_of_engine(self.engine, what)
