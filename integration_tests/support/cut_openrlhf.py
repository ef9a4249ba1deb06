"""Test hook: masks lose their last entry on their way from the engine to the trainer."""

from typing import Any

from tandem_plugin.patching.after_import import after_import


def _change(module: Any) -> None:
    admit = module.OpenRLHFRun.admit

    def cut(self: Any, samples: Any) -> Any:
        samples[0].action_mask = samples[0].action_mask[:, :-1]
        return admit(self, samples)

    module.OpenRLHFRun.admit = cut


after_import("tandem_openrlhf.batch", _change)
