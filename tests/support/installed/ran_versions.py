"""Notes with which versions of what a node needs the tests of this run pass, for the table of docs/versions.md.

A test counts for a version when what has it ran during the test: agents, clusters and machines report what they are as
they start and end. `python -m tests.support.installed.ran_versions` takes what the last runs have noted into the table.
"""

import hashlib
import json
import os
import platform
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
from cri_api.v1 import api_pb2, api_pb2_grpc

from tests.support.installed.chosen_programs import chosen_handler, chosen_suite, first_line
from tools.home import CHECKOUT

PARTS = (
    "Linux", "cgroups", "systemd", "Debian", "containerd", "runc", "crun", "Python", "kubectl", "API server",
)  # fmt: skip
RECORD = CHECKOUT / "tests/records/versions.json"
PAGE = CHECKOUT / "docs/versions.md"
_NOTES = CHECKOUT / "build/versions"
# Variables of the machines of the tests, for tools/machine-root.
_PARTS_OF_MACHINES = ("MACHINE_SUITE", "MACHINE_KERNEL", "MACHINE_CONTAINERD", "MACHINE_RUNC", "MACHINE_HANDLER")
_ANSWER_SECONDS = 60.0
_BEGIN, _END = "<!-- written by `python -m tests.support.installed.ran_versions` -->\n", "<!-- end -->\n"

Ran = tuple[str, str]  # part, version

_running: Counter[Ran] = Counter()  # with the number of those that run
_used: set[Ran] = set()  # in the test that runs
_passed: dict[str, Counter[Ran]] = {}  # test file -> with the number of tests


def note_use(part: str, version: str) -> None:
    """Note that the test that runs uses this version of the part."""
    assert part in PARTS, part
    _used.add((part, version))


def begin_use(part: str, version: str) -> Ran:
    """Note that this test uses the version, and each test until `end_use` is called with what is returned."""
    note_use(part, version)
    _running[part, version] += 1
    return part, version


def end_use(ran: Ran) -> None:
    """Stop noting what `begin_use` returned: it has ended."""
    _running[ran] -= 1
    if not _running[ran]:
        del _running[ran]


def extract_version(text: str) -> str:
    """Return the version in what a program prints, without what a distribution adds; "" where there is none."""
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else ""


def begin_test() -> None:
    """Forget what the test before has used."""
    _used.clear()
    _used.update(_running)


def end_test(file: str) -> None:
    """Count the versions that were used for this file, of which a test has passed."""
    if _used:
        _passed.setdefault(file, Counter()).update(_used)


def read_this_machine() -> list[Ran]:
    """Return the versions that every agent runs on which is not in a machine of the tests."""
    controllers = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    hybrid = Path("/sys/fs/cgroup/unified").is_mount()
    return [
        ("Linux", extract_version(platform.release())),
        ("cgroups", "v2" if controllers else "v1, hybrid" if hybrid else "v1"),
        ("Python", platform.python_version()),
    ]


# A machine of the tests runs this: it prints a line for each part that is installed. The package depends on a Python of
# one version, which need not bring `python3`.
MACHINE_SCRIPT = """\
echo "Linux $(uname -r)"
echo "Debian $(cat /etc/debian_version)"
systemctl --version | head -n 1
for program in containerd runc; do command -v $program >/dev/null && $program --version | head -n 1; done
for python in python3 python3.13 python3.12 python3.11; do $python --version 2>/dev/null && break; done
true
"""


def parse_machine(printed: str) -> list[Ran]:
    """Return the versions in what MACHINE_SCRIPT has printed in a machine, whose cgroups are v2 alone."""
    found = [("cgroups", "v2")]
    for line in printed.splitlines():
        part, _, rest = line.partition(" ")
        if part in PARTS and (version := extract_version(rest)):
            found.append((part, version))
    return found


def begin_node(socket: str) -> list[Ran]:
    """Note what an agent or a containerd on this machine uses, until `end_use` is called with each that is returned."""
    return [begin_use(*ran) for ran in (*read_this_machine(), *ask_containerd(socket))]


def ask_containerd(socket: str) -> list[Ran]:
    """Return the version of the containerd at this socket, and that of the program that runs its containers."""
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        found = api_pb2_grpc.RuntimeServiceStub(channel).Version(api_pb2.VersionRequest(), timeout=_ANSWER_SECONDS)
    handler = chosen_handler()
    return [
        (found.runtime_name, extract_version(found.runtime_version)),
        (handler, extract_version(first_line(handler, "--version"))),
    ]


def write_notes(keyword: str) -> None:
    """Write what this run has noted, one file for each test file and choice of programs; a later run replaces it.

    `keyword`: that of pytest's -k. With one nothing is written, for it would replace the notes of all tests of a file.
    """
    if keyword:
        return
    _NOTES.mkdir(parents=True, exist_ok=True)
    parts = [f"{name}={os.environ[name]}" for name in _PARTS_OF_MACHINES if os.environ.get(name)]
    for file, counts in _passed.items():
        name = hashlib.sha256(" ".join([file, chosen_suite(), chosen_handler(), *parts]).encode()).hexdigest()[:24]
        ran = sorted([part, version, count] for (part, version), count in counts.items())
        scratch = _NOTES / f".{name}.{os.getpid()}"
        scratch.write_text(json.dumps({"file": file, "ran": ran}))
        scratch.rename(_NOTES / f"{name}.json")


def render_run() -> str:
    """Return one line about the versions of this run, for its end; "" where nothing ran."""
    parts: dict[str, set[str]] = {}
    for counts in _passed.values():
        for part, version in counts:
            parts.setdefault(part, set()).add(version)
    return ", ".join(f"{part} {' and '.join(sorted(parts[part]))}" for part in PARTS if part in parts)


def merge_notes(notes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each part and version: how many tests of which lanes passed with it."""
    rows: dict[Ran, Counter[str]] = {}
    for one in notes:
        lane = "/".join(Path(one["file"]).parts[:2])
        for part, version, count in one["ran"]:
            rows.setdefault((part, version), Counter())[lane] += count
    return [
        {"part": part, "version": version, "tests": dict(sorted(rows[part, version].items()))}
        for part, version in sorted(rows, key=lambda ran: (PARTS.index(ran[0]), _numbers(ran[1])))
    ]


def render_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    lines = ["| part | version | tests that passed with it |", "|---|---|---|"]
    for row in rows:
        tests = ", ".join(f"{count} of `{lane}`" for lane, count in row["tests"].items())
        lines.append(f"| {row['part']} | {row['version']} | {tests} |")
    return "\n".join(lines) + "\n"


def render_page(text: str, rows: list[dict[str, Any]]) -> str:
    """Return the document with this table in the place of its own."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{render_table(rows)}\n{_END}{rest.partition(_END)[2]}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main() -> int:
    """Write the record and the table from the notes."""
    notes = [json.loads(file.read_text()) for file in sorted(_NOTES.glob("*.json"))]
    if not notes:
        print(f"{_NOTES}: no run has noted anything: run make test", file=sys.stderr)
        return 1
    RECORD.write_text(json.dumps(merge_notes(notes), indent=1) + "\n")
    PAGE.write_text(render_page(PAGE.read_text(), merge_notes(notes)))
    print(f"wrote {RECORD} and {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
