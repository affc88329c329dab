"""The `kubelet` executable as scripts and operators know it: exit codes, streams, signals, the lock file."""

import fcntl
import os
import re
import signal
import socket
import stat
import subprocess
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.process.kubelet_process import Kubelet, is_watched
from tests.process.supervised import CHECKOUT, alive, eventually
from tests.support.agents.agent import BIN
from tests.support.agents.free_ports import free_ports
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped
from tools.leftovers import agent_processes_of

RECORD = re.compile(
    r'^E\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ (?:kubelet|bootstrap)/\w+\.py:\d+\] "command failed" err="(.*)"$'
)


def run(*flags: str, home: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    given = {"PATH": os.environ["PATH"], **KEPT_MACHINE, "BULKHEAD_HOME": str(home), **environment}
    return subprocess.run(
        [str(BIN / "kubelet"), *flags], env=given, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )


@pytest.mark.parametrize(
    ("flags", "first_line"),
    [
        (["--version"], r"Kubernetes v1\.37\.\d+$"),
        (["--hostname-override=a", "--version=true"], r"Kubernetes v1\.37\.\d+$"),
        (["--version=raw"], r"version\.Info\{Major:\"1\", Minor:\"37\", .*\}$"),
        (["--help"], r".+"),
        (["-h", "--version"], r".+"),
    ],
)
def test_help_and_version_go_to_standard_output(flags: list[str], first_line: str, tmp_path: Path) -> None:
    done = run(*flags, home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(first_line, done.stdout.splitlines()[0])
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_the_version_is_that_of_the_configuration(tmp_path: Path) -> None:
    file, home = tmp_path / "kubelet.yaml", tmp_path / "home"
    home.mkdir()
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\n"
        'apiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\nemulatedVersion: "1.36"\n'
    )
    assert run(f"--config={file}", "--version", home=home).stdout == "Kubernetes v1.36.0\n"
    (home / "kubelet.args").write_text(f"--config={file}\n")  # of the installed agent
    assert run("--version", home=home).stdout == "Kubernetes v1.36.0\n"
    file.write_text("{")
    assert run("--version", home=home).stdout == "Kubernetes v1.37.0\n"
    file.unlink()
    done = run(f"--config={file}", "--version", home=home)
    assert (done.stdout, done.stderr, done.returncode) == ("Kubernetes v1.37.0\n", "", 0)


def test_a_version_of_another_release_than_the_configured_one_is_refused(tmp_path: Path) -> None:
    done = run("--version=v1.36.0-1", home=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is another release than v1.37.0, which emulatedVersion chooses (leave it out)" in done.stderr


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--prot=1"], "unknown flag: --prot"),
        (["run"], "run"),
        (["--max-pods=many"], "max-pods"),
        (["--config=/nonexistent/file"], "/nonexistent/file"),
        (["--exit-on-lock-contention"], "lock-file"),
        (["--v=0"] * 30_000, "the flags"),
    ],
)
def test_a_mistake_is_a_record_on_standard_error_and_exit_1(flags: list[str], problem: str, tmp_path: Path) -> None:
    done = run(*flags, home=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    found = [RECORD.match(line) for line in done.stderr.splitlines()]
    assert found and all(found), done.stderr
    assert any(problem in match.group(1) for match in found if match)


def test_every_mistake_of_a_file_is_a_record_of_its_own(kubelet: Kubelet) -> None:
    kubelet.config.write_text(kubelet.config.read_text() + "maxPods: -1\nimageGCHighThresholdPercent: 300\n")
    kubelet.start()
    assert kubelet.process.wait(WAIT_SECONDS) == 1
    records = [RECORD.match(line) for line in kubelet.stderr().splitlines()]
    assert len(records) >= 2 and all(records)


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="systemd booted this machine, where it is right")
def test_the_driver_systemd_without_systemd_is_refused_in_one_line(kubelet: Kubelet) -> None:
    """What kubeadm writes, on a machine where it cannot be kept."""
    kubelet.config.write_text(kubelet.config.read_text() + "cgroupDriver: systemd\n")
    kubelet.start()
    assert kubelet.process.wait(WAIT_SECONDS) == 1
    records = [match.group(1) for line in kubelet.stderr().splitlines() if (match := RECORD.match(line))]
    [line] = [record for record in records if "cgroupDriver" in record]
    assert "process 1 of this machine is not systemd (set it to cgroupfs here and in the container runtime" in line


def test_without_a_configuration_the_unit_refuses_access_for_every_host(tmp_path: Path) -> None:
    unit = (CHECKOUT / "systemd/bulkhead.service").read_text()
    names = [line.removeprefix("Environment=") for line in unit.splitlines() if line.startswith("Environment=")]
    environment = {**os.environ, **dict(name.split("=", 1) for name in names), "BULKHEAD_HOME": str(tmp_path)}
    command = [str(BIN / "kubelet")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 1
    assert "every host that reaches port 10250 may run commands in every container" in done.stderr


def test_started_by_hand_with_such_access_it_logs_an_error(kubelet: Kubelet) -> None:
    kubelet.start("--anonymous-auth=true", "--address=0.0.0.0")
    text = kubelet.wait_stderr("every host that reaches port")
    [line] = [line for line in text.splitlines() if "every host that reaches port" in line]
    assert line.startswith("E")


def test_deprecations_are_printed_raw_and_before_an_error(tmp_path: Path) -> None:
    done = run("--minimum-container-ttl-duration=1m", "--bogus", home=tmp_path)
    first, second = done.stderr.splitlines()
    assert first.startswith("Flag --minimum-container-ttl-duration has been deprecated, ")
    assert RECORD.match(second)


@pytest.mark.parametrize(("name", "value"), [("WATCHDOG_USEC", "soon"), ("WATCHDOG_USEC", "5")])
def test_a_watchdog_that_makes_no_sense_refuses_the_start(name: str, value: str, tmp_path: Path) -> None:
    done = run("--v=0", home=tmp_path, **{name: value})
    assert done.returncode == 1
    assert name in done.stderr.splitlines()[-1] and RECORD.match(done.stderr.splitlines()[-1])


def test_it_is_one_process_that_speaks_for_all_takes_any_flags_and_ends_as_a_kubelet_does(kubelet: Kubelet) -> None:
    kubelet.start("-v=1", "--node-labels=a=b", '--resolv-conf=/tmp/it\'s; a "strange" % name #1')
    services = kubelet.wait_all()
    assert 'it\'s; a \\"strange\\" % name #1' in (kubelet.run_dir / "config.json").read_text()
    pid = kubelet.process.pid
    assert Path(f"/proc/{pid}/comm").read_text() == "kubelet\n"
    assert {Path(f"/proc/{service}/stat").read_text().split()[3] for service in services.values()} == {str(pid)}
    output = kubelet.stderr()
    assert re.search(r'^I\S+ \S+ +\d+ kubelet/\w+\.py:\d+\] FLAG: --max-pods="110"$', output, re.MULTILINE)
    assert re.search(
        rf'^I\S+ \S+ +{pid} kubelet/\w+\.py:\d+\] "Kubelet version" kubeletVersion="v1\.37\.', output, re.MULTILINE
    )
    assert not [line for line in output.splitlines() if "supervisord" in line.lower() or "CRIT" in line]
    assert kubelet.end() == 0
    assert not any(alive(service) for service in services.values())
    assert (kubelet.home / "stdout").read_text() == ""


def test_a_killed_service_is_back_at_once_and_supervisorctl_works_with_the_configuration_it_leaves(
    kubelet: Kubelet,
) -> None:
    kubelet.start()
    before = kubelet.wait_all()["volume"]
    os.kill(before, signal.SIGKILL)
    eventually(lambda: kubelet.holders().get("volume", before) != before, "another volume")
    done = subprocess.run(
        [BIN / "supervisorctl", "-c", kubelet.run_dir / "supervisord.conf", "status", "pleg"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "RUNNING" in done.stdout
    subprocess.run([BIN / "supervisorctl", "-c", kubelet.run_dir / "supervisord.conf", "shutdown"], check=False)
    assert kubelet.process.wait(WAIT_SECONDS) == 0


def test_no_counter_falls_when_server_and_others_are_killed(kubelet: Kubelet) -> None:
    [port] = free_ports(1)

    def scrape() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """What is shown once server is there and each process answers it."""

        def look() -> str:
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                text: str = answer.read().decode()
                return "" if re.search(r"^bulkhead_scrape_missing\{.*\} 1$", text, re.MULTILINE) else text
            return ""

        text = eventually(look, "a complete scrape")
        parsed = text_string_to_metric_families(text)
        return {(s.name, frozenset(s.labels.items())): s.value for family in parsed for s in family.samples}

    def kill(*services: str) -> None:
        before = {service: kubelet.holders()[service] for service in services}
        for process in before.values():
            os.kill(process, signal.SIGKILL)
        eventually(lambda: not set(before.values()) & set(kubelet.wait_all().values()), f"others than {before}")

    kubelet.start(f"--read-only-port={port}")
    kubelet.wait_all()
    shown = [scrape()]
    for killed in (("volume",), ("server", "status"), ("server",)):
        kill(*killed)
        shown.append(scrape())
    for before, after in pairwise(shown):
        counters = [key for key in before if key[0].endswith(("_total", "_count", "_bucket"))]
        assert len(counters) > 100
        assert [key for key in counters if after.get(key, -1.0) < before[key]] == []
        assert after["process_start_time_seconds", frozenset()] == before["process_start_time_seconds", frozenset()]
    assert kubelet.end() == 0
    kubelet.start(f"--read-only-port={port}")
    again = scrape()["process_start_time_seconds", frozenset()]
    assert again > shown[0]["process_start_time_seconds", frozenset()], "with a new supervisord counters begin again"
    assert kubelet.end() == 0


def test_a_second_signal_ends_it_at_once_with_1_and_leaves_no_process(kubelet: Kubelet) -> None:
    kubelet.start()
    services = kubelet.wait_all()
    os.kill(services["podsync"], signal.SIGSTOP)  # so that the first signal cannot end everything
    wait_stopped(services["podsync"])
    kubelet.process.terminate()
    eventually(lambda: "server" not in kubelet.holders(), "the stop has begun")
    assert kubelet.end(signal.SIGINT) == 1
    eventually(lambda: not any(alive(pid) for pid in services.values()), "no process is left")
    kubelet.start()
    eventually(lambda: len(kubelet.holders()) == 7, "it can be started again")
    assert kubelet.end() == 0


def test_two_signals_during_the_start_end_it_and_leave_no_process(kubelet: Kubelet) -> None:
    kubelet.start()
    eventually(lambda: kubelet.holders() or (kubelet.run_dir / "supervisord.pid").exists(), "it starts services")
    kubelet.process.terminate()
    kubelet.process.terminate()
    assert kubelet.process.wait(WAIT_SECONDS) in (0, 1)
    eventually(lambda: not kubelet.holders(), "no process is left")


def test_what_bootstrap_refuses_ends_it_with_1_and_is_printed_once(kubelet: Kubelet) -> None:
    with socket.create_server(("127.0.0.1", kubelet.port)):
        kubelet.start()
        assert kubelet.process.wait(WAIT_SECONDS) == 1
    records = [match for line in kubelet.stderr().splitlines() if (match := RECORD.match(line))]
    assert [bool(re.search(rf"{kubelet.port} is in use by", match.group(1))) for match in records] == [True]
    assert "bulkhead bootstrap:" not in kubelet.stderr()


def test_another_one_with_the_same_run_directory_is_refused_and_harms_no_process(kubelet: Kubelet) -> None:
    kubelet.start()
    services = kubelet.wait_all()
    kubelet.start()
    assert kubelet.process.wait(WAIT_SECONDS) == 1
    kubelet.processes.pop()
    assert "a kubelet with this run directory is running already" in kubelet.stderr()
    assert kubelet.holders() == services
    assert kubelet.end() == 0


def test_the_lock_is_held_until_the_process_ends_and_waited_for(kubelet: Kubelet) -> None:
    lock = kubelet.home / "lock"
    flag = f"--lock-file={lock}"
    kubelet.start(flag)
    kubelet.wait_all()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    with Kubelet() as other:
        other.start(flag)
        eventually((other.run_dir / "supervisord.conf").exists, "the other one is about to lock")
        assert not other.holders()
        assert kubelet.end() == 0
        other.wait_all()
        assert other.end() == 0


def test_a_killed_one_leaves_no_lock_behind(kubelet: Kubelet) -> None:
    flag = f"--lock-file={kubelet.home}/lock"
    kubelet.start(flag)
    holders = kubelet.wait_all()
    kubelet.process.kill()
    kubelet.process.wait()
    kubelet.start(flag)
    eventually(lambda: not set(kubelet.holders().values()) & set(holders.values()), "they are replaced")
    assert kubelet.end() == 0
    eventually(lambda: not kubelet.holders(), "both generations have ended")


def test_a_signal_while_waiting_for_the_lock_ends_it(kubelet: Kubelet) -> None:
    flag = f"--lock-file={kubelet.home}/lock"
    with subprocess.Popen(
        ["flock", f"{kubelet.home}/lock", "sh", "-c", "echo locked; exec sleep 600"], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout and holder.stdout.readline()
        kubelet.start(flag)
        eventually((kubelet.run_dir / "supervisord.conf").exists, "it is about to lock")
        assert kubelet.end() == 0
        holder.kill()


def test_it_exits_on_lock_contention_where_configured(kubelet: Kubelet) -> None:
    lock = kubelet.home / "lock"
    kubelet.start(f"--lock-file={lock}", "--exit-on-lock-contention")
    bootstrap = kubelet.wait_all()["bootstrap"]
    eventually(lambda: is_watched(lock, bootstrap), "the lock file is watched")
    lock.read_bytes()
    assert kubelet.process.wait(WAIT_SECONDS) == 0
    kubelet.wait_stderr("Lock file contention")


def test_without_an_executable_bootstrap_takes_the_lock(kubelet: Kubelet) -> None:
    lock = kubelet.home / "lock"
    environment = {"KUBELET_ARGS": f"--config={kubelet.config} --lock-file={lock}"}
    kubelet.start(argv=[str(BIN / "python"), "-P", "-m", "services.bootstrap"], environment=environment)
    eventually((kubelet.run_dir / "manifest.json").exists, "bootstrap works")
    assert subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 1
    assert kubelet.end() == 0
    assert subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 0


@pytest.mark.parametrize(("closed", "printed"), [(1, True), (2, False)])
def test_a_closed_stream_causes_no_traceback(closed: int, printed: bool, tmp_path: Path) -> None:
    done = subprocess.run(
        [BIN / "kubelet", "--no-such"], env={"BULKHEAD_HOME": str(tmp_path)}, capture_output=True, timeout=WAIT_SECONDS,
        preexec_fn=lambda: os.close(closed), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, b"unknown flag" in done.stderr) == (1, b"", printed)
    assert b"Traceback" not in done.stderr


def test_a_reload_before_there_is_anything_to_reload_does_not_end_it(kubelet: Kubelet) -> None:
    path = kubelet.home / "lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kubelet.start(f"--lock-file={path}")
        kubelet.wait_stderr("Kubelet version")
        kubelet.process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            kubelet.process.wait(0.3)
        assert kubelet.end() == 0


def test_a_stop_ends_what_a_killed_one_left_even_before_it_is_replaced(kubelet: Kubelet) -> None:
    kubelet.start()
    kubelet.wait_all()
    kubelet.process.kill()
    kubelet.process.wait()
    log = kubelet.log_dir / "supervisord.log"
    before = log.read_text().count("spawned: 'server'")
    kubelet.start()
    eventually(lambda: log.read_text().count("spawned: 'server'") > before, "the spawns")
    assert kubelet.end() == 0
    assert kubelet.holders() == {}
    eventually(lambda: agent_processes_of(kubelet.home) == [], "also a check of the certificate that was under way")


def test_each_of_several_killed_ones_is_replaced_whole(kubelet: Kubelet) -> None:
    kubelet.start()
    before = set(kubelet.wait_all().values())
    for _ in range(3):
        kubelet.process.kill()
        kubelet.process.wait()
        kubelet.start()
        ours = eventually(lambda: _all_new(kubelet, before), "seven new services")  # noqa: B023
        eventually(lambda: set(agent_processes_of(kubelet.home)) == {kubelet.process.pid, *ours}, "no other is left")  # noqa: B023
        before = ours
    assert kubelet.end() == 0


def _all_new(kubelet: Kubelet, before: set[int]) -> set[int]:
    holders = set(kubelet.holders().values())
    return holders if len(holders) == 7 and not holders & before else set()


def test_a_limit_of_open_files_it_cannot_work_with_is_one_line_in_the_operators_words(kubelet: Kubelet) -> None:
    unprivileged = ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource")
    kubelet.start(argv=(*unprivileged, "prlimit", "--nofile=64:64", *kubelet.command()))
    assert kubelet.process.wait(WAIT_SECONDS) == 1
    assert "LimitNOFILE" in kubelet.stderr() and "minfds" not in kubelet.stderr()


def test_a_signal_while_it_loads_its_plug_ins_ends_it(kubelet: Kubelet) -> None:
    log = kubelet.log_dir / "supervisord.log"
    for start in range(1, 4):
        kubelet.start()
        eventually(lambda: log.exists() and log.read_text().count("'supervisor' initialized") == start, "its log")  # noqa: B023
        assert kubelet.end() == 0, kubelet.stderr()


def test_a_careless_umask_opens_nothing_to_others(kubelet: Kubelet) -> None:
    kubelet.start(argv=("sh", "-c", 'umask 0; exec "$@"', "sh", *kubelet.command()))
    kubelet.wait_stderr("Kubelet version")
    log = kubelet.log_dir / "supervisord.log"
    eventually(log.exists, "its log")
    assert kubelet.end() == 0
    eventually(lambda: agent_processes_of(kubelet.home) == [], "also what checked the certificate has ended")
    assert [path for path in kubelet.home.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022] == []
