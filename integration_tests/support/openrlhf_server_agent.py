"""An agent for OpenRLHF behind a server of its own, as OpenRLHF's OpenAI-server example has it.

The server runs in a thread of its own, keeps the first engine that the agent is given, and answers
every prompt by it. A session's tokens stand in its buffer, to which each request adds its text.
"""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import uuid4

import aiohttp
import uvicorn
from fastapi import FastAPI, Request
from openrlhf.utils.agent import AgentExecutorBase
from vllm import SamplingParams

from support.trainer_run import free_port

MOST_TOKENS = 24


class AgentExecutor(AgentExecutorBase):  # type: ignore[misc]  # OpenRLHF is not typed
    """Two turns per prompt, each through the server."""

    address: str | None = None

    def _start(self, engine: Any, tokenizer: Any) -> None:
        self.engine, self.tokenizer = engine, tokenizer
        self.sessions: dict[str, dict[str, Any]] = {}
        app, port = FastAPI(), free_port()

        @app.post("/generate")
        async def generate(request: Request) -> dict[str, str]:
            asked = await request.json()
            return {"text": await self._answer(asked["session"], asked["text"])}

        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
        threading.Thread(target=server.run, daemon=True).start()
        while not server.started:
            time.sleep(0.05)
        self.address = f"http://127.0.0.1:{port}/generate"

    async def _answer(self, session: str, text: str) -> str:
        empty = {"tokens": [], "ranges": [], "log_probs": []}
        kept = self.sessions.setdefault(session, empty)
        added = self.tokenizer(text=text, add_special_tokens=False)["input_ids"]
        prompt = [*kept["tokens"], *added]
        params = SamplingParams(max_tokens=MOST_TOKENS, logprobs=0)
        (answer,) = (await self.engine.generate(prompt, params)).outputs
        said = list(answer.token_ids)
        kept["tokens"] = [*prompt, *said]
        kept["ranges"].append((len(prompt), len(prompt) + len(said)))
        log_probs = [at[token].logprob for at, token in zip(answer.logprobs, said, strict=True)]
        kept["log_probs"] += [0.0] * len(added) + log_probs
        return str(answer.text)

    async def execute(
        self,
        prompt: str,
        label: Any,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        if self.address is None:
            self._start(llm_engine, hf_tokenizer)
        session, said = uuid4().hex, ""
        async with aiohttp.ClientSession() as client:
            for text in (prompt, " Again, please: "):
                asked = {"session": session, "text": text}
                async with client.post(self.address, json=asked) as answer:
                    said += (await answer.json())["text"]
        kept = self.sessions.pop(session)
        reward = said.count("e") / 100.0
        return {
            "prompt": prompt,
            "label": label,
            "observation_tokens": kept["tokens"],
            "action_ranges": kept["ranges"],
            "rollout_log_probs": kept["log_probs"],
            "reward": reward,
            "scores": reward,
            "truncated": False,
            "extra_logs": {},
        }
