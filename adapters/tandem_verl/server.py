"""verl's vLLM servers in tandem, made by a replica of ours in verl's registry."""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import TandemError
from tandem_plugin.patching.in_place import put_in_place
from tandem_plugin.patching.mixins import Theirs, actor_in_tandem, in_tandem
from tandem_plugin.training.engines import told_by
from tandem_verl.switch import tandem_node

__all__ = ["ReplicaInTandem", "ServerInTandem", "register_replica"]


def register_replica() -> None:
    """Let verl make its vLLM replicas, in this process, of a subclass of ours; repeatable."""
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base = RolloutReplicaRegistry.get("vllm")
    RolloutReplicaRegistry.register("vllm", lambda: in_tandem(base, ReplicaInTandem))


class ReplicaInTandem(Theirs):  # type: ignore[misc]
    """Before verl's ``vLLMReplica``: its servers are of ours where tandem is asked for.

    Replicas of reward models and teachers are made of it as well, and do not ask.
    """

    config: Any
    server_class: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if tandem_node(self.config) is not None:
            self.server_class = actor_in_tandem(self.server_class, ServerInTandem)


class ServerInTandem(Theirs):  # type: ignore[misc]
    """Before verl's ``vLLMHttpServer``: its engine is checked, and its refusals are passed on."""

    config: Any
    engine: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        put_in_place("verl", (), "")  # what the engine asks for before it starts
        super().__init__(*args, **options)

    async def run_server(self, *args: Any, **options: Any) -> Any:
        """Stop when the engine that has just started does not run in tandem.

        vLLM drops a plugin that fails to load, and ignores configuration that nobody reads.
        """
        result = await super().run_server(*args, **options)
        try:
            from tandem_plugin.engine.status import check_engine

            check_engine(self.engine.vllm_config)
        except BaseException:
            self.engine.shutdown()
            raise
        return result

    async def generate(self, *args: Any, **options: Any) -> Any:
        """Let the sentence with which the engine refuses a request leave the server's process.

        vLLM raises an error without a word in its place, and an exception's cause does not survive
        the way through Ray.
        """
        try:
            return await super().generate(*args, **options)
        except Exception as error:
            refusal: BaseException | None = error
            while refusal is not None and not isinstance(refusal, TandemError):
                refusal = refusal.__cause__
            if refusal is None or refusal is error:
                raise
            raise refusal from None

    async def tandem_told(self, what: str) -> dict[str, Any]:
        """What a worker tells of its counters; verl's ``collective_rpc`` returns no answers."""
        return await told_by(self.engine, what)
