"""Test hook: the adapter's requests were made for other rules than the engine's."""

from typing import Any

from tandem_plugin.patching.after_import import after_import


def _change(module: Any) -> None:
    request = module.Rule.request

    def foreign(self: Any, *asked: Any) -> Any:
        import dataclasses

        return dataclasses.replace(request(self, *asked), fingerprint="0" * 16)

    module.Rule.request = foreign


after_import("tandem_plugin.rules", _change)
