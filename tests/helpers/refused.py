"""What tests assert of a refusal: its code and its fields, whatever its sentence says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tandem_plugin.errors import TandemError


@contextmanager
def refused(*codes: str, **fields: Any) -> Iterator[pytest.ExceptionInfo[TandemError]]:
    """Expect an error of this code, or of one of several, and these of its fields."""
    with pytest.raises(TandemError) as caught:
        yield caught
    error = caught.value
    assert error.code in codes, error
    assert {name: error.fields.get(name) for name in fields} == fields, error
