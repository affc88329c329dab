"""A takeover uses the flags, the variables and so the directories of the unit, not those of the shell."""

import os
from pathlib import Path

import pytest

from services.cli.agent.local_agent import local_agent
from services.cli.takeover.environment import flags_of_kubelet, use_places_of, variables_of_unit
from services.cli.takeover.unit import KubeletUnit, unit_of
from shared.errors import OperatorError
from shared.places import find_places


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULKHEAD_HOME", "/srv/of-the-shell")
    monkeypatch.setenv("BULKHEAD_RUN_DIR", "/srv/of-the-shell/run")


def kubelet(*words: str, environment: tuple[str, ...] = (), files: tuple[Path, ...] = ()) -> KubeletUnit:
    return unit_of({
        "ExecStart": [["/usr/bin/kubelet", ["/usr/bin/kubelet", *words], False, 0, 0, 0, 0, 0]],
        "Environment": list(environment),
        "EnvironmentFiles": [[str(file), True] for file in files],
    })  # fmt: skip


def test_the_directories_are_those_of_a_unit_without_variables() -> None:
    use_places_of(kubelet())
    assert find_places().run_dir == "/run/bulkhead"
    assert "BULKHEAD_HOME" not in os.environ


def test_the_directories_are_those_of_the_units_variables(tmp_path: Path) -> None:
    file = tmp_path / "kubelet"
    file.write_text("# ours\nBULKHEAD_RUN_DIR='/run/second'\n")
    unit = kubelet(environment=("BULKHEAD_RUN_DIR=/run/first", "A=b c"), files=(tmp_path / "absent", file))
    assert variables_of_unit(unit) == {"BULKHEAD_RUN_DIR": "/run/second", "A": "b c"}
    use_places_of(unit)
    assert find_places().run_dir == "/run/second"
    assert find_places().log_dir == "/var/log/bulkhead"


def test_a_word_with_spaces_or_quotes_is_one_flag() -> None:
    words = ("$ALL", "--node-labels=a=b c", "it's", '--x="y"', "--v=${LEVEL}")
    unit = kubelet(*words, environment=("ALL=--a --b='c d'", "LEVEL=2"))
    assert flags_of_kubelet(unit) == ["--a", "--b=c d", "--node-labels=a=b c", "it's", '--x="y"', "--v=2"]


def test_an_open_quote_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "kubelet"
    file.write_text("A='b\n")
    with pytest.raises(OperatorError, match=r"kubelet.service: its variables cannot be read: .*\(close the quote"):
        use_places_of(kubelet(files=(file,)))


def test_an_agent_that_is_not_found_names_the_variable() -> None:
    with pytest.raises(OperatorError, match="or unset BULKHEAD_RUN_DIR, which names this one"), local_agent():
        pass
    with pytest.raises(OperatorError, match="or run this as root"), local_agent("/nowhere"):
        pass
