"""What the commands read of a unit is what a real systemd gives its program, also after the drop-in of a takeover."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.takeover.unit import drop_in_text
from tests.support.machines.systemd_machine import SystemdMachine
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

_PROGRAM = '#!/bin/sh\nprintf "%s\\0" "$@" > "$OUT.argv"\nenv -0 > "$OUT.env"\n'
# What systemd and the shell set.
_OF_SYSTEMD = re.compile(
    "PATH|LANG|HOME|USER|PWD|OLDPWD|SHLVL|_|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|NOTIFY_SOCKET|WATCHDOG_.*"
)
_READER = """
import json, sys
from services.cli.systemd.command_line import unit_flags, unit_variables
from services.cli.systemd.control import read_unit

unit = read_unit(sys.argv[1])
print(json.dumps([unit_flags(unit), unit_variables(unit), unit.words, unit.files]))
"""
_UNIT = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nEnvironment=OUT={out}\n"
_FILES = {
    "kubeadm.env": "KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.1 --node-labels='a=b c'\"\n",
    "first.env": "# A=0\nA=first\nB = 'two  words' \nC=x\\\ny\nexport D=1\n",
    "second.env": "A=\"second $HOME \\$x \\\"q\\\" \\y\"\nE=it's\nF='one\ntwo'\nG='open quote\n",
    "a.d/1.env": "H=1\nI=1\n",
    "a.d/2.env": "H=2\n",
}
_CASES = {
    "quotes": r"""ExecStart={program} --a="b c" 'd "e"' --f=\x41\tz --h='it\'s' "\"" ";" "" '#' --i=a\
 --j=k""",
    "specifiers": "ExecStart={program} --unit=%n --prefix=%p --percent=100%% --runtime=%t --home=%h",
    "variables": """\
Environment="A=--x --y='1 2'" B= "C=c  d" 'Q=a"b'
ExecStart={program} $A $B $UNSET ${{B}} ${{UNSET}} --c=${{C}} --c=$C $C ${{A}} $$A --d=$${{C}} $A.x $ \
 --e=${{C $Q ${{Q}} --v 2
""",
    "files": """\
Environment=A=unit E=unit J=unit
EnvironmentFile=-/nowhere
EnvironmentFile={home}/first.env
EnvironmentFile={home}/second.env
EnvironmentFile=-{home}/a.d/*.env
EnvironmentFile=-{home}/kubeadm.env
UnsetEnvironment=J E=other
ExecStart={program} $KUBELET_KUBEADM_ARGS --a=${{A}} --b=${{B}} $B $C ${{D}} ${{E}} ${{F}} $F ${{G}} $H $I $J
""",
    "not-expanded": "Environment=A=1\nExecStart=:{program} $A ${{A}} $$ --a=$A",
}


@pytest.fixture(scope="module")
def machine() -> Iterator[SystemdMachine]:
    with tempfile.TemporaryDirectory(prefix="bku", dir="/tmp") as directory, SystemdMachine(Path(directory)) as booted:
        home = booted.directory
        for name in ("kubelet", "other"):
            (home / name).write_text(_PROGRAM)
            (home / name).chmod(0o755)
        (home / "a.d").mkdir()
        for name, text in _FILES.items():
            (home / name).write_text(text)
        yield booted


def write(machine: SystemdMachine, name: str, text: str, drop_in: str = "") -> None:
    """Write a unit, or a drop-in of it, where systemd in the machine reads it."""
    place = f"{name}.service.d" if drop_in else "."
    target = f"/run/systemd/system/{place}/{drop_in or f'{name}.service'}"
    command = machine.inside(
        "bash", "-c", f'mkdir -p "$(dirname {target})" && cat > {target} && systemctl daemon-reload'
    )
    subprocess.run(command, input=text, text=True, check=True)


def started(machine: SystemdMachine, name: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables of the program that systemd starts."""
    machine.run("systemctl", "start", f"{name}.service")
    argv = (machine.directory / f"{name}.argv").read_bytes().decode().split("\0")[:-1]
    environment = (machine.directory / f"{name}.env").read_bytes().decode().split("\0")[:-1]
    return argv, dict(line.split("=", 1) for line in environment)


def read(machine: SystemdMachine, name: str) -> tuple[list[str], dict[str, str], list[str], list[str]]:
    """The same as our reader has them, and the words and files of the unit."""
    command = machine.inside("env", "-C", str(CHECKOUT), sys.executable, "-c", _READER, f"{name}.service")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    flags, variables, words, files = json.loads(done.stdout)
    return flags, variables, words, files


def assert_same(machine: SystemdMachine, name: str) -> list[str]:
    """The reader and the program have the same. Return the words of the unit."""
    flags, variables, words, _ = read(machine, name)
    argv, environment = started(machine, name)
    assert flags == argv
    assert {key: value for key, value in environment.items() if not _OF_SYSTEMD.fullmatch(key)} == variables
    return words


@pytest.mark.parametrize("name", _CASES)
def test_flags_and_variables_are_those_that_the_program_gets(machine: SystemdMachine, name: str) -> None:
    home, out = machine.directory, machine.directory / name
    write(machine, name, _UNIT.format(out=out) + _CASES[name].format(program=home / "kubelet", home=home) + "\n")
    words = assert_same(machine, name)
    before, _ = started(machine, name)
    # What a takeover writes starts another program with the same words.
    text = drop_in_text(str(home / "other"), words).replace("Type=notify", "Type=oneshot").replace("Restart=always", "")
    write(machine, name, text, "90-bulkhead.conf")
    assert_same(machine, name)
    after, _ = started(machine, name)
    assert after == before


def test_a_drop_in_that_resets_the_command_counts(machine: SystemdMachine) -> None:
    home = machine.directory
    write(machine, "reset", _UNIT.format(out=home / "reset") + "ExecStart=/bin/false one\nEnvironment=A=1\n")
    for name, text in (
        ("20.conf", f"ExecStart=\nExecStart={home}/kubelet --b 'c d'\n"),
        ("30.conf", "Environment=A=2\n"),
    ):
        write(machine, "reset", f"[Service]\n{text}", name)
    assert assert_same(machine, "reset") == ["--b", "c d"]
    _, variables, _, files = read(machine, "reset")
    assert variables["A"] == "2"
    directory = "/run/systemd/system/reset.service"
    assert files == [directory, f"{directory}.d/20.conf", f"{directory}.d/30.conf"]


def test_a_unit_that_is_not_there_has_no_command(machine: SystemdMachine) -> None:
    assert read(machine, "no-such") == ([], {}, [], [])


def test_systemd_does_not_start_a_unit_without_an_environment_file_that_it_needs(machine: SystemdMachine) -> None:
    home = machine.directory
    write(
        machine, "needs", _UNIT.format(out=home / "needs") + f"EnvironmentFile=/nowhere/env\nExecStart={home}/kubelet\n"
    )
    with pytest.raises(subprocess.CalledProcessError) as raised:
        read(machine, "needs")
    assert "systemd does not start it without its environment file /nowhere/env" in raised.value.stderr
    with pytest.raises(subprocess.CalledProcessError):
        started(machine, "needs")
