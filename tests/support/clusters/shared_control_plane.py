"""Lends a control plane to one test after the other, for the start of etcd and an API server costs two CPU seconds.

Each test finds it as if it was new: etcd holds what it held before the first test, and the controllers have started
again. One at most is kept for the next test, and only while no other is in use. It is not lent again when a test has
stopped or paused its API server, or when the next test wants one with other arguments.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

from tests.support.clusters.control_plane import ControlPlane
from tests.support.clusters.double_plane import DoublePlane

_lenders: list["_Lender"] = []


class _Lender:
    """Has the control plane that is kept. `place`: for the files of control planes."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._kept: tuple[dict[str, Any], ControlPlane] | None = None  # with its arguments
        self._in_use = 0

    def lend(self, directory: Path, arguments: dict[str, Any]) -> ControlPlane:
        """Return one with these arguments, which may not have started yet."""
        self._in_use += 1
        if self._kept is not None and self._kept[0] == arguments:
            plane, self._kept = self._kept[1], None
            return plane
        self.end()
        place = Path(tempfile.mkdtemp(prefix="plane-", dir=self._place))
        return ControlPlane(directory, place=place, **arguments)

    async def take_back(self, plane: ControlPlane, arguments: dict[str, Any]) -> None:
        """Keep it for the next test, or kill it."""
        self._in_use -= 1
        kept = False
        try:
            if not plane.hurt and not self._in_use:
                await plane.put_back()
                kept = True
        finally:
            if kept:
                self._kept = arguments, plane
            else:
                plane.kill()

    def end(self) -> None:
        """Kill the one that is kept."""
        if self._kept is not None:
            self._kept[1].kill()
            self._kept = None


@contextmanager
def lending(place: Path) -> Iterator[None]:
    """Let `control_plane` lend while the block runs. `place`: for the files of the control planes."""
    _lenders.append(lender := _Lender(place))
    try:
        yield
    finally:
        _lenders.remove(lender)
        lender.end()


def is_double() -> bool:
    """Return whether TEST_API_SERVER chooses the API server's double in place of a control plane."""
    return os.environ.get("TEST_API_SERVER") == "double"


@asynccontextmanager
async def control_plane(directory: Path, **arguments: Any) -> AsyncIterator[ControlPlane]:
    """Yield a control plane whose kubeconfigs are below `directory`. The `arguments` are those of ControlPlane. With
    `is_double` it is the double, which has none of them: a test that gives one fails at once."""
    if is_double():
        assert not arguments, f"the API server's double has no {', '.join(arguments)}"
        async with DoublePlane(directory) as double:
            yield cast(ControlPlane, double)
        return
    if not _lenders:
        async with ControlPlane(directory, **arguments) as plane:
            yield plane
        return
    plane = _lenders[-1].lend(directory, arguments)
    try:
        await plane.begin(directory)
        yield plane
    finally:
        try:
            await plane.end_use()
        finally:
            await _lenders[-1].take_back(plane, arguments)
