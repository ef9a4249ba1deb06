"""Prompts with images: each model sees them through its own vision tower.

vLLM's runner knows one model. It lets that model encode an image once, keeps the encoding under the
image's hash, and lets the model merge slices of it into the embeddings of each step. A tandem class
answers for both models:

- An encoding is ``[tokens, senior's width + junior's width]``. vLLM slices it by tokens alone, so
  its cache, chunked prefill and preemption need no change.
- Merging returns the senior's embeddings, which vLLM copies to its own buffer, and leaves the
  junior's in a buffer here. Its address is fixed, as CUDA graphs need it. Each model merges by its
  own ``embed_input_ids``, which may fill further buffers of that model (Qwen3-VL's deepstack).
- Positions are computed once, by the senior's class and configuration, so both models must lay an
  image out alike: :data:`~tandem_plugin.engine.unsupported.IMAGES`.

Source: ``EncoderRunner`` (V2) and ``_gather_mm_embeddings`` (V1) of vLLM 0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tandem_plugin.engine.junior import sees_images
from tandem_plugin.errors import EngineError

_NO_HOST = "none.invalid"
"""A domain that cannot exist (RFC 2606): vLLM takes an empty list for all domains."""


def members(senior_class: type[Any]) -> dict[str, Any]:
    """Attributes of the tandem class of a senior that sees images, by name; none for any other."""
    if not getattr(senior_class, "supports_multimodal", False):
        return {}
    return {"embed_multimodal": _embed_multimodal, "embed_input_ids": _embed_input_ids}


def limit_to_images(args: Any) -> None:
    """Let engine arguments admit no videos, and fetch nothing, unless they say otherwise.

    No video was compared; and vLLM would fetch a picture from any address that a prompt names.
    Pixels are normalised by the processor if the senior starts from dummy weights: vLLM would fill
    the normalisation in the model with random values too, which no weight sync replaces. Source:
    ``FusedInputNorm`` and ``initialize_dummy_weights`` of vLLM 0.29.
    """
    args.limit_mm_per_prompt = {"video": 0, **(args.limit_mm_per_prompt or {})}
    if args.allowed_media_domains is None:
        args.allowed_media_domains = [_NO_HOST]
    if args.load_format == "dummy":
        args.mm_device_do_normalize = False


def read_prompt(llm: Any, prompt: Any) -> list[int]:
    """The token ids that an engine reads for a prompt, in which each image has all of its tokens.

    llm: vLLM's ``LLM``, without unfinished requests. Raises vLLM's error for a prompt that it
    rejects, as one that is too long or has more images than it admits. Source: ``_preprocess_cmpl``
    of vLLM 0.29 to 0.32, which ``LLM.generate`` calls. Its cache of processed images must forget
    them afterwards: it would send the engine a mere reference, as to images that it has sent.
    """
    (rendered,) = llm._preprocess_cmpl([prompt])
    llm.reset_mm_cache()
    return list(rendered["prompt_token_ids"])


class Images:
    """Both models' encodings and embeddings of images."""

    def __init__(self, senior: Any, junior: Any, rows: int, dtype: torch.dtype) -> None:
        """senior: the composite model. rows: the most tokens of one step."""
        self._senior, self._junior = senior, junior
        width = int(junior.config.get_text_config().hidden_size)
        # A buffer, which a deep sleep keeps; on vLLM's default device.
        embeddings = torch.zeros(rows, width, dtype=dtype)
        senior.register_buffer("tandem_juniors_embeddings", embeddings, persistent=False)
        self._seniors_width = 0
        """Of an encoding, a multiple of its hidden size; known once there is one."""

    def encode(self, **inputs: Any) -> list[torch.Tensor]:
        """Each image's encodings by both models: ``[tokens, senior's width + junior's width]``.

        inputs: pixels and their grids, as vLLM's processor made them for the senior.
        """
        model = self._senior
        # Each gets a mapping of its own, from which a class may take its arguments out.
        of_senior = model._senior.embed_multimodal(model, **dict(inputs))
        of_junior = self._junior.embed_multimodal(**dict(inputs))
        return [self._both(*pair) for pair in zip(of_senior, of_junior, strict=True)]

    def _both(self, of_senior: torch.Tensor, of_junior: torch.Tensor) -> torch.Tensor:
        if len(of_senior) != len(of_junior):
            raise EngineError("image-lengths-differ", senior=len(of_senior), junior=len(of_junior))
        self._seniors_width = of_senior.shape[-1]
        return torch.cat([of_senior, of_junior.to(of_senior.dtype)], dim=-1)

    def merge(
        self, input_ids: torch.Tensor, encodings: Sequence[torch.Tensor], **options: Any
    ) -> torch.Tensor:
        """The senior's embeddings of a step's tokens: ``[tokens, senior's hidden]``.

        encodings: slices of what :meth:`encode` returned, by tokens. The junior's embeddings are
        left for :meth:`juniors_embeddings`.
        """
        width = self._seniors_width
        embeddings = self._junior.embed_input_ids(
            input_ids, [encoding[:, width:] for encoding in encodings] or None, **options
        )
        self._buffer[: len(embeddings)].copy_(embeddings)
        merged: torch.Tensor = self._senior._senior.embed_input_ids(
            self._senior,
            input_ids,
            [encoding[:, :width] for encoding in encodings] or None,
            **options,
        )
        return merged

    def juniors_embeddings(self, rows: int) -> torch.Tensor:
        """``[rows, junior's hidden]``: those of the last merge, and any beyond its tokens."""
        return self._buffer[:rows]

    @property
    def _buffer(self) -> torch.Tensor:
        buffer: torch.Tensor = self._senior.tandem_juniors_embeddings
        return buffer


def images_of(senior: Any, junior: Any, vllm_config: Any) -> Images | None:
    """What both models of an engine see images by; None in an engine of text."""
    if not sees_images(vllm_config):
        return None
    rows = vllm_config.scheduler_config.max_num_batched_tokens
    return Images(senior, junior, rows, vllm_config.model_config.dtype)


def _embed_multimodal(self: Any, **inputs: Any) -> list[torch.Tensor]:
    """Called by vLLM's runners for images that no cached encoding exists of."""
    images: Images = self.tandem_images
    return images.encode(**inputs)


def _embed_input_ids(
    self: Any,
    input_ids: torch.Tensor,
    multimodal_embeddings: Sequence[torch.Tensor] | None = None,
    **options: Any,
) -> torch.Tensor:
    """Called by vLLM's runners for the tokens of each step."""
    images: Images | None = getattr(self, "tandem_images", None)
    if images is None:  # a class that could see, in an engine of text
        text: torch.Tensor = self._senior.embed_input_ids(self, input_ids, **options)
        return text
    return images.merge(input_ids, multimodal_embeddings or (), **options)
