"""Has what tests of processes share: an executable `kubelet`, authorities of TLS, and event loops by a mark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.event_loops import pytest_asyncio_loop_factories
from tests.process.kubelet_process import Kubelet
from tests.process.tls_site import Site

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with Kubelet() as kubelet:
        yield kubelet


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
