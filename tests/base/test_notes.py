"""Long work says what it does, where somebody shows it."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ppsim.base import compiled, notes


@pytest.fixture
def said(monkeypatch) -> list[str]:
    lines: list[str] = []

    @contextmanager
    def show(what: str) -> Iterator[None]:
        lines.append(what)
        yield

    monkeypatch.setattr(notes.shown, "work", show)
    return lines


def test_nothing_is_shown_by_itself(capsys):
    with notes.long_work("compiling"):
        pass
    assert capsys.readouterr() == ("", "")


def doubled(values):
    return values * 2


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_compiling_is_said_and_how_to_keep_it_where_nothing_can(said, monkeypatch, tmp_path, keeps):
    import numba.core.caching

    monkeypatch.setattr(compiled, "_loaded", {})
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    if not keeps:
        monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    assert compiled.call(doubled, np.ones(2)).tolist() == [2, 2]
    again = "compiling; NUMBA_CACHE_DIR=FOLDER, yours alone, would keep it for the next run"
    assert said == ["compiling, once per machine", *([] if keeps else [again])]
