"""vLLM's server over HTTP, and the proof at a trainer's start that it is in tandem.

A plain server ignores ``vllm_xargs``: without the proof it would answer every request alone.
"""

from __future__ import annotations

import ast
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tandem_plugin.config import TandemConfig, junior_label
from tandem_plugin.errors import EngineError
from tandem_plugin.rules import TandemRules

_TIMEOUT = 300.0
"""Seconds: the first request may compile kernels."""

_NO_RULE = "0" * 16
"""A fingerprint that no rule has."""

_REJECTED = "request-rules-differ"
"""The code with which an engine in tandem rejects a request made for other rules."""


@dataclass(frozen=True, slots=True)
class VLLMServer:
    """One server by its address, which may end with a slash."""

    url: str

    @staticmethod
    def xargs(request: Mapping[str, Any] | str) -> dict[str, str]:
        """The field ``vllm_xargs`` of a body; request: :attr:`StartedCall.request`.

        vLLM's server accepts no mappings there.
        """
        return {"tandem": request if isinstance(request, str) else json.dumps(request)}

    def send(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, str]:
        """The status and the text of an answer; body: None to GET.

        Raises :class:`EngineError` if there is none.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            raise EngineError("server-unreachable", url=self.url, reason=error) from error

    def develop(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What a path of the development mode answers; :class:`EngineError` without that mode."""
        status, text = self.send(path, body)
        if status != 200:
            raise EngineError("server-not-in-development", url=self.url, path=path, status=status)
        return json.loads(text)

    def collective_rpc(self, method: str) -> list[Any]:
        """As ``vllm.LLM.collective_rpc``: what each worker returns."""
        results: list[Any] = self.develop("/collective_rpc", {"method": method})["results"]
        return results

    def check(self, model: str, start: str, rules: TandemRules) -> None:
        """Raise :class:`EngineError` unless a server is in tandem, with these rules and the junior.

        model: the name that requests use. start: the model that the senior starts from. rules: the
        trainer's own, with its tokenizer. Two requests for one token show whose rules the server
        has; its development mode shows its junior, and whether it returns log-probabilities of the
        distribution that it samples from.
        """
        _check_rules(self, model, rules)
        info = self.develop("/server_info?config_format=json")["vllm_config"]
        _check_junior(self, info["additional_config"], rules.config, start)
        mode = info["model_config"]["logprobs_mode"]
        if mode != "processed_logprobs":
            raise EngineError("server-logprobs-raw", url=self.url, mode=mode)


def _check_rules(server: VLLMServer, model: str, rules: TandemRules) -> None:
    request = rules.default.request(0).to_wire()
    status, text = _complete(server, model, {**request, "fingerprint": _NO_RULE})
    if status == 200:
        raise EngineError("server-not-in-tandem", url=server.url)
    if _REJECTED in text:
        status, text = _complete(server, model, request)
    if status != 200:
        raise EngineError("server-rejects-tandem", url=server.url, status=status, answer=text)


def _complete(server: VLLMServer, model: str, tandem: Mapping[str, Any]) -> tuple[int, str]:
    body = {"model": model, "prompt": [0], "max_tokens": 1, "vllm_xargs": server.xargs(tandem)}
    return server.send("/v1/completions", body)


def _check_junior(server: VLLMServer, running: Any, config: TandemConfig, start: str) -> None:
    if isinstance(running, str):  # vLLM 0.29 sends Python's text of the mapping
        running = ast.literal_eval(running)
    tandem = running["tandem"]
    names = tandem["junior"], tandem["junior_name"]
    quantised = tandem.get("junior_quantization")
    if (config.junior or start) not in names or quantised != config.junior_quantization:
        raise EngineError(
            "server-junior-differs",
            url=server.url,
            junior=junior_label(names[0], quantised),
            expected=junior_label(config.junior or start, config.junior_quantization),
        )
