"""That encodings of images go with the prefixes that were computed from them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.engine.patches import encodings


@pytest.mark.parametrize(
    ("additional", "resets"),
    [
        ({"tandem": {"images": True}}, 1),
        ({"tandem": {}}, 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_only_a_tandem_engine_with_images_resets_them(additional: Any, resets: int) -> None:
    class EngineCore:
        vllm_config = SimpleNamespace(additional_config=additional)
        asked: list[Any]

        def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
            self.asked.append(reset_running_requests)
            return reset_running_requests

        def reset_encoder_cache(self) -> None:
            self.asked.append("encodings")

    encodings._wrap_reset(SimpleNamespace(EngineCore=EngineCore))  # type: ignore[arg-type]
    core = EngineCore()
    core.asked = []
    assert core.reset_prefix_cache(reset_running_requests=True) is True
    assert core.asked == [True] + ["encodings"] * resets
