"""The command at the prompt says every problem and exits accordingly."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from services.bootstrap.commands import main
from tests.unit.bootstrap.kubeconfigs import kubeconfig, plugin, write

GOOD = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhairpinMode: none\n"
    "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
)


def test_a_good_configuration_exits_zero(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(GOOD, encoding="utf-8")
    result = CliRunner().invoke(main, ["config", "check", "--config", str(file)])
    assert result.exit_code == 0
    assert result.output == f"note: accepted, but without effect yet: hairpinMode\n{file}: good\n"


def test_a_bad_configuration_exits_one_with_all_problems(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(GOOD + "prt: 1\nmaxPods: many\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["config", "check", f"--config={file}", "-v=3"])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2


def test_without_flags_those_of_bootstrap_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBELET_ARGS", "--nonsense")
    result = CliRunner().invoke(main, ["config", "check"])
    assert result.exit_code == 1
    assert "unknown flag: --nonsense" in result.stderr


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(main, ["version"]).output.startswith("bulkhead ")


def test_the_flags_are_listed_with_their_keys() -> None:
    assert "--read-only-port" in CliRunner().invoke(main, ["config", "flags"]).output


def test_the_kubeconfig_is_checked_too_and_its_plugin_left_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "kubelet.conf", kubeconfig(plugin(tmp_path / "get", f"touch {tmp_path}/ran")))
    result = CliRunner().invoke(main, ["config", "check", f"--kubeconfig={file}"])
    assert (result.exit_code, (tmp_path / "ran").exists()) == (0, False)
    write(file, kubeconfig({"tokenFile": "none"}))
    result = CliRunner().invoke(main, ["config", "check", f"--kubeconfig={file}"])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"--kubeconfig: {file}: tokenFile: {tmp_path}/none cannot be read: No such file")
