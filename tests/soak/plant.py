"""A leak made on purpose, so that the soak is known to find leaks: a process that hoards, or mounts that stay."""

import subprocess
import sys
from pathlib import Path

_HOARDER = """
import sys
kept = []
print("here", flush=True)
for line in sys.stdin:
    kept.append(open("/dev/null") if sys.argv[1] == "fd" else bytearray(b"x") * (24 << 20))
    print("grown", flush=True)
"""
KINDS = ("fd", "mount", "memory")


class Plant:
    """`grow` leaks one more. A mount is below the agent's home; the others are in a process of their own, `pid`."""

    def __init__(self, kind: str) -> None:
        if kind not in KINDS:
            raise ValueError(kind)
        self._kind, self.pid = kind, 0
        self._mounts: list[Path] = []
        self._process: subprocess.Popen[str] | None = None
        if kind != "mount":
            command = [sys.executable, "-c", _HOARDER, kind]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.pid = self._process.pid
            self._await_line()

    def grow(self, home: Path) -> None:
        """Leak once more; has happened when this returns."""
        if self._process is None:
            place = home / "kubelet" / "pods" / f"planted-{len(self._mounts)}"
            place.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "planted", str(place)], check=True)
            self._mounts.append(place)
        else:
            assert self._process.stdin is not None
            self._process.stdin.write("more\n")
            self._process.stdin.flush()
            self._await_line()

    def end(self) -> None:
        """Take everything back."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        for place in self._mounts:
            subprocess.run(["umount", str(place)], check=False, capture_output=True)

    def _await_line(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.stdout.readline()
