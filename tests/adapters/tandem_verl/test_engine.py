"""A server in tandem on a stand-in for verl's: its engine, its refusals, its replica."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from verl_stand_ins import IN_TANDEM

from tandem_plugin import EngineError, RequestError
from tandem_verl.engine import ServerInTandem


class Server:
    def __init__(self, config: Any) -> None:
        self.config = config.actor_rollout_ref.rollout
        self.engine: Any = None

    async def run_server(self, args: Any) -> None:
        self.engine = SimpleNamespace(vllm_config=args, shutdown=lambda: setattr(self, "off", True))

    async def generate(self, error: Any, cause: Any) -> Any:
        raise error from cause


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server, whose engine is checked by a stand-in."""

    def check_engine(vllm_config: Any) -> None:
        if vllm_config == "plain":
            raise EngineError("not in tandem")

    monkeypatch.setattr("tandem_plugin.engine.runners.check_engine", check_engine)
    return ServerInTandem.tandem_over(Server)(IN_TANDEM)


def test_server_whose_engine_is_not_tandems_is_shut_down(server: Any) -> None:
    asyncio.run(server.run_server("in tandem"))
    assert not hasattr(server, "off")
    with pytest.raises(EngineError):
        asyncio.run(server.run_server("plain"))
    assert server.off


def test_engines_refusal_leaves_the_server_with_its_sentence(server: Any) -> None:
    def generate(error: Exception, cause: Exception) -> None:
        asyncio.run(server.generate(error, cause))

    with pytest.raises(RequestError, match="no seed"):
        generate(RuntimeError(), RequestError("no seed"))
    with pytest.raises(RuntimeError, match="of vLLM's own"):
        generate(RuntimeError("of vLLM's own"), ValueError())
