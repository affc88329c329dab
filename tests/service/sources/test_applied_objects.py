"""ConfigMaps and Secrets of files: what is answered while the files are read."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from bus.messages.sources import GetObject
from bus.messages.streams import OBJECTS_CHANGED
from services.sources.controllers.applied_objects import AppliedObjects
from services.sources.core import applied_data
from services.sources.core.file_source import ManifestFile
from services.sources.core.yaml_document import read_document
from tests.fakes.memory_bus import MemoryNetwork
from tests.support.waits.deadline import WAIT_SECONDS

DIRECTORY = "/manifests"
FILE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: b}}\n"


def files(*names: str) -> dict[str, ManifestFile]:
    paths = {f"{DIRECTORY}/configmap.default.{name}": FILE.format(name=name).encode() for name in names}
    return {path: ManifestFile(path=path, content=content) for path, content in paths.items()}


class Reading:
    """Reads of the file of ConfigMap `large` do not return before `going` is set."""

    def __init__(self) -> None:
        self.entered, self.going = threading.Event(), threading.Event()

    def read(self, content: bytes) -> object:
        if b"large" in content:
            self.entered.set()
            assert self.going.wait(60), "the event loop waits for the file"
        return read_document(content)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    reading = Reading()
    monkeypatch.setattr(applied_data, "read_document", reading.read)
    yield reading
    reading.going.set()


@pytest.mark.parametrize("before", [(), ("small",)])
async def test_a_request_is_answered_from_the_last_look_while_a_large_file_is_read(
    reading: Reading, before: tuple[str, ...]
) -> None:
    bus = MemoryNetwork().bus("sources")
    applied = AppliedObjects(DIRECTORY, bus.own(OBJECTS_CHANGED))
    await bus.start()
    if before:
        await applied.take(files(*before))
    taking = asyncio.create_task(applied.take(files("small", "large")))
    async with asyncio.timeout(WAIT_SECONDS):
        while not reading.entered.is_set():
            await asyncio.sleep(0.01)
    small, large = (applied.get(GetObject(kind="ConfigMap", namespace="default", name=n)) for n in ("small", "large"))
    assert (small.object is not None, large.object) == (bool(before), None)
    assert large.not_found is bool(before)  # before the first look has ended, nothing is known to be missing
    reading.going.set()
    assert await taking == ({}, ())
    assert applied.get(GetObject(kind="ConfigMap", namespace="default", name="large")).object is not None
