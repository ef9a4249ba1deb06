from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import ConfigError, TandemConfig
from tandem_plugin._draws import MAX_SEED
from tandem_plugin.config import MAX_DRAFT_TOKENS


def test_defaults_are_the_papers():
    config = TandemConfig.from_mapping({})
    assert (config.schedule, config.mode, config.validation) == ("word", "lockstep", "senior")
    assert config.junior is None
    assert config.parameters == {}
    assert config.max_drafts == 0


@pytest.mark.parametrize("name", ["junior", "record", "rollouts"])
def test_home_is_known_in_every_path(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/h")
    for name_or_path, path in (("~/x", "/h/x"), ("a/b", "a/b")):
        assert getattr(TandemConfig.from_mapping({name: name_or_path}), name) == path
    assert getattr(TandemConfig.from_mapping({name: None}), name) is None


def test_speculative_mode_drafts_four_tokens_unless_told_otherwise():
    assert TandemConfig.from_mapping({"mode": "speculative"}).max_drafts == 4
    settings = {"mode": "speculative", "drafts": 7}
    assert TandemConfig.from_mapping(settings).max_drafts == 7
    assert TandemConfig.from_mapping(settings | {"drafts": "auto"}).max_drafts == 8


@given(
    st.dictionaries(st.integers(2, 10**6), st.integers(0, MAX_DRAFT_TOKENS), max_size=5),
    st.integers(1, MAX_DRAFT_TOKENS),
    st.randoms(use_true_random=False),
)
def test_table_of_drafts_is_read_alike_in_any_order_and_from_json(
    more: dict[int, int], first: int, rng: random.Random
):
    """JSON, Hydra and command lines make text of its keys."""
    table = {1: first, **more}
    items = list(table.items())
    rng.shuffle(items)
    config = TandemConfig.from_mapping({"mode": "speculative", "drafts": dict(items)})
    assert list(config.drafts.items()) == sorted(table.items())
    assert config.max_drafts == max(table.values())
    assert TandemConfig.from_mapping(json.loads(json.dumps(config.settings()))) == config


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"schedule": "word", "p": 0.3, "cap": 5, "boundaries": "every"},
        {"schedule": "token", "p": 1},
        {"schedule": "step", "first": "junior"},
        {"schedule": "solo", "junior": "some/path", "seed": MAX_SEED, "validation": "both"},
        {"record": "a/folder", "require": True},
        {"unproven": ("megatron", "custom_loss")},
        {"lambda_jun": 0.2},
        {"mode": "speculative", "drafts": 6},
        {"mode": "speculative", "drafts": {1: 8, 16: 4, 64: 0}},
    ],
)
def test_settings_survive_a_round_trip_through_json(settings: dict[str, object]):
    config = TandemConfig.from_mapping(settings)
    again = TandemConfig.from_mapping(json.loads(json.dumps(config.settings())))
    assert again == config
    assert again.make_schedule() == config.make_schedule()
    assert settings.items() <= config.settings().items()


SPECULATIVE: dict[str, object] = {"mode": "speculative"}


@pytest.mark.parametrize(
    ("code", "several"),
    [
        ("plugin-name-unknown", [{"schedule": "words"}, {"boundaries": "words"}]),
        ("setting-unknown", [{"junoir": "x"}, {"num_draft_tokens": 4}, {"capp": 3}]),
        ("setting-unknown", [{"schedule": "solo", "p": 0.5}]),
        ("setting-invalid", [{"schedule": 5}, {"schedule": None}, {"boundaries": 1}]),
        ("setting-invalid", [{"junior": 7}, {"junior": ["a", "b"]}, {"junior": {"a": 1}}]),
        ("setting-invalid", [{"seed": seed} for seed in (None, -1, MAX_SEED + 1, 1.5)]),
        ("setting-invalid", [{"lambda_jun": weight} for weight in (-0.1, float("nan"), "0.2")]),
        ("setting-invalid", [{"mode": "fast"}, {"validation": "junior"}, {"require": "yes"}]),
        ("setting-invalid", [{"unproven": 1}, {"unproven": [1]}]),
        ("unproven-not-list", [{"unproven": "megatron"}, {"unproven": "[megatron]"}]),
        (
            "setting-invalid",
            [SPECULATIVE | {"drafts": drafts} for drafts in (0, 33, "4", "fast", True)],
        ),
        ("setting-invalid", [SPECULATIVE | {"drafts": {1: 4, size: 2}} for size in (0, "many")]),
        (
            "setting-invalid",
            [SPECULATIVE | {"drafts": {1: 4, 8: drafts}} for drafts in (33, -1, True)],
        ),
        ("setting-invalid", [SPECULATIVE | {"drafts": {1: 4, "8": 2, 8: 3}}]),
        ("junior-stream-not-lockstep", [{"mode": "speculative", "junior_stream": True}]),
        ("drafts-not-speculative", [{"drafts": 4}, {"drafts": {1: 4}}]),
        (
            "drafts-without-first-size",
            [SPECULATIVE | {"drafts": {2: 4}}, SPECULATIVE | {"drafts": {}}],
        ),
        ("drafts-all-zero", [SPECULATIVE | {"drafts": {1: 0, 8: 0}}]),
        ("schedule-without-drafts", [SPECULATIVE | {"schedule": "solo-word"}]),
        (
            "validation-without-junior",
            [{"validation": "all", "schedule": name} for name in ("solo", "solo-word")],
        ),
        ("parameter-not-probability", [{"p": 1.01}, {"p": -1}, {"p": "half"}]),
        ("parameter-not-count", [{"cap": 0}, {"cap": "32"}]),
    ],
)
def test_wrong_setting_is_refused_by_whatever_way_it_comes(
    code: str, several: list[dict[str, object]]
):
    for settings in several:
        with refused(code):
            TandemConfig.from_mapping(settings)
        with refused(code):
            TandemConfig(**settings)


def test_name_of_a_junior_needs_the_checkpoint_that_it_names():
    """Without it the senior's own checkpoint would be the junior, under another model's name."""
    settings = {"junior_name": "Qwen/Qwen3-1.7B"}
    with refused("junior-name-without-junior", junior_name="Qwen/Qwen3-1.7B"):
        TandemConfig.from_mapping(settings)
    named = TandemConfig.from_mapping({**settings, "junior": "weights"})
    assert (named.junior, named.junior_name) == ("weights", "Qwen/Qwen3-1.7B")


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_junior_without_a_name_is_refused(blank: str):
    with refused("setting-name-empty", key="junior"):
        TandemConfig.from_mapping({"junior": blank})
    with refused("setting-name-empty", key="junior_name"):
        TandemConfig.from_mapping({"junior": "a", "junior_name": blank})


def test_value_that_fits_in_no_sentence_is_refused_with_one():
    for key in ("schedule", "lambda_jun", "p", "capp"):
        for value in (10**5_000, "x" * 100_000):
            with pytest.raises(ConfigError) as caught:
                TandemConfig.from_mapping({key: value})
            assert len(str(caught.value)) < 500
    with refused("settings-not-mapping"):
        TandemConfig.from_mapping(["x" * 100_000])  # type: ignore[arg-type]
    with refused("setting-key-not-text"):
        TandemConfig.from_mapping({1: 10**5_000})  # type: ignore[dict-item]


@pytest.mark.parametrize("key", ["\ud800", "p\udfff", 3, None])
def test_key_that_is_no_text_is_refused(key: object):
    with refused("setting-key-not-text") as error:
        TandemConfig.from_mapping({"schedule": "word", key: 1})
    str(error.value).encode()
