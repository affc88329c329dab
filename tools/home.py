"""Makes the one directory that holds all files of an agent, from the files in examples/.

Knows the files of the checkout and the places that `shared.agent.places` derives from a home; starts nothing."""

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from tools.leftovers import HOME_MARKER

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLES = CHECKOUT / "examples" / "manifests"
# The text of the marker before and after the example pod was added. In a home of an earlier version it is empty.
_EXAMPLES_TO_COME, _WITH_EXAMPLES = "the example pod is to come\n", "with the example pod\n"
MAX_SOCKET_PATH_BYTES = 107  # that the kernel takes


@dataclass(frozen=True)
class Home:
    """An agent's home. `path` is absolute."""

    path: Path

    @property
    def supervisord_conf(self) -> Path:
        return self.path / "supervisord.conf"

    @property
    def run_dir(self) -> Path:
        return self.path / "run"

    @property
    def log_dir(self) -> Path:
        return self.path / "log"

    @property
    def console(self) -> Path:
        return self.log_dir / "console.log"

    @property
    def manifests(self) -> Path:
        return self.path / "manifests"

    def check(self) -> None:
        """Raise OperatorError when sockets below this path could not be bound, or supervisord could not read the
        path."""
        longest = self.run_dir / "containerd" / "containerd.sock.ttrpc"
        if len(bytes(longest)) > MAX_SOCKET_PATH_BYTES:
            spare = MAX_SOCKET_PATH_BYTES - len(bytes(longest)) + len(bytes(self.path))
            raise OperatorError(
                f"the path has {len(bytes(self.path))} bytes, a socket below it would have more than "
                f"{MAX_SOCKET_PATH_BYTES}",
                where=f"BULKHEAD_HOME={self.path}",
                remedy=f"choose a directory of at most {spare} bytes",
            )
        if re.search(r"[%\s;\"']", str(self.path)):
            raise OperatorError(
                "has a character that supervisord.conf cannot hold",
                where=f"BULKHEAD_HOME={self.path}",
                remedy="choose a path without spaces, quotes, % and ;",
            )

    def add_example(self) -> None:
        """Add the manifest of the example pod to a home that `make` has just made. Its images must be imported before,
        because the runtime would pull them otherwise."""
        for example in () if self.has_examples else EXAMPLES.iterdir():
            shutil.copy(example, self.manifests / f".{example.name}")
            (self.manifests / f".{example.name}").rename(self.manifests / example.name)
        write_atomically(self.path / HOME_MARKER, _WITH_EXAMPLES.encode())

    @property
    def has_examples(self) -> bool:
        """Return whether the example was added once; an example that the owner has removed is not added again."""
        return (self.path / HOME_MARKER).read_text() == _WITH_EXAMPLES

    def make(self) -> None:
        """Write the files that are missing, except for the example pod. An edited file is kept; an unedited
        supervisord.conf is updated from the checkout.

        Raises OperatorError when the directory holds something else already."""
        marker = self.path / HOME_MARKER
        if self.path.exists() and not marker.exists() and any(self.path.iterdir()):
            raise OperatorError(
                "is not empty and was not made by `make run`",
                where=f"BULKHEAD_HOME={self.path}",
                remedy="choose an empty or a new directory",
            )
        self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not marker.exists() or not self.manifests.exists():
            write_atomically(marker, _EXAMPLES_TO_COME.encode())
        # Or a run that was killed has added them.
        elif marker.read_text() != _EXAMPLES_TO_COME or any(self.manifests.glob("[!.]*")):
            write_atomically(marker, _WITH_EXAMPLES.encode())
        self.log_dir.mkdir(exist_ok=True)
        self.manifests.mkdir(exist_ok=True)
        if not (self.path / "kubelet.yaml").exists():
            shutil.copy(CHECKOUT / "examples" / "kubelet.yaml", self.path / "kubelet.yaml")
        if not (self.path / "kubelet.args").exists():
            lines = ("# Flags of the kubelet, one a line.", f"--config={self.path / 'kubelet.yaml'}", "--v=2")
            (self.path / "kubelet.args").write_text("\n".join(lines) + "\n")
        self._write_supervisord_conf()

    def _write_supervisord_conf(self) -> None:
        if self.supervisord_conf.exists() and not _is_as_written(self.supervisord_conf.read_text()):
            return
        body = render_supervisord_conf((CHECKOUT / "supervisord.conf").read_text(), CHECKOUT, self.path)
        self.supervisord_conf.write_text(_signature(body) + body)


def render_supervisord_conf(text: str, checkout: Path, home: Path) -> str:
    """Return supervisord.conf of the checkout for an agent whose files are in `home`."""
    for system_wide, at_home in (
        ("%(here)s", str(checkout)),
        ("/run/bulkhead-supervisord.", f"{home}/supervisord."),
        ("/var/log/bulkhead-supervisord.log", f"{home}/log/supervisord.log"),
        ("\nenvironment=PYTHON", f'\nenvironment=BULKHEAD_HOME="{home}",PYTHON'),
    ):
        if system_wide not in text:
            raise ValueError(f"supervisord.conf no longer contains {system_wide!r}")
        text = text.replace(system_wide, at_home)
    return text


def _signature(body: str) -> str:
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"; Made by `make run` from the checkout's supervisord.conf. Edited, it is left alone. {digest}\n"


def _is_as_written(text: str) -> bool:
    first, _, body = text.partition("\n")
    return first + "\n" == _signature(body)
