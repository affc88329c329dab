"""`bulkhead preflight` opens no file for writing, and works for a user without root's rights."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.waits.deadline import WAIT_SECONDS

# The first examination imports what is imported late, which another user could perhaps not read.
PROGRAM = """
import json, os, sys
from services.cli.preflight.examination import Options, examine

changes = []
names = "chmod chown link mkdir remove rename rmdir symlink truncate".split()

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (bytes, str)) and os.fsdecode(arguments[0]) != os.devnull:
        if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            changes.append(str(arguments))
    elif event in ["os." + name for name in names]:
        changes.append(f"{event} {arguments}")

options = Options(flags=tuple(sys.argv[1:]), timeout=30)
examine(options)
sys.addaudithook(hook)
found = [[finding.what for finding in examine(options).findings]]
if os.geteuid() == 0:
    os.setuid(65534)
found.append([finding.what for finding in examine(options).findings])
print(json.dumps({"changes": changes, "found": found}))
"""
FLAGS = ("--fail-swap-on=false", "--container-runtime-endpoint=unix:///nowhere.sock", "--pod-manifest-path=/nowhere")


@pytest.mark.timeout(300)
def test_preflight_changes_nothing_and_needs_no_root() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *FLAGS], capture_output=True, text=True, check=False, timeout=4 * WAIT_SECONDS,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    shown = json.loads(answer.stdout)
    assert shown["changes"] == []
    with_rights, without = shown["found"]
    assert not [line for line in (*with_rights, *without) if line.startswith("the check of ")]
    assert "this command runs without root's rights" in without
