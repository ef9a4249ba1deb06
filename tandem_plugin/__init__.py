"""Tandem reinforcement learning for verl, OpenRLHF, TRL and SkyRL on vLLM, as a plugin.

A trained senior and a frozen junior write one response together. Importing this package imports
neither torch nor vllm.
"""

from tandem_plugin._draws import draws
from tandem_plugin._replay import replay, replay_batch
from tandem_plugin._version import __version__
from tandem_plugin.authorship import Authorship, Span
from tandem_plugin.boundaries import BoundarySet, Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import (
    AuthorshipError,
    ConfigError,
    EngineError,
    FingerprintError,
    RequestError,
    TandemError,
    TokenizerError,
)
from tandem_plugin.plugins.hookspecs import hookimpl
from tandem_plugin.plugins.selection import (
    list_resolvers,
    list_schedules,
    make_schedule,
    resolve_boundaries,
)
from tandem_plugin.request import TandemRequest
from tandem_plugin.rules import Rule, TandemRules, fingerprint
from tandem_plugin.schedules import Schedule

__all__ = [
    "Authorship",
    "AuthorshipError",
    "BoundarySet",
    "ConfigError",
    "EngineError",
    "FingerprintError",
    "RequestError",
    "Rule",
    "Schedule",
    "Span",
    "TandemConfig",
    "TandemError",
    "TandemRequest",
    "TandemRules",
    "TokenizerError",
    "Vocabulary",
    "__version__",
    "draws",
    "fingerprint",
    "hookimpl",
    "list_resolvers",
    "list_schedules",
    "make_schedule",
    "replay",
    "replay_batch",
    "resolve_boundaries",
]
