"""verl's vLLM servers in tandem, made by a replica of ours in verl's registry."""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import TandemError
from tandem_plugin.patching.in_place import Framework
from tandem_plugin.patching.subclasses import Mixin
from tandem_verl.settings import tandem_node


def register_replica() -> None:
    """Let verl make a run's vLLM replicas of a subclass of ours; repeatable."""
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base = RolloutReplicaRegistry.get("vllm")
    RolloutReplicaRegistry.register("vllm", lambda: ReplicaInTandem.tandem_over(base))


class ReplicaInTandem(Mixin):
    """Before verl's ``vLLMReplica``: its servers are ours, but for reward models and teachers."""

    config: Any
    server_class: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if tandem_node(self.config) is not None:
            self.server_class = ServerInTandem.tandem_over(self.server_class)


class ServerInTandem(Mixin):
    """Before verl's ``vLLMHttpServer``: checks its engine, and passes its errors on."""

    config: Any
    engine: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        Framework("verl").put()  # requested by the engine before it starts
        super().__init__(*args, **options)

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

    async def tandem_counters(self, method: str) -> dict[str, Any]:
        """A worker's counters; verl's ``collective_rpc`` returns no answers."""
        workers = await self.engine.collective_rpc(method)
        return workers[0]  # type: ignore[no-any-return]
