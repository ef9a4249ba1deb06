from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine.completion import SeedSource, resolve_requests
from tandem_plugin.seeds import derive_seed


@pytest.fixture
def rules(byte_level: Vocabulary) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping({"p": 0.4}), byte_level)


def seeds_of(resolved: list[Any]) -> list[int | None]:
    return [None if one is None else one.seed for one in resolved]


def test_requests_without_a_seed_get_fresh_ones(rules: TandemRules):
    resolved = resolve_requests(rules, None, 50, SeedSource(None)) + resolve_requests(
        rules, {"p": 1}, 50, SeedSource(None)
    )
    assert len(set(seeds_of(resolved))) == 100


def test_seeded_settings_give_the_same_seeds_in_every_run(rules: TandemRules):
    def run() -> list[int | None]:
        seeds = SeedSource(3)
        return seeds_of(
            resolve_requests(rules, None, 2, seeds)
            + resolve_requests(rules, [None, 9, {}], 3, seeds)
        )

    assert run() == [*(derive_seed(3, "request", i) for i in (0, 1, 2)), 9, run()[4]]
    assert run() == run()


def test_one_seed_is_the_first_prompts_and_gives_the_others_theirs(rules: TandemRules):
    expected = [7, derive_seed(7, "prompt", 1), derive_seed(7, "prompt", 2)]
    assert seeds_of(resolve_requests(rules, 7, 3, SeedSource(None))) == expected
    assert seeds_of(resolve_requests(rules, {"seed": 7}, 3, SeedSource(None))) == expected
    assert seeds_of(resolve_requests(rules, [7, 7, 7], 3, SeedSource(None))) == [7, 7, 7]


def test_prompts_of_one_request_share_the_length_of_the_prompt(rules: TandemRules):
    resolved = resolve_requests(rules, {"seed": 7, "prompt_length": 2}, 2, SeedSource(None))
    assert seeds_of(resolved) == [7, derive_seed(7, "prompt", 1)]
    assert [one.prefix([4, 5, 6]) for one in resolved if one is not None] == [[6], [6]]


@pytest.mark.parametrize(
    ("tandem_params", "code"),
    [
        ([1], "prompt-params-count-differs"),
        (-1, "seed-out-of-range"),
        ({"p": 3}, "parameter-not-probability"),
        ("maybe", "seed-not-integer"),
    ],
)
def test_wrong_parameters_are_refused(rules: TandemRules, tandem_params: Any, code: str):
    with refused(code):
        resolve_requests(rules, tandem_params, 2, SeedSource(None))


def test_what_the_class_is_not_asked_for_is_refused() -> None:
    """Without an engine: each is refused before one is reached."""
    pytest.importorskip("vllm")
    from tandem_plugin.engine.llm import TandemLLM

    with refused("additional-config-not-mapping", kind="list"):
        TandemLLM("model", additional_config=["tandem"])
    engine: Any = SimpleNamespace(has_unfinished_requests=lambda: True)
    with refused("engine-requests-unfinished"):
        next(TandemLLM.stream(SimpleNamespace(llm_engine=engine), [], 1))
    with refused("sampling-params-count-differs", params=1, prompts=2):
        TandemLLM._in_tandem(SimpleNamespace(), [SimpleNamespace(extra_args=None)], None, 2)
    off = SimpleNamespace(measure_every=0, partner_logprobs=False)
    with refused("measuring-disabled"):
        TandemLLM.measures(SimpleNamespace(tandem_rules=SimpleNamespace(config=off)))
