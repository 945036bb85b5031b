"""The browser of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.http.console.browser import Browser
from tests.tools import require_program


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    require_program("chromium")
    require_program("chromedriver")
    made = Browser(tmp_path / "profile")
    yield made
    made.driver.quit()
