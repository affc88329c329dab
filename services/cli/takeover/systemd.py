"""systemd on this machine: the properties of a unit over its bus (busctl keeps words apart, systemctl show does not), a
reload, a restart, and the journal of a unit."""

import json
import subprocess
from pathlib import Path
from typing import Any

from services.cli.config.found_configuration import BOOTED
from shared.errors import OperatorError

DROP_INS = Path("/etc/systemd/system")
_TIMEOUT = 90.0  # seconds of one call; a daemon-reload of a busy machine takes some
_JOURNAL = 10.0  # seconds to read it
_LINES = 50  # of the journal
_BUS = "org.freedesktop.systemd1"


def is_booted() -> bool:
    """Whether systemd is process 1."""
    return BOOTED.is_dir()


def properties(unit: str) -> dict[str, Any]:
    """All properties of the unit and the service by name. Raises OperatorError."""
    path = "/org/freedesktop/systemd1/unit/" + "".join(
        character if character.isalnum() else f"_{ord(character):02x}" for character in unit
    )
    found: dict[str, Any] = {}
    for interface in ("Unit", "Service"):
        answer = _run(
            "busctl", "--json=short", "call", _BUS, path, "org.freedesktop.DBus.Properties", "GetAll", "s",
            f"{_BUS}.{interface}",
        )  # fmt: skip
        try:
            found |= {name: value["data"] for name, value in json.loads(answer)["data"][0].items()}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise OperatorError(
                "gave no properties", where=f"busctl, {unit}", remedy="systemd 240 is needed"
            ) from error
    return found


def reload() -> None:
    """systemctl daemon-reload. Raises OperatorError."""
    _run("systemctl", "daemon-reload")


def restart(unit: str) -> None:
    """Request a restart, also of a unit that systemd gave up on, and do not wait for it. Raises OperatorError."""
    _run("systemctl", "reset-failed", unit, fails=False)
    _run("systemctl", "restart", "--no-block", unit)


def journal(unit: str, since: float) -> list[str]:
    """The newest lines of the unit since then (wall seconds), without their times. Raises OperatorError."""
    wanted = (f"--unit={unit}", f"--since=@{int(since)}", f"--lines={_LINES}")
    return _run("journalctl", *wanted, "--output=cat", "--no-pager", "--quiet", timeout=_JOURNAL).splitlines()


def _run(*command: str, fails: bool = True, timeout: float = _TIMEOUT) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=timeout, text=True, errors="replace",
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise OperatorError("is not installed", where=command[0], remedy="it belongs to systemd") from None
    except subprocess.TimeoutExpired:
        raise OperatorError(f"did not end within {timeout:.0f} s", where=" ".join(command[:2])) from None
    except OSError as error:
        raise OperatorError(f"cannot be run: {error.strerror}", where=command[0]) from error
    if done.returncode != 0 and fails:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OperatorError(lines[-1][:300], where=" ".join(command[:2]))
    return done.stdout
