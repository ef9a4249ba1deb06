"""A real headless Chromium, driven through its own driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with a new, empty profile; the test is skipped where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    selenium = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    options = selenium.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = selenium.ChromeService(executable_path=driver)
    window = selenium.Chrome(options=options, service=service)
    try:
        window.set_script_timeout(30)
        yield window
    finally:
        window.quit()
