"""The process of a service, as its lock file and /proc show it."""

import json
import os
from pathlib import Path

import pytest

from services.report import processes
from services.report.processes import lock_path, process_of
from shared.process.identity import identity_of


def test_the_memory_is_read_again_only_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def memory(process: Path) -> int:
        read.append(process)
        return 5 << 20

    monkeypatch.setattr(processes, "_memory", memory)
    lock = lock_path(str(tmp_path), "pleg")
    lock.parent.mkdir()
    record = {"pid": os.getpid(), "process": identity_of(os.getpid()), "supervisord": "", "starts": []}
    lock.write_text(json.dumps(record))
    first = process_of(str(tmp_path), "pleg")
    again = process_of(str(tmp_path), "pleg", first)
    assert (first.memory, again.memory, len(read)) == (5 << 20, 5 << 20, 1)
    assert again.holder == first.holder and again.cpu is not None
    lock.write_text(json.dumps(record | {"supervisord": "the next one"}))
    assert process_of(str(tmp_path), "pleg", first).memory == 5 << 20 and len(read) == 2
