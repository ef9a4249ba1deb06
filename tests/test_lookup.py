from __future__ import annotations

import numpy as np
import pytest

from tandem_plugin.lookup import Lookup

VALUES = [[5, -7], [2**40, 0]]


def test_entries_of_arrays_and_tensors_are_the_same() -> None:
    torch = pytest.importorskip("torch")
    lookup = Lookup(VALUES)
    assert len(lookup) == 4
    for index in (np.array([3, 0, 0, 2]), np.array([[1], [2]]), np.zeros(0, dtype=np.int64)):
        expected = np.array([5, -7, 2**40, 0])[index]
        entries, tensor = lookup(index), lookup(torch.from_numpy(index))
        assert entries.dtype == np.int64
        assert tensor.dtype == torch.int64
        assert entries.tolist() == tensor.tolist() == expected.tolist()
        assert lookup(torch.from_numpy(index).to("meta")).shape == index.shape


def test_a_table_is_copied_to_a_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    lookup, copies = Lookup(VALUES), []
    copied = Lookup._copied
    monkeypatch.setattr(Lookup, "_copied", lambda self, to: copies.append(to) or copied(self, to))
    for _ in range(3):
        lookup(torch.zeros(2, dtype=torch.int64))
        lookup(torch.zeros(2, dtype=torch.int64, device="meta"))
    assert copies == [torch.device("cpu"), torch.device("meta")]


def test_an_index_outside_the_table_is_an_error() -> None:
    torch = pytest.importorskip("torch")
    for index in (np.array([4]), torch.tensor([4])):
        with pytest.raises(IndexError):
            Lookup(VALUES)(index)
    values = np.array(VALUES)
    lookup = Lookup(values)
    values[:] = 0
    assert lookup(np.array([0])).tolist() == [5]
