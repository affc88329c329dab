"""Describes a unit as systemd has loaded it, from the properties that it has on systemd's bus. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_UNEXPANDED = "no-env-expand"  # systemd's name for the prefix in ExecStart=:program


class EnvironmentFile(Struct, frozen=True, kw_only=True):
    """One EnvironmentFile=. `path` may have the wildcards of a shell; `optional`: the file may be absent."""

    path: str
    optional: bool


class ServiceUnit(Struct, frozen=True, kw_only=True):
    """The properties that count here. `commands`: the words of each ExecStart=, the program's path first, for
    `expansion.expanded`; `prefixes`: what the prefixes of the last one are called on the bus; `main_started`: wall
    seconds at which the main process was started; `restarts`: how often systemd started it again by itself;
    `environment`: NAME=value; `environment_files`: the later ones win; `unset`: names or NAME=value; `files`: of the
    unit and its drop-ins."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    main_pid: int
    main_started: float
    restarts: int
    reload_needed: bool
    commands: tuple[tuple[str, ...], ...]
    prefixes: tuple[str, ...]
    type: str
    kill_mode: str
    user: str
    root_directory: str
    environment: tuple[str, ...]
    environment_files: tuple[EnvironmentFile, ...]
    unset: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def program(self) -> str:
        """The path of the program, "" = the unit has none."""
        return self.commands[-1][0] if self.commands else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words after the program's path."""
        return self.commands[-1][1:] if self.commands else ()


def unit_of(properties: Mapping[str, Any], name: str = "kubelet.service") -> ServiceUnit:
    """Return the unit from the D-Bus properties of org.freedesktop.systemd1.Unit and .Service, by name."""
    # Systemd has ExecStartEx from version 243 on.
    commands = properties.get("ExecStartEx") or properties.get("ExecStart") or ()
    return ServiceUnit(
        name=name,
        load_state=str(properties.get("LoadState", "")),
        active_state=str(properties.get("ActiveState", "")),
        sub_state=str(properties.get("SubState", "")),
        main_pid=int(properties.get("MainPID") or 0),
        main_started=int(properties.get("ExecMainStartTimestamp") or 0) / 1e6,
        restarts=int(properties.get("NRestarts") or 0),
        reload_needed=bool(properties.get("NeedDaemonReload")),
        commands=tuple(_words(command) for command in commands),
        prefixes=_prefixes(commands[-1]) if commands else (),
        type=str(properties.get("Type", "")),
        kill_mode=str(properties.get("KillMode", "")),
        user=str(properties.get("User", "")),
        root_directory=str(properties.get("RootDirectory", "")) or str(properties.get("RootImage", "")),
        environment=tuple(map(str, properties.get("Environment") or ())),
        environment_files=tuple(
            EnvironmentFile(path=str(path), optional=bool(optional))
            for path, optional in properties.get("EnvironmentFiles") or ()
        ),
        unset=tuple(map(str, properties.get("UnsetEnvironment") or ())),
        files=tuple(
            str(path) for path in (properties.get("FragmentPath"), *(properties.get("DropInPaths") or ())) if path
        ),
    )


def _words(command: Any) -> tuple[str, ...]:
    """Return path and arguments. Where systemd does not expand variables, each dollar sign is escaped."""
    words = [str(word) for word in command[1][1:]]
    if _UNEXPANDED in _prefixes(command):
        words = [word.replace("$", "$$") for word in words]
    return (str(command[0]), *words)


def _prefixes(command: Any) -> tuple[str, ...]:
    # In ExecStart, a boolean stands here instead of flags.
    return tuple(map(str, command[2])) if isinstance(command[2], list) else ()
