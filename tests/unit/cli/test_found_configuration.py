"""Without flags, a configuration is found: that of the environment, the running agent, the args file or a unit."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bus.lock import ServiceLock
from services.cli.command import main
from services.cli.config import found_configuration
from services.cli.config.found_configuration import find_machine_arguments, list_given_arguments
from services.cli.systemd import control
from shared.config.evaluation import evaluate
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective
from shared.errors import OperatorError
from tests.unit.cli.systemd_bus import boot, properties

WORDS = [
    "$KUBELET_KUBECONFIG_ARGS",
    "$KUBELET_CONFIG_ARGS",
    "$KUBELET_KUBEADM_ARGS",
    "$KUBELET_EXTRA_ARGS",
    "--v=${LEVEL}",
]
ENVIRONMENT = [
    "KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/b.conf --kubeconfig=/etc/k.conf",
    "KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml",
    "LEVEL=2",
]
FLAGS_FILE = '# made by kubeadm\nKUBELET_KUBEADM_ARGS="--node-ip=192.0.2.1 --pod-infra-container-image=pause:3.10"\n'
FLAGS = [
    "--bootstrap-kubeconfig=/etc/b.conf",
    "--kubeconfig=/etc/k.conf",
    "--config=/var/lib/kubelet/config.yaml",
    "--node-ip=192.0.2.1",
    "--pod-infra-container-image=pause:3.10",
    "--v=2",
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KUBELET_ARGS", raising=False)
    monkeypatch.delenv("BULKHEAD_RUN_DIR", raising=False)
    monkeypatch.setenv("BULKHEAD_HOME", str(tmp_path))
    (tmp_path / "run" / "locks").mkdir(parents=True)
    return tmp_path


def kubeadms_unit(flags_file: Path | str = "/nowhere") -> dict[str, Any]:
    """The properties of the unit and drop-in of kubeadm's packages."""
    files = [[str(flags_file), True], ["/nowhere/default/kubelet", True]]
    return properties(*WORDS, Environment=ENVIRONMENT, EnvironmentFiles=files)


def test_the_flags_of_a_unit_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = home / "flags.env"
    flags.write_text(FLAGS_FILE)
    boot(home, monkeypatch, "kubelet.service", kubeadms_unit(flags))
    found = find_machine_arguments()
    assert (found.arguments, found.origin) == (FLAGS, "the flags of kubelet.service")
    (home / "kubelet.args").write_text("--v=3\n")
    assert find_machine_arguments().arguments == ["--v=3"], "an args file is used before the unit of another kubelet"


def test_a_machine_without_systemd_has_the_defaults(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot(home, monkeypatch, "kubelet.service", kubeadms_unit())
    monkeypatch.setattr(control, "BOOTED", home / "none")
    found = find_machine_arguments()
    assert found.arguments == [] and found.origin.startswith(f"the defaults (no agent runs in {home}/run, and")


@pytest.mark.parametrize("form", ["text", "json"])
def test_where_nothing_is_found_nothing_is_good(home: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(control, "BOOTED", home / "none")
    answer = CliRunner().invoke(main, ["config", "check", "-o", form])
    assert answer.exit_code == 1
    assert f"no configuration to check: no agent runs in {home}/run, and there is no" in answer.output
    assert "good" not in answer.output
    assert CliRunner().invoke(main, ["config", "show"]).exit_code == 0, "the defaults can be shown"


def test_flags_in_the_environment_of_the_unit_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = properties(program="/opt/bulkhead/.venv/bin/kubelet", Environment=["A=b", "KUBELET_ARGS=--v=4 --port=10260"])
    boot(home, monkeypatch, "bulkhead.service", unit)
    (home / "kubelet.args").write_text("--v=3\n")
    found = find_machine_arguments()
    assert found.arguments == ["--v=4", "--port=10260"]
    assert found.origin == "the flags in KUBELET_ARGS of bulkhead.service"


def test_each_place_is_named_and_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in the place that counts fails the check, whatever is in the places after it."""
    boot(home, monkeypatch, "kubelet.service", properties("--v=kubelet-unit"))
    assert_checked("kubelet-unit", "the flags of kubelet.service")
    (home / "kubelet.args").write_text("--v=args-file\n")
    assert_checked("args-file", f"the flags in {home}/kubelet.args")
    boot(home, monkeypatch, "bulkhead.service", properties("--v=own-unit"))
    assert_checked("own-unit", "the flags of bulkhead.service")
    monkeypatch.setenv("KUBELET_ARGS", "--v=environment")
    assert_checked("environment", "the flags in KUBELET_ARGS")


def assert_checked(mistake: str, origin: str) -> None:
    """The check names the place, and the mistake that is there."""
    answer = CliRunner().invoke(main, ["config", "check"])
    assert answer.exit_code == 1
    assert answer.stderr.startswith(f"note: without flags here, these are {origin}\n")
    assert mistake in answer.stderr


def test_a_quote_that_is_not_closed_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot(home, monkeypatch, "bulkhead.service", properties(Environment=["KUBELET_ARGS=--v='2"]))
    answer = CliRunner().invoke(main, ["config", "check"])
    assert answer.exit_code == 1
    assert answer.stderr == (
        "bulkhead.service: KUBELET_ARGS cannot be split: No closing quotation (close the quote, or give flags)\n"
    )


def test_an_environment_file_that_is_missing_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot(home, monkeypatch, "kubelet.service", properties("$A", EnvironmentFiles=[["/nowhere/env", False]]))
    answer = CliRunner().invoke(main, ["config", "check"])
    assert answer.exit_code == 1
    assert answer.stderr == (
        "kubelet.service: systemd does not start it without its environment file /nowhere/env: No such file or "
        "directory (restore the file, or write EnvironmentFile=- in the unit, or give flags)\n"
    )


def test_a_systemd_that_does_not_answer_is_one_line_and_not_the_defaults(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = boot(home, monkeypatch)
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    read_unit = control.read_unit
    monkeypatch.setattr(control, "read_unit", lambda name: read_unit(name, 0.2))
    answer = CliRunner().invoke(main, ["config", "check"])
    assert answer.exit_code == 1
    assert answer.stderr == "busctl call: does not answer within 0 s (try again, or give flags)\n"
    program.write_text("#!/bin/sh\necho Failed to connect to bus >&2\nexit 1\n")
    with pytest.raises(OperatorError, match=r"busctl call: Failed to connect to bus .*, or give flags"):
        find_machine_arguments()
    monkeypatch.setattr(control, "BOOTED", home / "none")
    assert find_machine_arguments().is_default, "systemd does not run this machine"


def test_the_flags_of_the_running_agent_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [
        "--cluster-dns=192.0.2.1,192.0.2.2",
        "--node-labels=a=b",
        "--eviction-hard=memory.available<5%",
        "-v=3",
    ]
    config = evaluate([*arguments, "--register-with-taints=x=y:NoSchedule", "--feature-gates=AllAlpha=false"]).config
    (home / "run" / CONFIG_NAME).write_bytes(encode_effective(config, ""))
    (home / "kubelet.args").write_text("--v=9\n")
    assert find_machine_arguments().arguments == ["--v=9"], "no agent runs"
    lock = ServiceLock(home / "run", "bootstrap")
    assert lock.try_acquire()
    found = find_machine_arguments()
    assert found.origin == f"the flags of the running agent ({home}/run)"
    assert evaluate(found.arguments).config == config
    answer = CliRunner().invoke(main, ["config", "check"])
    assert answer.stderr.startswith(
        f"note: without flags here, these are the flags of the running agent ({home}/run)\n"
    )
    monkeypatch.setenv("KUBELET_ARGS", "--v=1")
    assert find_machine_arguments().arguments == ["--v=1"]


def test_secret_flags_are_not_passed_on() -> None:
    config = evaluate(["--manifest-url-header=Authorization:Bearer x", "--manifest-url=http://192.0.2.1/"]).config
    assert list_given_arguments(config) == ["--manifest-url=http://192.0.2.1/"]
    assert found_configuration.UNITS[0] == "bulkhead.service"
