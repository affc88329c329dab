"""A command uses the flags, the variables and so the directories of the unit, not those of the shell."""

import os
from pathlib import Path

import pytest

from services.cli.agent.local_agent import local_agent
from services.cli.systemd import control
from services.cli.systemd.command_line import unit_flags, unit_variables, use_places_of
from services.cli.systemd.unit import ServiceUnit, unit_of
from shared.agent.places import find_places
from shared.errors import OperatorError
from tests.unit.cli.systemd_bus import boot, properties, started_by


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULKHEAD_HOME", "/srv/of-the-shell")
    monkeypatch.setenv("BULKHEAD_RUN_DIR", "/srv/of-the-shell/run")


def kubelet(
    *words: str, environment: tuple[str, ...] = (), files: tuple[Path, ...] = (), optional: bool = True
) -> ServiceUnit:
    return unit_of(
        properties(*words, Environment=list(environment), EnvironmentFiles=[[str(file), optional] for file in files])
    )


def test_the_directories_are_those_of_a_unit_without_variables() -> None:
    use_places_of(kubelet())
    assert find_places().run_dir == "/run/bulkhead"
    assert "BULKHEAD_HOME" not in os.environ


def test_the_directories_are_those_of_the_units_variables(tmp_path: Path) -> None:
    file = tmp_path / "kubelet"
    file.write_text("# ours\nBULKHEAD_RUN_DIR='/run/second'\n")
    unit = kubelet(environment=("BULKHEAD_RUN_DIR=/run/first", "A=b c"), files=(tmp_path / "absent", file))
    assert unit_variables(unit) == {"BULKHEAD_RUN_DIR": "/run/second", "A": "b c"}
    use_places_of(unit)
    assert find_places().run_dir == "/run/second"
    assert find_places().log_dir == "/var/log/bulkhead"


def test_a_word_with_spaces_or_quotes_is_one_flag() -> None:
    words = ("$ALL", "--node-labels=a=b c", "it's", '--x="y"', "--v=${LEVEL}")
    unit = kubelet(*words, environment=("ALL=--a --b='c d'", "LEVEL=2"))
    assert unit_flags(unit) == ["--a", "--b=c d", "--node-labels=a=b c", "it's", '--x="y"', "--v=2"]


def test_where_systemd_expands_no_variables_the_words_stay_also_in_another_command() -> None:
    """ExecStart=:/usr/bin/kubelet"""
    unit = unit_of(properties(ExecStartEx=started_by("/k", "$A", "--b=${C}", "$$", prefixes=("no-env-expand",))))
    assert unit_flags(unit) == ["$A", "--b=${C}", "$$"]
    assert unit.words == ("$$A", "--b=$${C}", "$$$$")


def test_the_older_property_of_the_commands_is_read() -> None:
    older = {
        "LoadState": "loaded",
        "ExecStart": [["/k", ["/k", "$A"], False, 0, 0, 0, 0, 0, 0, 0]],
        "Environment": ["A=1"],
    }
    assert unit_flags(unit_of(older)) == ["1"]


def test_the_files_that_a_pattern_means_are_read_in_order(tmp_path: Path) -> None:
    for name, text in (("b.env", "A=b\n"), ("a.env", "A=a\nB=a\n"), ("c.txt", "A=c\n")):
        (tmp_path / name).write_text(text)
    assert unit_variables(kubelet(files=(tmp_path / "*.env",))) == {"A": "b", "B": "a"}
    assert unit_variables(kubelet(files=(tmp_path / "*.none",))) == {}
    with pytest.raises(OperatorError, match="no file matches it"):
        unit_variables(kubelet(files=(tmp_path / "*.none",), optional=False))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"A=\xff\n", "not UTF-8 text"),
        (b"\xff=1\n", "not UTF-8 text"),
        (b"BULKHEAD_HOME=/srv/a\0b\n", "a zero byte"),
    ],
)
def test_a_file_that_systemd_does_not_start_without_is_named(content: bytes | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "kubelet"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(OperatorError, match=rf"^kubelet.service: .*{file}: .*{why}.* \(restore the file") as raised:
        use_places_of(kubelet(files=(file,), optional=False))
    assert "\n" not in str(raised.value)
    assert unit_variables(kubelet(files=(file,), environment=("A=1",))) == {"A": "1"}, "EnvironmentFile=-"


def test_a_comment_in_another_encoding_is_ignored_as_systemd_does(tmp_path: Path) -> None:
    file = tmp_path / "kubelet"
    file.write_bytes("# für den Knoten\nA=1\n; ü\nB='2'\nno value ü\nC=3\n".encode("latin-1"))
    assert unit_variables(kubelet(files=(file,), optional=False)) == {"A": "1", "B": "2", "C": "3"}


@pytest.mark.share(2)
@pytest.mark.parametrize("optional", [False, True])
def test_a_file_that_is_too_long_is_an_error_because_systemd_reads_it(tmp_path: Path, *, optional: bool) -> None:
    file = tmp_path / "kubelet"
    file.write_bytes(b"A=" + b"x" * ((1 << 20) - 2))
    assert set(unit_variables(kubelet(files=(file,), optional=optional))) == {"A"}
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(OperatorError, match=rf"^kubelet.service: .*{file} has more than 1 MiB.* \(make it shorter\)$"):
        unit_variables(kubelet(files=(file,), optional=optional))


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert unit_variables(kubelet(files=(tmp_path / "pipe", Path("/dev/null")), optional=False)) == {}


def test_a_unit_is_read_from_the_bus_and_a_short_name_is_that_of_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = properties("--v=2", FragmentPath="/lib/k.service", DropInPaths=["/etc/10.conf"], UnsetEnvironment=["B"])
    program = boot(tmp_path, monkeypatch, "my-kubelet@1.service", given)
    unit = control.read_unit("my-kubelet@1")
    assert (unit.name, unit.words, unit.files) == (
        "my-kubelet@1.service",
        ("--v=2",),
        ("/lib/k.service", "/etc/10.conf"),
    )
    assert control.read_unit("other").load_state == "not-found"
    for text in ("", "{}", '{"data": [{"LoadState": 1}]}', '{"data": [{"MainPID": {"data": "x"}}]}'):
        (tmp_path / "found").write_text(text)
        with pytest.raises(OperatorError, match=r"^busctl, my-kubelet@1.service: gave no properties"):
            control.read_unit("my-kubelet@1")
    program.write_text("#!/bin/sh\necho Failed to connect to bus: No such file >&2\nexit 1\n")
    with pytest.raises(OperatorError, match=r"^busctl call: Failed to connect to bus: .*\(is dbus running\?"):
        control.read_unit("kubelet")


def test_the_path_of_a_unit_on_the_bus_is_escaped() -> None:
    assert control.object_path("a-b@ü.service").rpartition("/")[2] == "a_2db_40_c3_bc_2eservice"


def test_an_agent_that_is_not_found_names_the_variable() -> None:
    with pytest.raises(OperatorError, match="or unset BULKHEAD_RUN_DIR, which names this one"), local_agent():
        pass
    with pytest.raises(OperatorError, match="or run this as root"), local_agent("/nowhere"):
        pass
