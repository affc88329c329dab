"""The kubelet's unit as systemd has loaded it: why it cannot be taken over, and the text of the drop-in. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from services.cli.takeover.plan import Kubelet

UNIT = "kubelet.service"
DROP_IN = "90-bulkhead.conf"
_PLAIN = re.compile(r"[\w@+=:,./${}^~-]+")  # a word that systemd reads as it is
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


@dataclass(frozen=True, kw_only=True)
class KubeletUnit:
    """The properties of the unit that count here, as systemd has them; `commands`: the words of each ExecStart=, with
    variables not expanded; `main_started`: wall seconds at which the main process was started; `restarts`: how often
    systemd started it again by itself; `environment`: NAME=value; `environment_files`: paths, the later ones win."""

    load_state: str
    active_state: str
    sub_state: str
    main_pid: int
    main_started: float
    restarts: int
    reload_needed: bool
    commands: tuple[tuple[str, ...], ...]
    type: str
    kill_mode: str
    user: str
    root_directory: str
    environment: tuple[str, ...]
    environment_files: tuple[str, ...]

    @property
    def program(self) -> str:
        """The path of the program, "" = there is none."""
        return self.commands[-1][0] if self.commands else ""

    def loaded(self, bulkhead: str) -> Kubelet:
        """Which kubelet systemd would start. `bulkhead`: the path of our program."""
        if not self.program:
            return Kubelet.NONE
        return Kubelet.BULKHEAD if self.program == bulkhead else Kubelet.OWN


def unit_of(properties: Mapping[str, Any]) -> KubeletUnit:
    """The unit from the D-Bus properties of org.freedesktop.systemd1.Unit and .Service, by name."""
    commands = tuple(
        (str(command[0]), *(str(word) for word in command[1][1:])) for command in properties.get("ExecStart") or ()
    )
    return KubeletUnit(
        load_state=str(properties.get("LoadState", "")),
        active_state=str(properties.get("ActiveState", "")),
        sub_state=str(properties.get("SubState", "")),
        main_pid=int(properties.get("MainPID") or 0),
        main_started=int(properties.get("ExecMainStartTimestamp") or 0) / 1e6,
        restarts=int(properties.get("NRestarts") or 0),
        reload_needed=bool(properties.get("NeedDaemonReload")),
        commands=commands,
        type=str(properties.get("Type", "")),
        kill_mode=str(properties.get("KillMode", "")),
        user=str(properties.get("User", "")),
        environment=tuple(map(str, properties.get("Environment") or ())),
        environment_files=tuple(str(file[0]) for file in properties.get("EnvironmentFiles") or ()),
        root_directory=str(properties.get("RootDirectory", "")) or str(properties.get("RootImage", "")),
    )


def refusals(unit: KubeletUnit, bulkhead: str) -> list[str]:
    """Why this unit cannot be taken over, one line each with the remedy. `bulkhead`: the path of our program."""
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
    if unit.user not in ("", "root", "0"):
        found.append(f"{UNIT} runs as user {unit.user} (Bulkhead needs root: remove User=)")
    if unit.root_directory:
        found.append(f"{UNIT} has its own root directory {unit.root_directory} (remove RootDirectory= and RootImage=)")
    if unit.kill_mode in ("process", "none") and unit.loaded(bulkhead) is not Kubelet.BULKHEAD:
        found.append(
            f"{UNIT} has KillMode={unit.kill_mode}, and its stop under Bulkhead would end what it keeps running "
            "(remove KillMode=)"
        )
    if unit.loaded(bulkhead) is not Kubelet.BULKHEAD and (unit.active_state, unit.sub_state) != ("active", "running"):
        found.append(
            f"{UNIT} is {unit.active_state} ({unit.sub_state}), there is no kubelet that works to return to "
            f"(journalctl -u {UNIT} shows why; repair it first)"
        )
    return found


def drop_in_text(program: str, words: Sequence[str]) -> str:
    """The drop-in that starts `program` with the words of the unit's own ExecStart=, without its first."""
    command = " ".join(_quoted(word) for word in (program, *words))
    return f"{_HEAD}ExecStart=\nExecStart={command}\n{_TAIL}"


def _quoted(word: str) -> str:
    """The word as systemd reads it back. A variable stays one: systemd expands it after it has removed the quotes."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(_ESCAPED.get(character, character) for character in word).replace("%", "%%") + '"'
