"""What the host is: memory and architecture, from the kernel."""

import platform
from pathlib import Path

import pytest

from shared.host.machine import architecture, meminfo


def test_memory_is_bytes_by_name(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:    8 kB\nSwapTotal: 0 kB\nHugePages_Total:  3\nBroken:\nWord: x kB\n")
    assert meminfo(tmp_path) == {"MemTotal": 8192, "SwapTotal": 0}


def test_memory_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert meminfo(tmp_path) == {}


@pytest.mark.parametrize(("machine", "expected"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("s390x", "s390x")])
def test_the_architecture_has_the_name_that_go_gives_it(
    monkeypatch: pytest.MonkeyPatch, machine: str, expected: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert architecture() == expected
