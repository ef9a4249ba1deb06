"""What a server must show before a trainer learns from its responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.server import VLLMServer

PIECES = tuple(f"Ġ{i}" if i % 3 == 0 else str(i) for i in range(24))


class FakeServer(ThreadingHTTPServer):
    """Answers as vLLM's server does, of an engine with these rules."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rules = rules()
        self.is_tandem = True
        self.config: dict[str, Any] = {
            "additional_config": str({"tandem": {"junior": "a/junior", "junior_name": "a/junior"}}),
            "model_config": {"model": "a/senior", "logprobs_mode": "processed_logprobs"},
        }
        self.answered: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/collective_rpc":
            self._answer(200, {"results": [body["method"], 7]})
            return
        asked = json.loads(body["vllm_xargs"]["tandem"])
        if self.server.is_tandem and asked["fingerprint"] != self.server.rules.fingerprint:
            self._answer(400, {"error": {"message": "... [request-rules-differ]"}})
            return
        self.server.answered.append(body)
        self._answer(200, {"choices": []})

    def do_GET(self) -> None:
        assert self.path == "/server_info?config_format=json"
        if self.server.config:
            self._answer(200, {"vllm_config": self.server.config})
        else:
            self._answer(404, {"detail": "Not Found"})

    def _answer(self, status: int, content: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        pass


def rules(**settings: Any) -> TandemRules:
    config = TandemConfig.from_mapping({"schedule": "word", **settings})
    return TandemRules(config, Vocabulary(PIECES, "a test"))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def check(server: FakeServer, start: str = "a/senior", **settings: Any) -> None:
    own = rules(**{"junior": "a/junior", **settings})
    VLLMServer(f"http://127.0.0.1:{server.server_port}/").check("team", start, own)


def test_server_in_tandem_as_configured_is_accepted(server: FakeServer) -> None:
    check(server)
    (sent,) = server.answered  # the request for other rules was rejected
    assert (sent["model"], sent["max_tokens"]) == ("team", 1)


@pytest.mark.parametrize(
    ("tandem", "start", "junior"),
    [
        ({"junior": "/mnt/j", "junior_name": "a/junior"}, "a/senior", "a/junior"),
        ({"junior": "a/senior", "junior_name": "a/senior"}, "a/senior", None),
    ],
)
def test_junior_is_known_by_either_name_or_is_the_seniors_start(
    server: FakeServer, tandem: dict[str, str], start: str, junior: str | None
) -> None:
    server.config["additional_config"] = {"tandem": tandem}  # as JSON
    check(server, start, junior=junior)
    with refused("server-junior-differs", junior=tandem["junior"]):
        check(server, "another/start", junior=junior and "another/junior")


def test_server_that_ignores_tandem_is_rejected(server: FakeServer) -> None:
    """vLLM drops parameters that nobody reads, and answers."""
    server.is_tandem = False
    with refused("server-not-in-tandem"):
        check(server)


@pytest.mark.parametrize("settings", [{"p": 0.25}, {"schedule": "token"}])
def test_server_with_other_rules_is_rejected(server: FakeServer, settings: dict[str, Any]) -> None:
    with refused("server-rejects-tandem", status=400):
        check(server, **settings)


def test_server_whose_configuration_cannot_be_read_or_is_wrong_is_rejected(
    server: FakeServer,
) -> None:
    server.config["model_config"]["logprobs_mode"] = "raw_logprobs"
    with refused("server-logprobs-raw", mode="raw_logprobs"):
        check(server)
    server.config = {}
    with refused("server-not-in-development", status=404):
        check(server)


def test_server_that_does_not_answer_is_rejected(server: FakeServer) -> None:
    with refused("server-unreachable"):
        VLLMServer("http://127.0.0.1:9").check("team", "a/senior", rules())


def test_workers_of_a_server_are_called_by_the_name_of_a_method(server: FakeServer) -> None:
    called = VLLMServer(f"http://127.0.0.1:{server.server_port}").collective_rpc("tandem_ends")
    assert called == ["tandem_ends", 7]


def test_junior_of_another_quantisation_is_another_junior(server: FakeServer) -> None:
    named = {"junior": "a/junior", "junior_name": "a/junior (fp8)", "junior_quantization": "fp8"}
    server.config["additional_config"] = {"tandem": named}
    check(server, junior="a/junior", junior_quantization="fp8")
    with refused("server-junior-differs", junior="a/junior (fp8)", expected="a/junior"):
        check(server, junior="a/junior")
    server.config["additional_config"] = {"tandem": {"junior": "a/junior", "junior_name": "j"}}
    with refused("server-junior-differs", junior="a/junior", expected="a/junior (fp8)"):
        check(server, junior="a/junior", junior_quantization="fp8")
