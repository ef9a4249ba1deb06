"""Models that a user names: folders, names on the Hugging Face Hub, fingerprints of contents."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from tandem_plugin.errors import ConfigError, TandemError
from tandem_plugin.files import open_file, parse_json, read_json, system_reason

_PATTERNS = (
    *("*.safetensors", "*.bin", "*.json", "*.model", "*.tiktoken", "*.jinja", "merges.txt"),
    "*.py",  # with trust_remote_code it is the model
)
_WEIGHTS = (".safetensors", ".bin")
_BLOCK = 2**22
_AT_ONCE = 4
"""Files hashed concurrently: hashing is slower than a disk, and releases Python's lock."""

_LONGEST_NAME = 96
"""The most characters of an owner's or a repository's name on the Hub."""
_FILE = re.compile(r".*\.(json|jsonl|model|parquet|safetensors|txt)")
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.safetensors|\.bin)")
_CONNECT_S = 3.0


def is_checkpoint_of(name: str, model: str, revision: str | None) -> bool:
    """Whether a name refers to the checkpoint of an engine's model.

    model: a name or a folder. revision: of this checkpoint.
    """
    if name == model:
        return True
    if not os.path.isdir(model):
        return False
    return os.path.realpath(_folder(name, revision)) == os.path.realpath(model)


def _folder(name: str, revision: str | None) -> str:
    """A checkpoint's folder; offline, vLLM resolves a name to the folder in its cache."""
    from huggingface_hub import constants, snapshot_download

    path = os.path.expanduser(name)
    if os.path.isdir(path) or not constants.HF_HUB_OFFLINE:
        return path
    try:
        return str(snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError):  # not in the cache
        return path


def check_model(model: str, role: str) -> None:
    """Raise :class:`ConfigError` unless ``model`` is a checkpoint or could be the name of one.

    A folder's files must be readable and whole, no pointers of Git LFS, and all shards of its
    weights. A name that could be one on the Hub is not looked up here: the engine does that. role:
    the model's, such as ``senior``.
    """
    model = os.path.expanduser(model)
    if os.path.isdir(model):
        if not any((Path(model) / name).exists() for name in ("config.json", "params.json")):
            raise ConfigError("model-without-config", what=role, model=model)
        for file in model_files(model):
            try:
                with open_file(file) as stream:
                    if file.suffix == ".safetensors" and _is_cut_off(stream):
                        raise OSError(errno.EIO, "It ends before its last tensor does")
            except OSError as error:
                reason = system_reason(error)
                raise ConfigError(
                    "model-file-unreadable", what=role, model=model, file=file.name, reason=reason
                ) from error
        if missing := missing_shards(Path(model)):
            raise ConfigError("model-shard-missing", what=role, model=model, file=missing[0])
    elif not (os.path.exists(model) or "://" in model or may_be_on_hub(model)):
        raise ConfigError("model-missing", what=role, model=model)


def missing_shards(folder: Path) -> list[str]:
    """The files of a checkpoint's weights that its index, or the names of its shards, promise.

    Empty for a checkpoint that is whole, has one file of weights, or none. An index that cannot be
    read promises nothing.
    """
    for weights, single in (("*.safetensors", "model.safetensors"), ("*.bin", "pytorch_model.bin")):
        files = {file.name for file in folder.glob(weights)}
        index = _index(folder / f"{single}.index.json")
        if single in files:
            return []
        if files or index:
            return sorted((index or _numbered(files)) - files)
    return []


def _index(file: Path) -> set[str]:
    """The files of weights that an index lists; empty if it lists none."""
    try:
        listed = read_json(file)["weight_map"].values()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()
    return {name for name in listed if isinstance(name, str)}


def _numbered(files: set[str]) -> set[str]:
    """All names of the sets of shards that these belong to: ``model-00001-of-00003.bin``."""
    sets = {match.groups() for file in files if (match := _SHARD.fullmatch(file))}
    return {
        f"{stem}-{number:05}-of-{count}{kind}"
        for stem, count, kind in sets
        for number in range(1, int(count) + 1)
    }


def is_hub_name(name: str) -> bool:
    """Whether ``name`` has the form owner/name and no local folder is called owner."""
    match = re.fullmatch(r"([\w-][\w.-]*)/([\w.:-]+)", name)
    if match is None or max(map(len, match.groups())) > _LONGEST_NAME:
        return False
    return not os.path.exists(match[1])


def may_be_on_hub(name: str) -> bool:
    """Whether the Hub could have a model of this name; old names there have no owner: ``gpt2``."""
    return is_hub_name(name) or (
        re.fullmatch(r"[\w-][\w.-]*", name) is not None and not _FILE.fullmatch(name)
    )


@contextmanager
def hub_access(failure: Callable[[str], TandemError]) -> Iterator[None]:
    """Hugging Face's libraries read their cache alone where the Hub cannot be reached.

    Without a network they would retry for up to a minute. failure: makes the error to raise for
    theirs from its reason, one line.

    Touches ``huggingface_hub.constants.HF_HUB_OFFLINE`` (0.30 to 1.x), which they read at each
    request. Goes when: they stop at a host name that cannot be resolved.
    """
    try:
        from huggingface_hub import constants
    except ImportError as error:
        raise failure(f"{error}; pip install huggingface_hub") from error
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = offline = before or not _hub_is_reachable()
    try:
        yield
    except TandemError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if offline and isinstance(error, OSError):
            why = "HF_HUB_OFFLINE is set" if before else "the Hub cannot be reached from here"
            reason = f"{why}, and its cache here has no such entry"
        raise failure(reason) from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _hub_is_reachable() -> bool:
    """Whether the Hub, or the proxy before it, accepts connections."""
    url = getproxies().get("https") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    where = urlsplit(url if "://" in url else f"http://{url}")
    port = where.port or (443 if where.scheme == "https" else 80)
    try:
        socket.create_connection((where.hostname or "", port), _CONNECT_S).close()
    except OSError:
        return False
    return True


def checkpoint_folder(
    model: str, revision: str | None = None, download_dir: str | None = None
) -> Path:
    """The folder of a model: itself, or the local snapshot of a model on the Hugging Face Hub.

    It is downloaded if it is not cached. Raises :class:`ConfigError` if there is none.
    """
    if os.path.isdir(model):
        return Path(model)
    with hub_access(lambda reason: ConfigError("model-not-found", model=model, reason=reason)):
        from huggingface_hub import snapshot_download

        snapshot = snapshot_download(
            model, revision=revision, cache_dir=download_dir, allow_patterns=list(_PATTERNS)
        )
        return Path(snapshot)


def model_files(model: str) -> list[Path]:
    """The files that a checkpoint or a tokenizer is read from; none for a name on the Hub."""
    place = Path(model)
    if not os.path.isdir(place):
        return [place]
    files = {file for kind in _PATTERNS for file in place.glob(kind) if not file.is_dir()}
    if not any(file.suffix in _WEIGHTS for file in files):
        files.update(place.glob("*.pt"))  # read by vLLM if there is nothing else
    return sorted(files)


_WHOLE = 2**22
"""Bytes of a file of weights that is read whole."""
_SAMPLES = 64
_SAMPLE = 2**16
_OF_TENSOR = 2**12
"""Bytes from the middle of each tensor."""
_MOST_HEADER = 2**27
"""Bytes of the longest header of a safetensors file that is read; 36,000 tensors have 5 MB."""


def mark_checkpoint(place: Path) -> str:
    """16 hexadecimal digits by which a checkpoint is recognised in a moment, whatever its size.

    Covers weights, configuration, tokenizer, chat template and code, by the names, sizes and
    contents of their files, wherever the folder is. Of a file of weights above 4 MiB it reads 64
    parts of 64 KiB, evenly spaced from the first byte to the last, and of a safetensors file
    4 KiB from the middle of each tensor as well: an update of any tensor changes the mark. place:
    the folder, or its single file. Raises OSError if a file cannot be read.
    """
    files = model_files(str(place))
    total = hashlib.sha256()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for file, digest in zip(files, pool.map(_digest, files), strict=True):
            total.update(f"{file.name}\0{digest}\n".encode())
    return total.hexdigest()[:16]


def mark_of(model: str) -> str | None:
    """What identifies the contents of a model that a setting names; None if it is not here.

    Of a folder :func:`mark_checkpoint`; of a name on the Hub the commit in this machine's cache.
    """
    place = Path(os.path.realpath(os.path.expanduser(model)))
    with suppress(ImportError, OSError, ValueError):
        if model and place.exists():
            return mark_checkpoint(place) if model_files(str(place)) else None
        config = local_file(model, "config.json")
        return config.parent.name if config is not None else None
    return None


def local_file(model: str, name: str) -> Path | None:
    """A file of a model that is on this machine: in its folder, or in the Hub's cache."""
    if os.path.isdir(model):
        return file if (file := Path(model) / name).is_file() else None
    with suppress(ImportError, OSError, ValueError):
        if may_be_on_hub(model):
            from huggingface_hub import try_to_load_from_cache

            cached = try_to_load_from_cache(model, name)
            return Path(cached) if isinstance(cached, str) else None
    return None


def local_json(model: str, name: str) -> dict[str, Any]:
    """The content of such a file; empty if it is not on this machine. Raises as read_json does."""
    file = local_file(model, name)
    content: dict[str, Any] = {} if file is None else read_json(file)
    return content


def _digest(file: Path) -> str:
    content = hashlib.sha256()
    with open_file(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        content.update(f"{size}\n".encode())
        if size <= _WHOLE or file.suffix not in (*_WEIGHTS, ".pt"):
            while block := stream.read(_BLOCK):
                content.update(block)
            return content.hexdigest()
        for start, length in (*_even_parts(size), *_parts_of_tensors(stream)):
            stream.seek(start)
            content.update(stream.read(length))
    return content.hexdigest()


def _even_parts(size: int) -> Iterator[tuple[int, int]]:
    for part in range(_SAMPLES):
        yield part * (size - _SAMPLE) // (_SAMPLES - 1), _SAMPLE


def _parts_of_tensors(stream: IO[bytes]) -> list[tuple[int, int]]:
    """The middle of each tensor of a safetensors file, in the file's order; empty for others."""
    return [
        (max(first, (first + last - _OF_TENSOR) // 2), min(_OF_TENSOR, last - first))
        for first, last in _tensors(stream)
        if 0 <= first < last
    ]


def _is_cut_off(stream: IO[bytes]) -> bool:
    """Whether a safetensors file ends before one of its tensors does, as an interrupted copy."""
    return any(last > os.fstat(stream.fileno()).st_size for _, last in _tensors(stream))


def _tensors(stream: IO[bytes]) -> list[tuple[int, int]]:
    """The first byte of each tensor of a safetensors file, and the one behind its last, in order.

    Empty for other files. Source: the format's description at
    https://huggingface.co/docs/safetensors: the header's length in 8 bytes, the header in JSON, the
    tensors.
    """
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    try:
        header = parse_json(stream.read(length)) if length <= _MOST_HEADER else {}
        tensors = [
            entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"
        ]
        behind = 8 + length
        return sorted((behind + int(first), behind + int(last)) for first, last in tensors)
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
