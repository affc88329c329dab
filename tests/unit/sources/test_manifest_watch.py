"""What the watch of the static pod path notices: directories that appear at any moment, files that are renamed into
place."""

import asyncio
from pathlib import Path

import pytest

from services.sources.adapters.manifest_watch import ManifestWatch
from tests.support.waits.deadline import WAIT_SECONDS


class Watching:
    """A watch, and the event that it sets."""

    def __init__(self, path: Path) -> None:
        self.changed = asyncio.Event()
        self.watch = ManifestWatch(str(path), self.changed.set)

    async def notices(self) -> None:
        """Wait until it has noticed a change."""
        running = asyncio.create_task(self.watch.run())
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self.changed.wait()
        finally:
            running.cancel()
            self.watch.close()


async def test_directories_that_are_made_while_the_watch_begins_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a" / "b"
    watching = Watching(path)
    nearest = ManifestWatch._nearest_parent

    def made_meanwhile(self: ManifestWatch) -> tuple[Path, str]:
        found = nearest(self)
        path.parent.mkdir(exist_ok=True)
        return found

    monkeypatch.setattr(ManifestWatch, "_nearest_parent", made_meanwhile)
    assert watching.watch.arm() is None
    path.mkdir()
    await watching.notices()


async def test_a_file_that_is_renamed_into_the_directory_is_noticed(tmp_path: Path) -> None:
    """As every program that writes atomically does; no other event names the file."""
    path, elsewhere = tmp_path / "manifests", tmp_path / "elsewhere"
    path.mkdir()
    elsewhere.mkdir()
    (elsewhere / "pod.yaml").write_text("")
    watching = Watching(path)
    assert watching.watch.arm() is None
    (elsewhere / "pod.yaml").rename(path / "pod.yaml")
    await watching.notices()
