"""Versions and models of a run, whichever trainer it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.training.refusals import Unproven
from tandem_plugin.training.settings import check_text_models, check_versions


def unproven(*allowed: str) -> Unproven:
    names = {"version": "another series"}
    return Unproven(TandemConfig.from_mapping({"unproven": list(allowed)}), names)


def test_other_releases_are_said_and_what_is_not_installed_is_passed_over() -> None:
    found = {"verl": "0.9.0", "openrlhf": None, "vllm": "0.29.0"}
    (warning,) = check_versions(found, unproven(), "version")
    assert warning.startswith("verl 0.9.0 is not a version")


def test_another_series_starts_only_where_its_name_is_allowed() -> None:
    found = {"openrlhf": "0.12.0", "vllm": "0.33.0"}
    with refused("TP452") as caught:
        check_versions(found, unproven(), "version")
    assert "add version to tandem.unproven" in caught.value.message
    run = unproven("version")
    (warning,) = check_versions(found, run, "version")
    assert warning.startswith("vllm 0.33.0 is not a version")
    assert "openrlhf 0.12.0 is not a version" in run.warnings[0]
    with refused("TP376"):
        check_versions(found, run, "")  # there is no name that would allow it


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub of this process, with an empty cache."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="no huggingface_hub here")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with Hub() as server:
        address = f"http://127.0.0.1:{server.server_port}"
        url = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Hub(ThreadingHTTPServer):
    """Answers with what ``configs`` says of a model, and with ``status`` for all others."""

    def __init__(self) -> None:
        self.configs: dict[str, str] = {}
        self.status = 503
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        name = self.path.removeprefix("/").partition("/resolve/")[0]
        self.server.asked.append(name)
        config = self.server.configs.get(name)
        self.send_response(self.server.status if config is None else 200)
        self.end_headers()
        self.wfile.write((config or "").encode())

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


COMMIT = "0" * 40
IMAGE = '{"vision_config": {"depth": 2}}'


def test_model_that_sees_or_hears_is_refused_by_the_setting_that_names_it(
    hub: Hub, tmp_path: Path
) -> None:
    for name, config in (("text", "{}"), ("image", IMAGE)):
        hub.configs[f"organisation/{name}"] = config
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    for where in (str(tmp_path), "organisation"):
        text, image = f"{where}/text", f"{where}/image"
        check_text_models({"a.model": text, "tandem.junior": None})
        for juniors in (image, [text, image]):
            with refused("TP451", setting="tandem.junior", model=image, tower="vision_config"):
                check_text_models({"a.model": text, "tandem.junior": juniors})


def test_hub_that_does_not_answer_is_asked_once(hub: Hub) -> None:
    """transformers would try again and again, for a minute, before the run begins."""
    check_text_models({"a.model": "organisation/name"})
    assert hub.asked == ["organisation/name"]
    check_text_models({"a.model": "no such/na me"})
    assert len(hub.asked) == 1


def test_model_in_the_cache_is_read_there(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "models--organisation--image"
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "config.json").write_text(IMAGE)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    with refused("TP451"):
        check_text_models({"a.model": "organisation/image"})
    assert hub.asked == []
