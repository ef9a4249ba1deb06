"""The engine's own record of who wrote each token, for audits: one JSON line per request."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any
from weakref import WeakMethod

from tandem_plugin.config import TandemConfig
from tandem_plugin.rules import Rule


@dataclass(slots=True)
class AuthoredRequest:
    """A request in tandem while it is being written, as the engine itself recorded it."""

    rule: Rule
    seed: int
    output: list[int]
    """The engine's own list of response token ids; it grows as the engine generates."""
    authors: list[bool] = field(default_factory=list)
    """Who wrote each token, as decided during generation; set when the request leaves the batch."""
    name: str | None = None
    """The name under which its tokens' scores are kept, if requested."""
    prefix: list[int] = field(default_factory=list)
    """The beginning of the response, from an earlier request with the same seed; not in
    ``output``."""


class AuthorshipRecord:
    """Appends finished requests to ``<folder>/authorship-<process id>.jsonl``.

    A preempted request leaves one line per preemption; the last one is complete. So is the line of
    a request that continues a response: it contains the whole response, and
    ``tandem_prefix_length`` is the number of tokens from before; their authors were replayed.
    """

    def __init__(self, folder: str, junior: str | None = None) -> None:
        """junior: the name of the engine's junior."""
        self._junior = junior
        self.process = os.getpid()
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self._file = (path / f"authorship-{os.getpid()}.jsonl").open("a", encoding="utf-8")

    def write(self, request: AuthoredRequest, columns: Mapping[str, Any] | None = None) -> None:
        """Append one request and flush its line to disk.

        columns: further fields of its line.
        """
        before = request.rule.replay(request.prefix, request.seed)
        row = {
            "tandem_seed": request.seed,
            "tandem_fingerprint": request.rule.fingerprint,
            "tandem_schedule": request.rule.settings(),
            "response_ids": [*request.prefix, *request.output],
            "authorship": [int(author) for author in (*before, *request.authors)],
        }
        if self._junior is not None:
            row["tandem_junior"] = self._junior
        if request.prefix:
            row["tandem_prefix_length"] = len(request.prefix)
        row.update(columns or {})
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


class Recorder:
    """A base of what follows a batch and, if the settings say so, records its requests.

    vLLM removes a request at the step after its last one. An engine in the caller's own process
    takes no such step after its last responses: what is left in the batch is recorded when it is
    deleted, or when the process ends.
    """

    _record: AuthorshipRecord | None = None

    def _open_record(self, config: TandemConfig) -> None:
        """Called at the end of ``__init__``."""
        if config.record:
            self._record = AuthorshipRecord(config.record, config.junior_name)
            # Also in processes that multiprocessing started, which run no function of atexit.
            Finalize(None, _call, (WeakMethod(self._record_left),), exitpriority=0)

    def _record_left(self) -> None:
        """Record the requests that are left in the batch, and forget them."""
        raise NotImplementedError

    def __del__(self) -> None:
        # A process that was forked has a copy of the object, and would write its lines again.
        if self._record is not None and self._record.process == os.getpid():
            self._record_left()


def _call(method: WeakMethod[Callable[[], None]]) -> None:
    if (of_living := method()) is not None:
        of_living()
