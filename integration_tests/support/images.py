"""Small random checkpoints that see images, pictures, and what Hugging Face makes of both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from support.families import rename_weights
from support.models import make_tokenizer
from support.reference import along

QWEN_TOKENS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")
IDEFICS_TOKENS = (
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    "<end_of_utterance>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)
GEMMA_TOKENS = {
    "boi_token": "<start_of_image>",
    "image_token": "<image_soft_token>",
    "eoi_token": "<end_of_image>",
}
"""By the names that Gemma's processor has for them."""
SIZES = [(56, 56), (112, 84), (140, 140), (200, 60), (64, 150), (168, 168)]
"""Widths and heights of pictures: of one tile and of several, wide and tall."""


def picture(seed: int, size: tuple[int, int] | None = None) -> Image.Image:
    """A picture of blurred random patches. size: width and height."""
    width, height = size or SIZES[seed % len(SIZES)]
    shape = (max(2, height // 16), max(2, width // 16), 3)
    patches = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return Image.fromarray(patches).resize((width, height), Image.Resampling.BICUBIC)


def make_vision_tokenizer(family: str) -> Any:
    """The tests' tokenizer with a family's special tokens."""
    tokenizer = make_tokenizer()
    if family == "gemma3":
        tokens: Sequence[str] = tuple(GEMMA_TOKENS.values())
        tokenizer.add_tokens(["\n" * count for count in range(1, 5)])  # vLLM joins them
        tokenizer._set_model_specific_special_tokens(GEMMA_TOKENS)
    else:
        tokens = IDEFICS_TOKENS if family in TILED else QWEN_TOKENS
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    return tokenizer


def _text(tokenizer: Any, hidden: int, **more: Any) -> dict[str, Any]:
    heads = hidden // 32
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": 1 if heads % 2 else 2,
        "max_position_embeddings": 2048,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **more,
    }


def _rope(sections: list[int], **more: Any) -> dict[str, Any]:
    plain = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections}
    return {"rope_parameters": plain | more}


def _ids(tokenizer: Any) -> dict[str, int]:
    names = "vision_start_token_id", "image_token_id", "vision_end_token_id", "video_token_id"
    ids = tokenizer.convert_tokens_to_ids(list(QWEN_TOKENS))
    return dict(zip(names, ids, strict=True))


_TOWER = {"hidden_size": 32, "intermediate_size": 64}


def _qwen2_5_vl(tokenizer: Any, hidden: int, tied: bool) -> Any:
    text = transformers.Qwen2_5_VLTextConfig(
        **_text(tokenizer, hidden), **_rope([4, 6, 6]), tie_word_embeddings=tied
    )
    tower = {"depth": 2, "num_heads": 2, "fullatt_block_indexes": [1], "window_size": 56}
    patches = {"patch_size": 14, "spatial_merge_size": 2, "tokens_per_second": 2}
    config = transformers.Qwen2_5_VLConfig(
        text_config=text.to_dict(),
        vision_config=_TOWER | tower | patches | {"out_hidden_size": hidden},
        tie_word_embeddings=tied,
        **_ids(tokenizer),
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def _qwen3_vl(tokenizer: Any, hidden: int, tied: bool) -> Any:
    text = transformers.Qwen3VLTextConfig(
        **_text(tokenizer, hidden, num_hidden_layers=3, head_dim=32),
        **_rope([6, 5, 5], mrope_interleaved=True),
        tie_word_embeddings=tied,
    )
    tower = {"depth": 3, "num_heads": 2, "deepstack_visual_indexes": [0, 1]}
    sizes = {"num_position_embeddings": 64, "out_hidden_size": hidden}
    config = transformers.Qwen3VLConfig(
        text_config=text.to_dict(),
        vision_config=_TOWER | tower | sizes,
        tie_word_embeddings=tied,
        **_ids(tokenizer),
    )
    return transformers.Qwen3VLForConditionalGeneration(config)


def _qwen3_5(tokenizer: Any, hidden: int, tied: bool) -> Any:
    states = {
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
    }
    rope = _rope([2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.25)
    text = _text(tokenizer, hidden, head_dim=32) | states | rope
    sizes = {"num_position_embeddings": 64, "out_hidden_size": hidden}
    config = transformers.Qwen3_5Config(
        text_config=text | {"tie_word_embeddings": tied},
        vision_config=_TOWER | {"depth": 2, "num_heads": 2} | sizes,
        tie_word_embeddings=tied,
        **_ids(tokenizer),
    )
    return transformers.Qwen3_5ForConditionalGeneration(config)


def _tiled(tokenizer: Any, hidden: int, tied: bool, name: str) -> Any:
    text = transformers.LlamaConfig(**_text(tokenizer, hidden), tie_word_embeddings=tied)
    tower = {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
    config = getattr(transformers, f"{name}Config")(
        text_config=text.to_dict(),
        vision_config=_TOWER | tower,
        scale_factor=2,
        tie_word_embeddings=tied,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
    )
    return getattr(transformers, f"{name}ForConditionalGeneration")(config)


def _gemma3(tokenizer: Any, hidden: int, tied: bool) -> Any:
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
    text = transformers.Gemma3TextConfig(
        **_text(tokenizer, hidden, head_dim=32, query_pre_attn_scalar=32), **layers
    )
    tower = {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
    tower |= {"vision_use_head": False}
    ids = {
        name.replace("token", "token_index"): tokenizer.convert_tokens_to_ids(token)
        for name, token in GEMMA_TOKENS.items()
    }
    config = transformers.Gemma3Config(
        text_config=text.to_dict(),
        vision_config=_TOWER | tower,
        mm_tokens_per_image=4,
        tie_word_embeddings=tied,
        **ids,
    )
    return transformers.Gemma3ForConditionalGeneration(config)


FAMILIES: dict[str, Callable[[Any, int, bool], Any]] = {
    "qwen2.5-vl": _qwen2_5_vl,
    "qwen3-vl": _qwen3_vl,
    "qwen3.5": _qwen3_5,
    "idefics3": functools.partial(_tiled, name="Idefics3"),
    "smolvlm": functools.partial(_tiled, name="SmolVLM"),
    "gemma3": _gemma3,
}
TILED = ("idefics3", "smolvlm")
"""Families that cut a picture into tiles, with tags between their tokens, and no M-RoPE."""
BOTH_WAYS = ("gemma3",)
"""Families in which an image's tokens attend to later ones, which vLLM computes on GPUs alone."""


def _processor(family: str, tokenizer: Any) -> Any:
    from transformers.models.gemma3 import Gemma3ImageProcessor, Gemma3Processor
    from transformers.models.idefics3 import Idefics3ImageProcessor, Idefics3Processor
    from transformers.models.qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    from transformers.models.qwen3_vl import Qwen3VLProcessor, Qwen3VLVideoProcessor
    from transformers.models.smolvlm import (
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    tiles = {"size": {"longest_edge": 112}, "max_image_size": {"longest_edge": 56}}
    if family == "idefics3":
        images = Idefics3ImageProcessor(**tiles)
        return Idefics3Processor(image_processor=images, tokenizer=tokenizer, image_seq_len=4)
    if family == "smolvlm":
        parts = {
            "image_processor": SmolVLMImageProcessor(**tiles),
            "video_processor": SmolVLMVideoProcessor(**tiles),
        }
        return SmolVLMProcessor(**parts, tokenizer=tokenizer, image_seq_len=4)
    if family == "gemma3":
        images = Gemma3ImageProcessor(size={"height": 56, "width": 56})
        return Gemma3Processor(image_processor=images, tokenizer=tokenizer, image_seq_length=4)
    patch = 14 if family == "qwen2.5-vl" else 16
    unit = (2 * patch) ** 2
    images = Qwen2VLImageProcessor(
        patch_size=patch,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": 4 * unit, "longest_edge": 36 * unit},
    )
    kind, of_videos = transformers.Qwen2_5_VLProcessor, Qwen2VLVideoProcessor
    if family != "qwen2.5-vl":
        kind, of_videos = Qwen3VLProcessor, Qwen3VLVideoProcessor
    videos = of_videos(patch_size=patch, merge_size=2)
    return kind(image_processor=images, tokenizer=tokenizer, video_processor=videos)


CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}TAGS{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A chat template with a family's tags in the place of TAGS."""


def make_seeing(
    folder: Path, family: str, *, seed: int, hidden: int = 64, tied: bool = False
) -> Path:
    """A random checkpoint in float32, tower included, with its processor."""
    tokenizer = make_vision_tokenizer(family)
    torch.manual_seed(seed)
    model = FAMILIES[family](tokenizer, hidden, tied).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += torch.randn_like(parameter) * 0.1
            else:
                by_channel = parameter.dim() == 3 and parameter.shape[1] == 1  # a convolution
                deep = parameter.dim() > 3  # patches of pixels
                parameter.normal_(std=0.05 if deep else 0.4 if by_channel else 0.15)
        if family == "gemma3":  # which multiplies them: any token would only be repeated
            model.get_input_embeddings().weight *= 0.1
    model.save_pretrained(folder)
    if family == "gemma3":
        file = folder / "model.safetensors"
        rename_weights(file, "vision_tower.", "vision_tower.vision_model.")
    tags = "".join(_tags(tokenizer))
    processor = _processor(family, tokenizer)
    processor.chat_template = tokenizer.chat_template = CHAT.replace("TAGS", tags)
    processor.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tags(tokenizer: Any) -> Sequence[str]:
    """What stands for a picture in a family's prompts."""
    vocabulary = tokenizer.get_vocab()
    every = (["<image>"], [GEMMA_TOKENS["boi_token"]], QWEN_TOKENS[:3])
    return next(tags for tags in every if tags[0] in vocabulary)


@dataclass(frozen=True, slots=True)
class Seen:
    """What greedy responses to prompts with images showed."""

    tokens: int
    wrong: int
    """Tokens that are not their author's likeliest."""
    telling: int
    """Tokens of prompts with images that would be others with other pictures."""
    shown: int
    """Tokens of prompts with images."""


class ImageReference:
    """Two Hugging Face models that compute in fp32, over prompts with images."""

    def __init__(self, senior: Path, junior: Path, adapter: Path | None = None) -> None:
        """adapter: the senior's, applied by PEFT."""
        torch.set_num_threads(1)
        self.models = {
            author: AutoModelForImageTextToText.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            ).eval()
            for author, folder in ((True, senior), (False, junior))
        }
        if adapter is not None:
            from peft import PeftModel

            self.models[True] = PeftModel.from_pretrained(self.models[True], adapter).eval()
        self.processor = AutoProcessor.from_pretrained(senior)
        self.placeholder = self.models[True].config.image_token_id
        *_, tag = _tags(self.processor.tokenizer)[:2]  # without the end
        self._tag, self._tag_id = tag, self.processor.tokenizer.convert_tokens_to_ids(tag)
        self.ids = min(model.config.get_text_config().vocab_size for model in self.models.values())

    def expanded(self, prompt: Sequence[int], pictures: Sequence[Any]) -> list[int]:
        """The prompt with the tokens of each of its pictures."""
        waiting = iter(pictures)
        ids: list[int] = []
        for token in prompt:
            ids += [token] if token != self._tag_id else self._tokens(next(waiting))
        return ids

    def _tokens(self, shown: Any) -> list[int]:
        images = self.processor.image_processor
        if not hasattr(images, "merge_size"):
            whole = self.processor(text=self._tag, images=[[shown]]).input_ids[0]
            return [int(token) for token in whole]
        grid = images(images=[shown], return_tensors="pt")["image_grid_thw"][0]
        return [self.placeholder] * int(grid.prod() // images.merge_size**2)

    def _pixels(self, pictures: Sequence[Any], ids: torch.Tensor) -> dict[str, torch.Tensor]:
        if not pictures:
            return {}
        images = self.processor.image_processor
        if hasattr(self.processor, "image_seq_len"):
            found = images(images=[list(pictures)], return_tensors="pt")
            return {name: found[name] for name in ("pixel_values", "pixel_attention_mask")}
        if not hasattr(images, "merge_size"):
            pixels = images(images=list(pictures), return_tensors="pt")["pixel_values"]
            return {"pixel_values": pixels, "token_type_ids": (ids == self.placeholder).int()}
        found = images(images=list(pictures), return_tensors="pt")
        named = {name: found[name] for name in ("pixel_values", "image_grid_thw")}
        return {**named, "mm_token_type_ids": (ids == self.placeholder).int()}

    def raw_logits(
        self, author: bool, prompt: Sequence[int], pictures: Sequence[Any], response: Sequence[int]
    ) -> torch.Tensor:
        """Where the response's tokens were chosen, placeholders included: ``[tokens, ids]``."""
        start = self.expanded(prompt, pictures)
        ids = torch.tensor([[*start, *response]])
        inputs = self._pixels(pictures, ids)
        logits: torch.Tensor = self.models[author](input_ids=ids, **inputs).logits
        return logits[0, len(start) - 1 : -1, : self.ids]

    @torch.no_grad()
    def logits(self, author: bool, *response: Any) -> torch.Tensor:
        """The same without placeholders: float32. response: as of :meth:`raw_logits`."""
        logits = self.raw_logits(author, *response).float()
        logits[:, self.placeholder] = -torch.inf
        return logits

    def seen(
        self,
        prompts: Sequence[tuple[list[int], list[Any]]],
        responses: Sequence[list[int]],
        authors: Callable[[], Iterator[bool]],
    ) -> Seen:
        """What greedy responses show. prompts: token ids, one placeholder per picture."""
        tokens = wrong = telling = shown = 0
        for (prompt, pictures), response in zip(prompts, responses, strict=True):
            others = [picture(999 + n, one.size) for n, one in enumerate(pictures)]
            likeliest = {a: self._choices(a, prompt, pictures, response) for a in self.models}
            blind = {a: self._choices(a, prompt, others, response) for a in self.models}
            for t, author in enumerate(along(authors(), response)):
                tokens += 1
                wrong += likeliest[author][t] != response[t]
                if pictures:
                    shown += 1
                    telling += blind[author][t] != response[t]
        return Seen(tokens, wrong, telling, shown)

    def _choices(self, author: bool, *response: Any) -> list[int]:
        choices: list[int] = self.logits(author, *response).argmax(-1).tolist()
        return choices


def prompts_with_images(folder: Path, count: int = 12) -> list[tuple[list[int], list[Any]]]:
    """Prompts of 0 to 3 pictures; every third has pictures of its own, the others repeat them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    placeholder = tokenizer.convert_tokens_to_ids(list(_tags(tokenizer)))
    texts = ["The picture shows", "Tom has 3 apples and", "What is in", "Solve x + 2 = 5."]
    prompts = []
    for number in range(count):
        seeds = [(number - number % 3) * 10 + n for n in range([1, 2, 1, 0, 3, 1][number % 6])]
        ids = tokenizer(texts[number % len(texts)]).input_ids
        for n in range(len(seeds)):
            ids = ids + placeholder + tokenizer(f" and {n}").input_ids
        ids = ids + tokenizer(" answer: " + texts[number * 3 % len(texts)]).input_ids
        prompts.append((ids, [picture(seed) for seed in seeds]))
    return prompts


def engine_prompt(prompt: tuple[list[int], list[Any]]) -> dict[str, Any]:
    """A prompt in vLLM's form."""
    ids, pictures = prompt
    shown = {"multi_modal_data": {"image": pictures}} if pictures else {}
    return {"prompt_token_ids": ids, **shown}


def answers(
    engine: Any,
    prompts: Sequence[Any],
    length: int = 12,
    *,
    adapters: Sequence[Path | None] = (),
    **sampling: Any,
) -> list[Any]:
    """Greedy responses to prompts, alternating in tandem unless ``extra_args`` says otherwise.

    adapters: folders of those that prompts take in turn, None for the base.
    """
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    settings = {"temperature": 0, "max_tokens": length, "ignore_eos": True}
    extra = {"extra_args": {"tandem": {"seed": 1}}}
    params = SamplingParams(**(settings | extra | sampling))
    more: dict[str, Any] = {}
    if adapters:
        loaded = [
            None if folder is None else LoRARequest(str(folder), number, str(folder))
            for number, folder in enumerate(adapters, 1)
        ]
        more["lora_request"] = [loaded[n % len(loaded)] for n in range(len(prompts))]
    outputs = engine.generate(
        [engine_prompt(one) for one in prompts], params, use_tqdm=False, **more
    )
    return [list(output.outputs[0].token_ids) for output in outputs]
