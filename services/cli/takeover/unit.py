"""Decides from the kubelet's unit why it cannot be taken over, and forms the text of the drop-in. Pure."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from services.cli.systemd.unit import ServiceUnit
from services.cli.takeover.plan import Kubelet

UNIT = "kubelet.service"
DROP_INS = Path("/etc/systemd/system")
DROP_IN = "90-bulkhead.conf"
_PLAIN = re.compile(r"[\w@+=:,./${}^~-]+")  # systemd reads such a word unchanged
_MIN_STEADY_SECONDS = 60.0  # that a kubelet must run after systemd had to start it again
# The prefix in ExecStart=+program gives the program other rights.
_PREFIXES = {"privileged": "+", "no-setuid": "!", "ambient": "!!"}
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_HEAD = """\
# Written by `bulkhead takeover`, removed by `bulkhead give-back`. It runs Bulkhead in place of the kubelet, with the
# same words and variables. The unit's own files are not changed.
[Unit]
StartLimitIntervalSec=0

[Service]
# READY: all seven services have sent a beat. Services, not the main process, send READY and the watchdog pings.
Type=notify
NotifyAccess=all
TimeoutStartSec=120
WatchdogSec=60
"""
_TAIL = """\
ExecReload=
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=10
# The main process gets SIGTERM and stops the services. What is left after it is killed, so that no service of a killed
# agent runs beside the next kubelet. Containers run in the control group of the container runtime.
KillMode=mixed
TimeoutStopSec=120
LimitNOFILE=1048576
"""


def loaded_kubelet(unit: ServiceUnit, bulkhead: str) -> Kubelet:
    """Return which kubelet systemd would start. `bulkhead`: the path of our program."""
    if not unit.program:
        return Kubelet.NONE
    return Kubelet.BULKHEAD if unit.program == bulkhead else Kubelet.OWN


def list_refusals(unit: ServiceUnit, bulkhead: str, wall: float) -> list[str]:
    """Return why this unit cannot be taken over, one line each with the remedy. `bulkhead`: the path of our program."""
    if unit.load_state != "loaded":
        remedy = "bulkhead.service runs Bulkhead on a node without a kubelet" if unit.load_state == "not-found" else (
            f"systemctl status {UNIT} shows why"
        )  # fmt: skip
        return [f"{UNIT} is not loaded but {unit.load_state or 'not known'} ({remedy})"]
    found = []
    if unit.reload_needed:
        found.append(f"{UNIT} has changed on disk since systemd read it (systemctl daemon-reload, and look at it)")
    if len(unit.commands) != 1 or unit.type == "oneshot":
        found.append(f"{UNIT} has {len(unit.commands)} commands in ExecStart= (leave one, the kubelet)")
    elif PurePath(unit.program).name != "kubelet":
        found.append(
            f"{UNIT} starts {unit.program}, which is not a kubelet (write ExecStart= with the kubelet itself; a script "
            "or a shell between them cannot be replaced)"
        )
    if lost := _PREFIXES.keys() & set(unit.prefixes):
        shown = "".join(sorted({_PREFIXES[prefix] for prefix in lost}))
        found.append(f"{UNIT} has the prefix {shown} in ExecStart=, which Bulkhead would not get (remove it)")
    if unit.user not in ("", "root", "0"):
        found.append(f"{UNIT} runs as user {unit.user} (Bulkhead needs root: remove User=)")
    if unit.root_directory:
        found.append(f"{UNIT} has its own root directory {unit.root_directory} (remove RootDirectory= and RootImage=)")
    if loaded_kubelet(unit, bulkhead) is Kubelet.BULKHEAD:
        return found  # the checks that follow are about the kubelet that a give-back returns to
    if unit.kill_mode in ("process", "none"):
        found.append(
            f"{UNIT} has KillMode={unit.kill_mode}, and its stop under Bulkhead would end what it keeps running "
            "(remove KillMode=)"
        )
    if (unit.active_state, unit.sub_state) != ("active", "running"):
        found.append(
            f"{UNIT} is {unit.active_state} ({unit.sub_state}), there is no kubelet that works to return to "
            f"(journalctl -u {UNIT} shows why; repair it first)"
        )
    elif unit.restarts and wall - unit.main_started < _MIN_STEADY_SECONDS:
        found.append(
            f"{UNIT} has ended and was started again by systemd within the last {_MIN_STEADY_SECONDS:.0f} s "
            f"(journalctl -u {UNIT} shows why; if that has passed, wait a minute)"
        )
    return found


def drop_in_text(program: str, words: Sequence[str]) -> str:
    """Return the drop-in that starts `program` with the words of the unit's own ExecStart=, without its first."""
    command = " ".join(_quoted(word) for word in (program, *words))
    return f"{_HEAD}ExecStart=\nExecStart={command}\n{_TAIL}"


def _quoted(word: str) -> str:
    """Return the word quoted for systemd. A variable stays a variable, because systemd expands it after it has removed
    the quotes."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(_ESCAPED.get(character, character) for character in word).replace("%", "%%") + '"'
