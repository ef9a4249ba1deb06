"""Options under which the engine's log probabilities are not the trainer's."""

from __future__ import annotations

from typing import Any

import pytest

from tandem_plugin.training.sampling import NEUTRAL, changed_sampling, warn_of_changed_sampling

HARMLESS = {
    *("n", "seed", "max_tokens", "stop", "stop_token_ids", "ignore_eos"),
    *("logprobs", "prompt_logprobs", "logprob_token_ids", "flat_logprobs", "detokenize"),
    *("skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output"),
    *("output_kind", "stream_interval", "skip_clone", "output_text_buffer_length", "extra_args"),
    *("skip_reading_prefix_cache", "repetition_detection", "routed_experts_prompt_start"),
}
"""Fields of vLLM's ``SamplingParams`` that leave the distribution of each token as it is."""


def test_every_option_of_vllm_is_known() -> None:
    vllm = pytest.importorskip("vllm", reason="vLLM is not installed")
    fields = {one for one in vllm.SamplingParams.__struct_fields__ if not one.startswith("_")}
    assert fields - HARMLESS <= NEUTRAL.keys()


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"top_k": 3}, ["top_k"]),
        ({"rollout.top_p": 0.95, "rollout.top_k": -1}, ["rollout.top_p"]),
        ({"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}, []),
        ({"min_p": 0.1, "repetition_penalty": 1.1}, ["min_p", "repetition_penalty"]),
        ({"presence_penalty": -0.5, "frequency_penalty": 0.5}, None),
        ({"logit_bias": {5: 1.0}, "allowed_token_ids": [1, 2], "bad_words": ["no"]}, None),
        ({"structured_outputs": {"regex": "a"}, "min_tokens": 2, "logits_processors": ["x"]}, None),
        ({"logit_bias": {}, "bad_words": [], "logits_processors": [], "min_tokens": 0}, []),
        (dict.fromkeys(NEUTRAL), []),
        ({"seed": 6, "max_tokens": 4, "anything": 1}, []),
    ],
)
def test_options_that_change_the_distribution_are_told(
    options: dict[str, Any], changed: list[str] | None
) -> None:
    assert list(changed_sampling(options)) == (list(options) if changed is None else changed)


def test_one_warning_names_the_options_and_their_size(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_changed_sampling({"top_k": 3, "allowed_token_ids": [*range(1000)], "top_p": 1.0})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("WARNING: top_k=3, allowed_token_ids=[0, 1, 2")
    assert "top_p=1.0" not in line
    assert "2.15 with top_k=3" in line
    assert len(line) < 600
    warn_of_changed_sampling({"top_p": 1.0})
    assert capsys.readouterr().err == ""
