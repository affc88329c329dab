"""`python -m tests.night [PART ...]`, which `make night` runs: every test, then what takes hours.

Without a name all parts run, one after the other. One that fails ends no other one; the last line names those that
failed, and the exit code is then 1. `--list` prints the name and the command of each part, to run it by hand.
Ctrl-C and SIGTERM interrupt the part that runs, which then removes what it has made; the exit code is 130.
`build/night` has a junit file of each part that is one pytest.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Part:
    """One command, in the checkout, with these additions to the environment. `{scratch}` is a directory of its own,
    `{part}` its name."""

    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def named(self, name: str) -> "Part":
        """Return this part with its name in its command."""
        return replace(self, command=[word.replace("{part}", name) for word in self.command])

    def __str__(self) -> str:
        return shlex.join([*(f"{name}={value}" for name, value in self.variables.items()), *self.command])


def python(*arguments: str, **variables: str) -> Part:
    """A module of the tests or tools."""
    return Part([sys.executable, "-m", *arguments], variables)


def pytest(*files: str, **variables: str) -> Part:
    """Some files of tests."""
    shown = ("--durations=12", "--durations-min=5", "--junit-xml=build/night/{part}.xml")
    return python("pytest", "--basetemp={scratch}/t", *shown, *files, **variables)


# Some tests of each kind on crun, which the containerd of Debian 12 needs, and which runs in no hybrid cgroups.
CRUN = (
    "umount /sys/fs/cgroup/unified 2>/dev/null;"
    ' exec "$0" -m tests.queue --build build/tests-crun -m versions'
    " $(grep -rl pytest.mark.versions tests/e2e tests/process)"
)
# Tests of single pods on a node that runs Docker behind the shim, and of what users do with pods of such a node.
_NODE_FILES = [
    "streaming",
    "kubectl_session",
    "latency",
    "resize",
    "eviction",
    "disk_pressure",
    "image_pulls",
    "local_volumes",
    "recorded_pods",
]
ON_DOCKER = (
    "tests/e2e/behaviour",
    "tests/e2e/joined/test_usage.py",
    *(f"tests/e2e/test_{name}.py" for name in _NODE_FILES),
)
# A node alone in a machine, and what `make test` runs in machines (IN_MACHINES in the Makefile). `apt install` in
# test_package.py installs containerd and runc itself, so that other ones are not what it runs on.
NODE = "tests/machine/test_node.py"
LANE = [f"tests/machine/test_{name}.py" for name in ("apparmor", "cluster", "on_cgroup_v2", "purge")]
PACKAGE = "tests/machine/test_package.py"
USER_NAMESPACES = "tests/machine/test_user_namespaces.py"
PARTS: dict[str, Part] = {
    "test": Part(["make", "test"]),
    "crun": Part(
        ["unshare", "--mount", "bash", "-c", CRUN, sys.executable],
        {"TEST_CONTAINERD": "bookworm", "TEST_HANDLER": "crun"},
    ),
    "docker": python("tests.queue", "--build", "build/tests-docker", *ON_DOCKER, TEST_RUNTIME="docker"),
    # Machines one part of which is another one: kernel 6.12, kernel 7.2 (on which `make test` has run the lane), the
    # newest containerd, crun. The latter two have kernel 7.2, which takes less than half of the CPU. Debian 13 has
    # Python 3.13, kernel 6.12, containerd 1.7 and systemd 257.
    "kernel-trixie": pytest(NODE, *LANE, MACHINE_KERNEL="trixie"),
    "kernel-sid": pytest(NODE, MACHINE_KERNEL="sid"),
    "containerd-sid": pytest(NODE, *LANE, MACHINE_CONTAINERD="sid", MACHINE_KERNEL="sid"),
    "machine-crun": pytest(NODE, *LANE, MACHINE_HANDLER="crun", MACHINE_KERNEL="sid"),
    "debian-13": pytest(PACKAGE, NODE, *LANE, MACHINE_SUITE="trixie"),
    "user-namespaces": pytest(USER_NAMESPACES, MACHINE_SUITE="trixie", MACHINE_CONTAINERD="sid", MACHINE_RUNC="sid"),
    "simulate": python("tests.simulation", "--seeds", "10000", "--jobs", "2"),
    "coverage": python("tools.coverage_ratchet"),
    "mutate-cores": python("tests.support.source.mutation", "--count", "400", "--minutes", "90"),
    "mutate-shells": python("tests.support.source.mutation", "--shells", "--count", "200", "--minutes", "90"),
    "chaos": python("tests.chaos", "--points", "--pairs"),
    "supervisord-kills": pytest("tests/process/test_supervisord_kills.py", SUPERVISORD_KILLS="50"),
    "machine": Part(["make", "machine"]),
    "soak": python("tests.soak", "--minutes", "120"),
    "client-certificates": pytest("tests/process/test_client_certificates_by_python.py"),
}


def run_parts(parts: Mapping[str, Part]) -> list[str]:
    """Run each part to its end; the names of those that failed."""
    failed = []
    for name, part in parts.items():
        print(f"night: {name}: {part}", flush=True)
        with tempfile.TemporaryDirectory(prefix="bulkhead-", ignore_cleanup_errors=True) as scratch:
            command = [word.replace("{scratch}", scratch) for word in part.command]
            environment = {**os.environ, **part.variables}
            environment.pop("MAKEFLAGS", None)  # it has the ARGS of `make night`
            began = time.monotonic()
            if code := _run(command, environment):
                failed.append(name)
        verdict = f"failed with exit code {code}" if code else "passed"
        print(f"night: {name}: {verdict} after {time.monotonic() - began:.0f} s", flush=True)
    return failed


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end, and return its exit code. A command that is interrupted is waited for, because it
    removes what it has made."""
    process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, process_group=0)
    try:
        return process.wait()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        raise


def main() -> int:
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.night", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(PARTS))
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"no part {' '.join(unknown)}: {', '.join(PARTS)}")
    chosen = {name: PARTS[name].named(name) for name in given.parts or PARTS}
    if given.list:
        print("\n".join(f"{name}: {part}" for name, part in chosen.items()))
        return 0
    os.environ.setdefault("NIGHT", "1")
    for number in (signal.SIGINT, signal.SIGTERM):  # a run in the background ignores SIGINT, and so would its parts
        signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("FIRST_SEED", str(int(time.time())))
    try:
        failed = run_parts(chosen)
    except KeyboardInterrupt:
        return 130
    if failed:
        print(f"bulkhead: parts of the night failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
