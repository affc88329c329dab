"""Ends podsync at a crash point without a process of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest


class EndedError(BaseException):
    """podsync ended here."""


@contextmanager
def ending_at(point: str, *modules: ModuleType) -> Iterator[list[str]]:
    """While it holds, podsync ends when it comes to this point of the modules, `<name> <number>` for the given time;
    the list has the point as often as it has come to it."""
    name, _, number = point.partition(" ")
    met: list[str] = []

    def meet(at: str) -> None:
        met.extend([at] * (at == name))
        if len(met) >= int(number or 1):
            raise EndedError

    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "crash_point", meet)
        yield met
