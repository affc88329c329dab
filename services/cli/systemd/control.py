"""Controls systemd on this machine: reads a unit's properties, reloads, restarts, and reads the journal of a unit.

The properties are read over the bus with busctl, because `systemctl show` does not keep the words of a command
apart."""

import json
import string
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.cli.systemd.unit import ServiceUnit, unit_of
from shared.errors import OperatorError

BOOTED = Path("/run/systemd/system")  # sd_booted(3) tests the same directory
TIMEOUT_SECONDS = 90.0  # of one call; a daemon-reload of a busy machine takes some
_MAX_JOURNAL_SECONDS = 10.0  # to read the journal
_MAX_JOURNAL_LINES = 50  # of the journal
_BUS = "org.freedesktop.systemd1"
_KEPT = frozenset(string.ascii_letters + string.digits)


def is_booted() -> bool:
    """Return whether systemd is process 1."""
    return BOOTED.is_dir()


def read_unit(name: str, timeout: float = TIMEOUT_SECONDS) -> ServiceUnit:
    """Return the unit as systemd has loaded it; a name without a type is that of a service. Raises OperatorError."""
    name = name if "." in name else f"{name}.service"
    answer = _run(
        "busctl", "--json=short", "call", _BUS, object_path(name), "org.freedesktop.DBus.Properties", "GetAll", "s", "",
        timeout=timeout, remedy="is dbus running? systemd 243 is needed",
    )  # fmt: skip
    try:
        found: dict[str, Any] = {key: value["data"] for key, value in json.loads(answer)["data"][0].items()}
        return unit_of(found, name)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise OperatorError("gave no properties", where=f"busctl, {name}", remedy="systemd 243 is needed") from error


def object_path(unit: str) -> str:
    """Return the D-Bus path of a unit."""
    label = "".join(chr(byte) if chr(byte) in _KEPT else f"_{byte:02x}" for byte in unit.encode())
    return f"/{_BUS.replace('.', '/')}/unit/{label}"


def reload() -> None:
    """Run `systemctl daemon-reload`. Raises OperatorError."""
    _run("systemctl", "daemon-reload")


def restart(unit: str) -> None:
    """Request a restart of the unit, also after systemd gave up on it, and do not wait for it. Raises OperatorError."""
    _run("systemctl", "reset-failed", unit, fails=False)
    _run("systemctl", "restart", "--no-block", unit)


def read_journal(unit: str, since: float) -> list[str]:
    """Return the newest lines of the unit since `since` (wall seconds), without their times. Raises OperatorError."""
    wanted = (f"--unit={unit}", f"--since=@{int(since)}", f"--lines={_MAX_JOURNAL_LINES}")
    return _run(
        "journalctl", *wanted, "--output=cat", "--no-pager", "--quiet", timeout=_MAX_JOURNAL_SECONDS
    ).splitlines()


def _named(command: Sequence[str]) -> str:
    return " ".join([command[0], *[word for word in command[1:] if not word.startswith("-")][:1]])


def _run(*command: str, fails: bool = True, timeout: float = TIMEOUT_SECONDS, remedy: str = "") -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=timeout, encoding="utf-8", errors="replace",
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise OperatorError("is not installed", where=command[0], remedy="it belongs to systemd") from None
    except subprocess.TimeoutExpired:
        raise OperatorError(
            f"does not answer within {timeout:.0f} s", where=_named(command), remedy="try again"
        ) from None
    except OSError as error:
        raise OperatorError(f"cannot be run: {error.strerror}", where=command[0]) from error
    if done.returncode != 0 and fails:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OperatorError(lines[-1][:300], where=_named(command), remedy=remedy)
    return done.stdout
