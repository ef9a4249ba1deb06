"""The junior's log p of what an engine wrote, on its way from the engine to a trainer's loss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.measures.token_scores import sample_name, scores_of
from tandem_plugin.engine.wire_names import TELL_OF_TOKENS, TOKEN_LOG_NAME
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.standing import StandsBefore
from tandem_plugin.request import OFF

__all__ = ["PARTNER", "Overheard", "PartnerScores", "joined", "log_probs_of"]

PARTNER = "tandem_partner"
"""Their name among what a trainer's server answers."""

_JUNIOR = 1
"""Their column among a token's scores."""


class PartnerScores:
    """Lets an asynchronous engine keep them, and fetches them as responses end.

    Responses that end while the engine answers for others are asked for together, so that a batch
    of many does not stop the engine once for each.
    """

    def __init__(self, engine: Any) -> None:
        """engine: vLLM's ``AsyncLLM``, in tandem."""
        settings = engine.vllm_config.additional_config["tandem"]
        self._is_on = TandemConfig.from_mapping(settings).partner_kl_coef > 0
        self._engine = engine
        self._numbers = count()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._fetching: asyncio.Task[None] | None = None

    def named(self, extra_args: Mapping[str, Any] | None) -> dict[str, Any]:
        """A request's ``extra_args``, with a name where its tokens' scores are to be kept."""
        extra = dict(extra_args or {})
        if self._is_on and extra.get("tandem", OFF) != OFF:
            extra[TOKEN_LOG_NAME] = str(next(self._numbers))
        return extra

    async def of(
        self, extra_args: Mapping[str, Any], length: int, index: int = 0, samples: int = 1
    ) -> bytes | None:
        """float32 of each of a response's tokens; None of a request whose scores are not kept.

        extra_args: as :meth:`named` gave them. index: the sample's, among so many. Raises
        :class:`EngineError` where the engine does not know each token's.
        """
        name = extra_args.get(TOKEN_LOG_NAME)
        if name is None:
            return None
        if samples > 1:
            name = sample_name(name, index)
        answer = self._waiting[name] = asyncio.get_running_loop().create_future()
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch())
        return scores_of(await answer, name, length)[:, _JUNIOR].tobytes()

    async def answer(
        self,
        generate: Callable[..., Awaitable[Any]],
        *args: Any,
        sampling_params: Mapping[str, Any],
        **options: Any,
    ) -> Any:
        """What a server's ``generate`` answers, with them among its ``extra_fields``."""
        extra = self.named(sampling_params.get("extra_args"))
        asked = {**sampling_params, "extra_args": extra}
        output = await generate(*args, sampling_params=asked, **options)
        partner = await self.of(extra, len(output.token_ids))
        if partner is not None:
            output.extra_fields[PARTNER] = partner
        return output

    async def _fetch(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            try:
                told = await self._engine.collective_rpc(TELL_OF_TOKENS, args=(list(asked),))
            except Exception as error:
                for answer in asked.values():
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for answer in asked.values():
                    if not answer.done():  # nobody waits for it any more
                        answer.set_result(told)
        self._fetching = None


class Overheard(StandsBefore):
    """Before the handle of a Ray actor that generates: keeps what its answers say of the junior.

    heard: what is kept, one for each answer, in order; None where it says nothing.
    """

    def __init__(self, server: Any, heard: list[bytes | None]) -> None:
        super().__init__(server)
        self._heard = heard

    @property
    def generate(self) -> Any:
        """The actor's method, which is called by its ``remote``."""
        return self

    async def remote(self, *args: Any, **options: Any) -> Any:
        """An answer, without what was kept of it."""
        output = await self._theirs.generate.remote(*args, **options)
        self._heard.append(output.extra_fields.pop(PARTNER, None))
        return output


def log_probs_of(scores: bytes, length: int) -> NDArray[np.float32]:
    """float32 ``[length]``; raises :class:`EngineError` for another number of them."""
    if len(scores) != 4 * length:
        raise EngineError(
            f"A generate call brought {length} tokens and the junior's log probability of "
            f"{len(scores) // 4}: something between the engine and the agent loop cut one of them. "
            "Leave partner_kl_coef out."
        )
    return np.frombuffer(scores, dtype=np.float32)


def joined(parts: Sequence[bytes | None]) -> bytes | None:
    """Those of a response that was written in parts; None where a part has none."""
    known = [part for part in parts if part is not None]
    return b"".join(known) if parts and len(known) == len(parts) else None
