"""Notes with which versions of what a node needs the tests of this run pass, for the table of docs/versions.md.

A test counts for a version when what has it ran during the test: agents, clusters and machines report what they are as
they start and end. `python -m tests.support.installed.ran_versions [DIRECTORY ...]` takes the notes in directories, by
default in build/versions of this checkout, into the record and the table. The record keeps the newest note of each test
file with each choice of programs, so that parts of the tests may run one by one, and in several checkouts.
"""

import argparse
import hashlib
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import grpc
import msgspec
from cri_api.v1 import api_pb2, api_pb2_grpc

from tests.support.installed.chosen_programs import chosen_handler, chosen_suite, first_line, runs_in_docker
from tools.home import CHECKOUT

PARTS = (
    "Linux", "cgroups", "systemd", "Debian", "containerd", "Docker", "runc", "crun", "Python", "kubectl", "API server",
)  # fmt: skip
RECORD = CHECKOUT / "tests/records/versions.json"
PAGE = CHECKOUT / "docs/versions.md"
_NOTES = CHECKOUT / "build/versions"
# Variables of the machines of the tests, for tools/machine-root.
_PARTS_OF_MACHINES = ("MACHINE_SUITE", "MACHINE_KERNEL", "MACHINE_CONTAINERD", "MACHINE_RUNC", "MACHINE_HANDLER")
_ANSWER_SECONDS = 60.0
_BEGIN, _END = "<!-- written by `python -m tests.support.installed.ran_versions` -->\n", "<!-- end -->\n"

Ran = tuple[str, str]  # part, version


class Note(msgspec.Struct, frozen=True):
    """What the tests of one file passed with in one run. `choice`: NAME=VALUE of what was chosen for it; `at`: when the
    run ended (UTC, "2026-11-30T05:00:00Z"); `ran`: part, version, and the number of tests that passed with it."""

    file: str
    choice: str
    at: str
    ran: list[tuple[str, str, int]]


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


def end_test(file: str, *, passed: bool) -> None:
    """Count the versions that were used for this file, of which a test has passed or failed."""
    if not passed:
        _passed.setdefault(file, Counter())
    elif _used:
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
for program in containerd dockerd runc; do command -v $program >/dev/null && $program --version | head -n 1; done
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


def begin_docker(version: str) -> list[Ran]:
    """Note what a Docker of this version on this machine uses, as `begin_node` does."""
    return [begin_use(*ran) for ran in (*read_this_machine(), ("Docker", extract_version(version)))]


def ask_containerd(socket: str) -> list[Ran]:
    """Return the version of the containerd at this socket, and that of the program that runs its containers."""
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        found = api_pb2_grpc.RuntimeServiceStub(channel).Version(api_pb2.VersionRequest(), timeout=_ANSWER_SECONDS)
    handler = chosen_handler()
    return [
        (found.runtime_name, extract_version(found.runtime_version)),
        (handler, extract_version(first_line(handler, "--version"))),
    ]


def choice_for(file: str) -> str:
    """Return what this run has chosen of what tests of this file run on. Those in machines use none of our programs."""
    if file.startswith("tests/machine/"):
        chosen = {name: os.environ.get(name) for name in _PARTS_OF_MACHINES}
    else:
        chosen = {"TEST_CONTAINERD": chosen_suite(), "TEST_HANDLER": chosen_handler()}
        chosen |= {"TEST_RUNTIME": "docker"} if runs_in_docker() else {}
    return " ".join(f"{name}={value}" for name, value in chosen.items() if value)


def write_notes(*, partial: bool) -> None:
    """Write what this run has noted, one file for each test file and choice of programs of which a test has passed; a
    later run replaces it. Where only some tests of a file have run (`partial`), nothing: it would replace what is noted
    of all of them."""
    if partial:
        return
    _NOTES.mkdir(parents=True, exist_ok=True)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for file, counts in ((file, counts) for file, counts in _passed.items() if counts):
        note = Note(file, choice_for(file), now, sorted((*ran, count) for ran, count in counts.items()))
        name = hashlib.sha256(f"{note.file} {note.choice}".encode()).hexdigest()[:24]
        scratch = _NOTES / f".{name}.{os.getpid()}"
        scratch.write_bytes(msgspec.json.encode(note))
        scratch.rename(_NOTES / f"{name}.json")


def render_run() -> str:
    """Return one line about the versions of this run, for its end; "" where nothing ran."""
    parts: dict[str, set[str]] = {}
    for counts in _passed.values():
        for part, version in counts:
            parts.setdefault(part, set()).add(version)
    return ", ".join(f"{part} {' and '.join(sorted(parts[part]))}" for part in PARTS if part in parts)


def newest_notes(notes: Iterable[Note]) -> list[Note]:
    """Return the note of the last run of each test file with each choice, sorted by these. Without those of files that
    are gone, and of runs in which nothing has passed."""
    newest = {(note.file, note.choice): note for note in sorted(notes, key=lambda note: note.at)}
    return [newest[key] for key in sorted(newest) if newest[key].ran and (CHECKOUT / key[0]).exists()]


def render_table(notes: Iterable[Note]) -> str:
    """Return a table of Markdown with one row for each part and version: how many tests of which lanes passed with it,
    and the day of the last of their runs."""
    lanes: dict[Ran, Counter[str]] = {}
    days: dict[Ran, str] = {}
    for note in notes:
        lane = "/".join(Path(note.file).parts[:2])
        for part, version, count in note.ran:
            lanes.setdefault((part, version), Counter())[lane] += count
            days[part, version] = max(note.at[:10], days.get((part, version), ""))
    lines = ["| part | version | tests that passed with it | last |", "|---|---|---|---|"]
    for part, version in sorted(lanes, key=lambda ran: (PARTS.index(ran[0]), _numbers(ran[1]), ran[1])):
        tests = ", ".join(f"{count} of `{lane}`" for lane, count in sorted(lanes[part, version].items()))
        lines.append(f"| {part} | {version} | {tests} | {days[part, version]} |")
    return "\n".join(lines) + "\n"


def render_page(text: str, notes: Iterable[Note]) -> str:
    """Return the document with the table of these notes in the place of its own."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{render_table(notes)}\n{_END}{rest.partition(_END)[2]}"


def read_record() -> list[Note]:
    """Return the notes of the record."""
    return msgspec.json.decode(RECORD.read_bytes(), type=list[Note])


def render_record(notes: Iterable[Note]) -> bytes:
    """Return the record with these notes, each on a line of its own."""
    return b"[\n" + b",\n".join(msgspec.json.encode(note) for note in notes) + b"\n]\n"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main() -> int:
    """Add the notes to the record, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.installed.ran_versions", description=__doc__)
    parser.add_argument("directories", nargs="*", type=Path, default=[_NOTES], metavar="DIRECTORY")
    notes = read_record()
    for directory in parser.parse_args().directories:
        if not (files := sorted(directory.glob("*.json"))):
            print(f"{directory}: no run has noted anything: run make test", file=sys.stderr)
            return 1
        for file in files:
            try:
                notes.append(msgspec.json.decode(file.read_bytes(), type=Note))
            except msgspec.MsgspecError as error:
                print(f"{file}: {error}: not a note of these tests, remove it", file=sys.stderr)
                return 1
    notes = newest_notes(notes)
    RECORD.write_bytes(render_record(notes))
    PAGE.write_text(render_page(PAGE.read_text(), notes))
    print(f"wrote {RECORD} and {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
