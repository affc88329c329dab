"""tools/machine-root with doubles of the programs that need Debian: what an interrupted or killed run leaves, and what
it says where Debian cannot be had."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT
from tools.leftovers import alive, end_processes, wait_until

# It notes itself and a program that it starts, in the directory that it fills, and needs as long as there is `slow`.
_MMDEBSTRAP = """\
#!/bin/sh
for tree; do :; done
mkdir -p "$tree/etc/apt"
echo "deb [signed-by=/key] http://archive/debian bookworm main" > "$tree/etc/apt/sources.list"
for option; do case $option in --setup-hook=*) sh -c "${option#*=}" sh "$tree" || exit 1;; esac; done
end=:
[ ! -e "$PLACE/slow" ] || end=wait
sleep 1000 &
echo $$ $! > "$PLACE/noted"
mv "$PLACE/noted" "$PLACE/processes"
$end
kill $!
printf '#!/bin/sh\n' > "$tree/linux"
chmod +x "$tree/linux"
"""
_MKE2FS = '#!/bin/sh\nfor disk; do case $disk in *.ext4) touch "$disk";; esac; done\n'
_NO_DEBIAN = """\
#!/bin/sh
for file; do case $file in http:*) echo "E: Failed to fetch $file  Temporary failure" >&2;; esac; done
echo "E: Download Failed" >&2
exit 100
"""


class Roots:
    """A cache of roots, and doubles on PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = directory / "cache/bulkhead"
        self.slow = directory / "slow"
        self.started: list[int] = []
        (directory / "bin").mkdir()
        for name, text in (("mmdebstrap", _MMDEBSTRAP), ("mke2fs", _MKE2FS), ("apt-helper", "#!/bin/sh\n")):
            self.replace(name, text)

    def replace(self, name: str, text: str) -> None:
        path = self.directory / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def start(self) -> "subprocess.Popen[str]":
        others = {name: value for name, value in os.environ.items() if not name.startswith("MACHINE_")}
        variables = {
            **others, "PATH": f"{self.directory}/bin:{os.environ['PATH']}", "PLACE": str(self.directory),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
        }  # fmt: skip
        return subprocess.Popen(
            # A run of tests in the background ignores SIGINT, and a shell cannot trap what it has inherited so.
            ["env", "--default-signal=INT", CHECKOUT / "tools/machine-root", "bookworm", "install", "one"],
            env=variables, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def start_slowly(self) -> tuple["subprocess.Popen[str]", list[int]]:
        """A run in the middle of its work, and what it has started."""
        self.slow.touch()
        run, noted = self.start(), self.directory / "processes"
        assert wait_until(noted.exists, WAIT_SECONDS), run.communicate(timeout=WAIT_SECONDS)
        processes = [int(pid) for pid in noted.read_text().split()]
        noted.unlink()
        self.started += processes
        assert all(map(alive, processes))
        self.slow.unlink()
        return run, processes

    def names(self) -> list[str]:
        """What is in the cache, except for locks."""
        return sorted(path.name for path in self.cache.iterdir() if path.is_dir())


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    roots = Roots(tmp_path)
    yield roots
    end_processes(pid for pid in roots.started if alive(pid))


def test_an_interrupted_run_ends_what_it_has_started_and_leaves_no_directory(roots: Roots) -> None:
    run, processes = roots.start_slowly()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    assert run.communicate(timeout=WAIT_SECONDS) == ("", "")
    assert run.returncode == 130
    assert wait_until(lambda: not any(map(alive, processes)), WAIT_SECONDS)
    assert roots.names() == []


def test_what_a_killed_run_has_started_ends_and_the_next_run_builds_apart_from_it(roots: Roots) -> None:
    run, processes = roots.start_slowly()
    [half] = roots.cache.glob("*.building*")
    run.kill()
    run.communicate(timeout=WAIT_SECONDS)
    assert wait_until(lambda: not any(map(alive, processes)), WAIT_SECONDS)
    run, _ = roots.start_slowly()
    [building] = roots.cache.glob("*.building*")
    assert building != half
    run.terminate()
    run.communicate(timeout=WAIT_SECONDS)
    built, errors = roots.start().communicate(timeout=WAIT_SECONDS)
    assert (sorted(path.name for path in Path(built.strip()).iterdir()), errors) == (["linux", "root.ext4"], "")
    assert roots.names() == [Path(built.strip()).name]


def test_a_machine_without_a_way_to_debian_is_told_so_in_one_line_before_anything_is_built(roots: Roots) -> None:
    roots.replace("apt-helper", _NO_DEBIAN)
    run = roots.start()
    _, errors = run.communicate(timeout=WAIT_SECONDS)
    assert run.returncode == 1
    assert errors == (
        "machine-root: Debian bookworm cannot be installed: "
        "E: Failed to fetch http://archive/debian/dists/bookworm/InRelease  Temporary failure\n"
    )
    assert not (roots.directory / "processes").exists()  # nothing was installed
    assert roots.names() == []
