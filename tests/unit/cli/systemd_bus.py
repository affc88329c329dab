"""A systemd for tests of the commands: a `busctl` in PATH that answers with the properties of one unit."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from services.cli.systemd import control
from services.cli.systemd.control import object_path


def started_by(path: str, *words: str, prefixes: tuple[str, ...] = ()) -> list[Any]:
    """ExecStartEx of a unit with one command."""
    return [[path, [path, *words], list(prefixes), 0, 0, 0, 0, 0, 0, 0]]


def properties(*words: str, program: str = "/usr/bin/kubelet", **others: Any) -> dict[str, Any]:
    """Those of a kubelet's unit that runs, by name."""
    return {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "MainPID": 4711,
        "NeedDaemonReload": False,
        "ExecStartEx": started_by(program, *words),
        "Type": "simple",
        "KillMode": "control-group",
        **others,
    }


def boot(directory: Path, monkeypatch: pytest.MonkeyPatch, unit: str = "", found: dict[str, Any] | None = None) -> Path:
    """Let a systemd run that has only `unit`, with these properties. Return its busctl."""
    for name, values in (("found", found or {}), ("absent", {"LoadState": "not-found", "ExecStartEx": []})):
        typed = {key: {"type": "?", "data": value} for key, value in values.items()}
        (directory / name).write_text(json.dumps({"type": "a{sv}", "data": [typed]}))
    program = directory / "busctl"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "--json=short call org.freedesktop.systemd1 {object_path(unit)} '
        f'org.freedesktop.DBus.Properties GetAll s " ] && exec cat {directory}/found\nexec cat {directory}/absent\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)
    monkeypatch.setattr(control, "BOOTED", directory)
    return program
