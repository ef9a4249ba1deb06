"""A reward model behind HTTP, as OpenRLHF asks one: any other process could answer so."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def reward_server() -> Iterator[tuple[str, list[float]]]:
    """Serve while the context lasts; give the address and all rewards that were answered."""
    given: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            ((query,), (prompt,)) = asked["query"], asked["prompts"]
            # How often the letter e is there: differs between siblings.
            reward = query[len(prompt) :].count("e") / 128
            given.append(reward)
            answer = {"rewards": reward, "scores": reward, "extra_logs": {"served": 1.0}}
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: the test sees what was answered."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/reward", given
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
