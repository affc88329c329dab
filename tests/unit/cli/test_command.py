"""The command prints every problem with the text at its place, and the origin of every value."""

import errno
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from click.testing import CliRunner, Result

from services.cli.command import main
from services.cli.config.commands import split_output
from shared.config.field_table import FIELDS
from shared.config.findings import ConfigurationRefusedError
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.bootstrap.kubeconfigs import kubeconfig, plugin, write

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
GOOD = HEAD + "hairpinMode: none\nauthentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
AT_MOST_LOGGED = "the kubelet would start all the same, and at most log it"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BULKHEAD_HOME", "BULKHEAD_RUN_DIR", "KUBELET_ARGS"):
        monkeypatch.delenv(name, raising=False)


def config(command: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", command, *arguments])


def with_file(tmp_path: Path, text: str) -> str:
    file = tmp_path / "k.yaml"
    file.write_text(text, encoding="utf-8")
    return f"--config={file}"


def findings(tmp_path: Path, text: str, *flags: str) -> list[dict[str, Any]]:
    result = config("check", with_file(tmp_path, text), *flags, "--output=json")
    found: list[dict[str, Any]] = json.loads(result.stdout)
    assert result.exit_code == any(one["severity"] == "error" for one in found)
    assert result.stderr == ""
    return found


def test_a_good_configuration_exits_zero(tmp_path: Path) -> None:
    result = config("check", with_file(tmp_path, GOOD))
    assert result.exit_code == 0
    assert result.output == f"note: accepted, but without effect yet: hairpinMode\n{tmp_path}/k.yaml: good\n"


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_file_alone_is_the_configuration(tmp_path: Path, command: str) -> None:
    flag = with_file(tmp_path, GOOD)
    found = config(command, flag.removeprefix("--config="), "--v=2", "-o", "json")
    assert found.exit_code == 0
    assert found.output == config(command, flag, "--v=2", "-o", "json").output


@pytest.mark.long
def test_drop_ins_flags_and_the_kubeconfig_that_were_checked_are_named(tmp_path: Path) -> None:
    drop_ins = tmp_path / "drop-ins"
    drop_ins.mkdir()
    (drop_ins / "10.conf").write_text(GOOD.partition("auth")[0] + "maxPods: 50\n")
    kubeconfig = tmp_path / "kubeconfig"
    user = "users: [{name: u, user: {token: t}}]\n"
    cluster = "clusters: [{name: c, cluster: {server: 'http://192.0.2.1'}}]\n"
    contexts = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    kubeconfig.write_text(f"apiVersion: v1\nkind: Config\n{user}{cluster}{contexts}")
    flags = f"--config-dir={drop_ins}", f"--kubeconfig={kubeconfig}", "--v=2"
    result = config("check", with_file(tmp_path, GOOD), *flags)
    checked = f"3 flags, {drop_ins}/10.conf, {kubeconfig}"
    assert result.output.splitlines()[-1] == f"{tmp_path}/k.yaml: good (with {checked})"


def test_a_bad_configuration_exits_one_with_all_problems_and_what_stands_there(tmp_path: Path) -> None:
    result = config("check", with_file(tmp_path, GOOD + "logging: {prt: 1}\nmaxPods: many\n"), "-v=3")
    assert result.exit_code == 1
    assert [line.removeprefix(f"{tmp_path}/") for line in result.stderr.splitlines()] == [
        f"k.yaml:6:11: logging.prt: unknown key, ignored; {AT_MOST_LOGGED} (remove it)",
        "    logging: {prt: 1}",
        "              ^",
        'k.yaml:7:1: maxPods: is "many", must be a 32-bit whole number (write a number without quotes)',
        "    maxPods: many",
        "    ^",
    ]


@pytest.mark.long
def test_problems_are_readable_by_programs(tmp_path: Path) -> None:
    [note, bad] = findings(tmp_path, GOOD + "prt: 1\n")
    assert bad == {
        "severity": "error", "file": f"{tmp_path}/k.yaml", "line": 6, "column": 1, "key": "prt",
        "message": f"unknown key, ignored; {AT_MOST_LOGGED}",
        "remedy": 'did you mean "port"?', "text": "prt: 1",
    }  # fmt: skip
    assert (note["severity"], note["key"], note["line"], note["text"]) == (
        "note",
        "hairpinMode",
        3,
        "hairpinMode: none",
    )


@pytest.mark.parametrize(
    ("flag", "key", "text"),
    [("--node-ip=1.1.1.1,2.2.2.2", "", "--node-ip"), ("--port=99999", "port", "--port"), ("--prt=1", "", "")],
)
def test_a_problem_of_a_flag_names_the_flag(tmp_path: Path, flag: str, key: str, text: str) -> None:
    [bad] = [one for one in findings(tmp_path, GOOD, flag) if one["severity"] == "error"]
    assert (bad["key"], bad["text"], bad["line"], bad["file"]) == (key, text, 0, "")


def test_a_long_line_is_shown_around_the_mistake(tmp_path: Path) -> None:
    text = json.dumps({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"} | {
        "authentication": {"webhook": {"enabled": False}}, "authorization": {"mode": "AlwaysAllow"},
        "providerID": "x" * 500, "maxPods": "many", "clusterDomain": "y" * 500,
    })  # fmt: skip
    _, line, caret = config("check", with_file(tmp_path, text)).stderr.splitlines()
    assert line[caret.index("^") :].startswith('"maxPods"') and len(line) < 110


@pytest.mark.share(4)
@pytest.mark.parametrize(
    "text",
    [
        "staticPodURLHeader:\n  Authorization: hunter2\n  X: [hunter2]\n",
        "staticPodURLHeader: {Authorization: [{b: hunter2}]}\n",
        "staticPodURLHeaders: {Authorization: hunter2}\nstaticPodURLHeader: {A: [\n hunter2]}\n",
        "staticPodURLHeader:\n  Authorization: ['hunter2\n",
        "staticPodURLHeader: {Authorization: hunter2]\n",
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_headers_are_never_shown(tmp_path: Path, text: str, form: str) -> None:
    result = config("check", with_file(tmp_path, GOOD + text), f"--output={form}")
    assert "Header" in result.output + result.stderr or "YAML" in result.output + result.stderr
    assert "hunter2" not in result.output + result.stderr
    for form in ("text", "yaml", "json"):
        shown = config("show", with_file(tmp_path, GOOD), "--manifest-url-header=A:hunter2", f"--output={form}")
        assert shown.exit_code == 0 and "hunter2" not in shown.output and "<masked>" in shown.output


def test_without_flags_those_of_bootstrap_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBELET_ARGS", "--nonsense")
    for command in ("check", "show"):
        result = config(command, "--output", "json")
        assert result.exit_code == 1
        assert "unknown flag: --nonsense" in result.output + result.stderr


@pytest.mark.parametrize(
    ("given", "rest", "form"),
    [
        (["--v=1"], ["--v=1"], "text"),
        (["--output", "json", "--v=1"], ["--v=1"], "json"),
        (["--v", "1", "--output=json", "--port", "5"], ["--v", "1", "--port", "5"], "json"),
        (["--v=1", "--output=json"], ["--v=1"], "json"),
    ],
)
def test_our_own_flag_stands_anywhere(given: list[str], rest: list[str], form: str) -> None:
    assert split_output(given, ("text", "json")) == (rest, form)


@pytest.mark.parametrize("given", [["--output"], ["--output=xml"], ["--output", "yaml"]])
def test_an_unknown_form_is_refused(given: list[str]) -> None:
    with pytest.raises(ConfigurationRefusedError, match=r"--output: is .* must be one of text, json"):
        split_output(given, ("text", "json"))


@pytest.mark.parametrize(("command", "what"), [("check", "Check a configuration"), ("show", "Show the effective")])
def test_help_is_that_of_the_command(command: str, what: str) -> None:
    result = config(command, "--help")
    assert result.exit_code == 0 and what in result.output


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(main, ["version"]).output.startswith("bulkhead ")


def test_the_flags_are_listed_with_their_keys() -> None:
    output = config("flags").output
    assert all(f"--{one.flag:45} {one.key}\n" in output for one in FIELDS if one.flag)


LOCAL = "--address=127.0.0.1"  # flags alone on every address are an error: access without credentials


@pytest.mark.long
def test_a_server_that_lets_every_host_in_fails_the_check_and_a_local_one_does_not() -> None:
    result = config("check", "--v=1")
    assert result.exit_code == 1
    assert "authentication.anonymous.enabled: is true while authorization.mode is AlwaysAllow" in result.stderr
    assert config("check", LOCAL).exit_code == 0


def test_another_root_directory_is_noted_where_pods_of_a_cluster_expect_the_usual_one(tmp_path: Path) -> None:
    file = write(tmp_path / "kubelet.conf", kubeconfig(plugin(tmp_path / "get", "true")))
    other = f"--root-dir={tmp_path}/kubelet"
    in_a_cluster = config("check", f"--kubeconfig={file}", LOCAL, other)
    assert in_a_cluster.exit_code == 0
    assert in_a_cluster.output.startswith(
        "note: --root-dir: CSI drivers, device plugins and DaemonSets that mount /var/"
    )
    assert "--root-dir" not in config("check", f"--kubeconfig={file}", LOCAL).output
    assert "--root-dir" not in config("check", f"--kubeconfig={file}", LOCAL, "--root-dir=/var/lib/kubelet").output
    assert "--root-dir" not in config("check", LOCAL, other).output


@pytest.mark.long
def test_the_kubeconfig_is_checked_too_and_its_plugin_left_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "kubelet.conf", kubeconfig(plugin(tmp_path / "get", f"touch {tmp_path}/ran")))
    result = config("check", f"--kubeconfig={file}", LOCAL)
    assert (result.exit_code, (tmp_path / "ran").exists()) == (0, False)
    write(file, kubeconfig({"tokenFile": "none"}))
    result = config("check", f"--kubeconfig={file}", LOCAL)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"--kubeconfig: {file}: tokenFile: {tmp_path}/none cannot be read: No such file")


def test_an_absent_ca_and_an_absent_serving_pair_are_problems_with_their_place(tmp_path: Path) -> None:
    text = GOOD.replace("webhook:", "x509: {clientCAFile: ca.pem}, webhook:", 1)
    text += "tlsCertFile: /none/a.crt\ntlsPrivateKeyFile: /none/a.key\n"
    found = [one for one in findings(tmp_path, text) if one["severity"] == "error"]
    assert [(one["key"], one["line"] > 0) for one in found] == [
        ("authentication.x509.clientCAFile", True),
        ("tlsCertFile", True),
    ]
    assert found[0]["message"].startswith(f"{tmp_path}/ca.pem: No such file")
    assert found[1]["message"].startswith("/none/a.crt does not exist")


@pytest.mark.long
def test_a_serving_pair_that_the_agent_makes_may_be_absent_and_is_not_made(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    assert config("check", f"--cert-dir={directory}", LOCAL).exit_code == 0
    assert not directory.exists()
    directory.mkdir()
    (directory / "kubelet.crt").write_text("half a pair")
    assert config("check", f"--cert-dir={directory}", LOCAL).exit_code == 1


def test_a_kubeconfig_that_is_still_to_be_made_is_not_missing(tmp_path: Path) -> None:
    made = f"--kubeconfig={tmp_path}/kubelet.conf"
    bootstrap = write(tmp_path / "bootstrap.conf", kubeconfig({"token": "t"}))
    assert config("check", made, f"--bootstrap-kubeconfig={bootstrap}", LOCAL).exit_code == 0
    assert config("check", made, LOCAL).exit_code == 1


def test_every_value_is_shown_with_its_origin(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "1.conf").write_text(HEAD + "evictionHard: {memory.available: 1Gi}\n", encoding="utf-8")
    flags = [f"--config-dir={tmp_path}/d", "--max-pods=5", "--node-labels=a=b"]
    lines = config("show", with_file(tmp_path, GOOD), *flags).output.splitlines()
    shown = dict(line.rsplit("  # ", 1) for line in lines)
    shown = {text.rstrip(): origin for text, origin in shown.items()}
    assert shown["maxPods: 5"] == "--max-pods"
    assert shown["hairpinMode: none"] == f"{tmp_path}/k.yaml:3:1"
    assert shown["evictionHard.memory.available: 1Gi"] == f"{tmp_path}/d/1.conf:3:16"
    assert shown["evictionHard.nodefs.available: 10%"] == "default"
    assert shown['--node-labels={"a": "b"}'] == "--node-labels"
    assert shown["--root-dir=/var/lib/kubelet"] == "default"
    assert len([line for line in lines if not line.startswith("--")]) > 100


def test_what_is_shown_as_yaml_gives_the_same_configuration_again(tmp_path: Path) -> None:
    flags = ["--max-pods=5", "--system-reserved=cpu=1", "--register-with-taints=a=b:NoSchedule"]
    flags.append('--provider-id=a: "b" # \\ud83d \\\U0001f600 \u2028 yes')
    first = config("show", with_file(tmp_path, GOOD), *flags, "--output=yaml").output
    again = config("show", with_file(tmp_path, first), "--output=yaml").output
    assert yaml.safe_load(again) == yaml.safe_load(first)
    assert yaml.safe_load(first)["maxPods"] == 5


def test_flags_alone_are_shown_as_a_file_that_gives_the_same(tmp_path: Path) -> None:
    flags = ("--max-pods=5", "--sync-frequency=30s", "--enforce-node-allocatable=")
    wanted = json.loads(config("show", *flags, "--output=json").stdout)["kubeletconfig"]
    file = with_file(tmp_path, config("show", *flags, "--output=yaml").stdout)
    again = json.loads(config("show", file, "--output=json").stdout)["kubeletconfig"]
    assert wanted.get("evictionHard") is None
    assert again.pop("evictionHard") == {}  # no thresholds, either way
    assert again == wanted


def test_what_is_shown_as_json_holds_document_origins_and_flags(tmp_path: Path) -> None:
    shown = json.loads(config("show", with_file(tmp_path, GOOD), "--port=1", "--output=json").output)
    assert shown["kubeletconfig"]["kind"] == "KubeletConfiguration" and shown["kubeletconfig"]["port"] == 1
    assert shown["origins"]["port"] == {"layer": "flag", "place": "--port", "reason": ""}
    assert shown["flags"]["config"] == {"value": f"{tmp_path}/k.yaml", "origin": "--config"}


def test_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "services.cli.command", "config", "flags"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "standard output cannot be written: No space left on device (write it elsewhere)\n"


@pytest.mark.parametrize("words", [("status", "--wait-ready"), ("status",), ("restart", "pleg")], ids=" ".join)
def test_ctrl_c_ends_a_command_that_waits_with_130_and_without_a_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    for module in ("status", "restart"):
        monkeypatch.setattr(f"services.cli.agent.{module}.local_agent", interrupted)
    answer = CliRunner().invoke(main, [*words, "--run-dir", str(tmp_path)])
    assert (answer.exit_code, answer.output) == (130, "")


_ENDLESS = """
import signal, click
from services.cli.command import SectionedGroup
from services.cli.terminal.output import write
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
@click.group(cls=SectionedGroup)
def main(): pass
@main.command()
def endless():
    while True:
        write("x" * 4095)
main(["endless"])
"""


def test_ctrl_c_ends_a_command_whose_output_is_not_read() -> None:
    command, pipe = [sys.executable, "-c", _ENDLESS], subprocess.PIPE
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while not _waits_to_write(process.pid, process.stdout.fileno()):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stderr.read() == ""


def _waits_to_write(process: int, pipe: int) -> bool:
    [held] = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return bool(held == fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) and state == "S")


def test_an_agent_of_another_user_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_given: object, **_named: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("read_bytes", "exists"):
        monkeypatch.setattr(Path, name, refused)
    answer = CliRunner().invoke(main, ["status", "--run-dir", str(tmp_path)])
    assert answer.exit_code == 1
    remedy = "run this as root, or as the user of the agent"
    assert answer.stderr == f"{tmp_path}: cannot be read by this user ({remedy})\n"
