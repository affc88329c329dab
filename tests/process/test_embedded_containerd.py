"""The embedded containerd: started by bootstrap, watched by its keeper, never two of them."""

import os
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from services.bootstrap.adapters.containerd_host import look
from services.bootstrap.adapters.containerd_process import find_containerd
from services.bootstrap.core.containerd_config import render_config
from shared.config.effective import EmbeddedContainerd
from shared.host.address_translation import address_translation
from shared.model.frozen_copy import replace
from tests.process.supervised import Agent, alive, eventually
from tests.support.installed.debian_containerd import INSTALLED, NEWEST, SUITES, fetch_programs
from tests.support.installed.lacking import lack
from tests.support.runtime.containerd import network_of_our_own
from tests.support.waits.deadline import WAIT_SECONDS
from tools.containerd import answers

pytestmark = pytest.mark.root


def embedded(bridge: str, subnet: str, image: str = "localhost/bulkhead/pause:1") -> str:
    """The second document of the configuration file."""
    return (
        "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
        f"embeddedContainerd: {{enabled: true, bridge: {bridge}, podCIDR: {subnet}, sandboxImage: '{image}'}}\n"
    )


def fetched(suite: str) -> Path:
    """The directory of the containerd of the suite; the test is lacking where it cannot be had."""
    try:
        return Path(fetch_programs(suite))
    except OSError as error:
        lack(str(error))


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("c"), dummies=(), programs=("bootstrap", "containerd"))
    bridge, subnet = network_of_our_own()
    agent.configure(embedded(bridge, subnet))
    yield agent
    agent.clean_up()


def child(agent: Agent, besides: int = 0) -> int:
    """The containerd, once it answers and a keeper holds the lock."""

    def look() -> int:
        found = find_containerd(f"{agent.run_dir}/containerd/config.toml")
        return found if found != besides and answers(f"{agent.run_dir}/containerd/containerd.sock") else 0

    agent.holder("containerd")
    return eventually(look, "containerd answers")


def opened(process: int) -> set[str]:
    """The names of the files it has open; one that it closes meanwhile may be missing."""
    names = set()
    for fd in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.add(fd.readlink().name)
    return names


def test_bootstrap_has_it_started_with_a_configuration_that_it_takes(agent: Agent) -> None:
    agent.start()
    containerd = child(agent)
    assert "containerd.lock" not in opened(containerd)  # a shim would inherit it and hold it for ever
    assert agent.stop() == 0
    assert not alive(containerd)


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("keeper", signal.SIGKILL),
        ("containerd", signal.SIGTERM),
        pytest.param("keeper", signal.SIGTERM, marks=pytest.mark.night),
        pytest.param("containerd", signal.SIGKILL, marks=pytest.mark.night),
    ],
)
def test_after_a_signal_it_is_restarted_as_one_process(agent: Agent, victim: str, number: signal.Signals) -> None:
    agent.start()
    before, keeper = child(agent), agent.holder("containerd")
    os.kill(keeper if victim == "keeper" else before, number)
    agent.holder("containerd", besides=keeper)
    killed_keeper = (victim, number) == ("keeper", signal.SIGKILL)
    after = child(agent, besides=0 if killed_keeper else before)
    assert alive(after)
    assert (after == before) is killed_keeper, "the next keeper finds the containerd that runs"


def test_a_keeper_killed_before_it_has_noted_its_containerd_leaves_it_to_the_next_one(agent: Agent) -> None:
    crash = agent.home / "crash"
    crash.write_text("containerd.started")
    agent.environment["CRASH_AT"] = f"@{crash}"
    agent.start()
    containerd = child(agent)  # which may answer before its keeper goes on
    eventually(lambda: not crash.exists(), "the first keeper is killed")
    agent.logged("containerd", f"containerd runs already as process {containerd}")


def test_the_keeper_of_a_new_supervisord_keeps_the_containerd_that_runs(agent: Agent) -> None:
    agent.start()
    containerd, keeper = child(agent), agent.holder("containerd")
    agent.kill_supervisord()
    agent.start()
    assert agent.holder("containerd", besides=keeper) == agent.pid("containerd")
    eventually(lambda: not alive(keeper), "the first keeper ends")  # the kernel frees its lock before that
    agent.logged("containerd", f"containerd runs already as process {containerd}")
    assert child(agent) == containerd
    assert agent.stop() == 0
    assert not alive(containerd)


def test_a_configuration_that_changed_while_supervisord_was_dead_restarts_it(agent: Agent) -> None:
    agent.start()
    containerd, keeper = child(agent), agent.holder("containerd")
    agent.kill_supervisord()
    bridge, subnet = network_of_our_own()
    agent.configure(embedded(bridge, subnet, "localhost/other:1"))
    agent.start()
    agent.holder("containerd", besides=keeper)
    assert child(agent, besides=containerd)
    assert not alive(containerd)


def test_one_that_is_no_longer_configured_is_ended_by_the_next_supervisord(agent: Agent) -> None:
    agent.start()
    containerd, keeper = child(agent), agent.holder("containerd")
    agent.kill_supervisord()
    agent.configure()
    agent.start()
    eventually(lambda: not alive(keeper) and not alive(containerd), "keeper and containerd end")


def test_nat_rules_of_pods_that_are_gone_are_removed_before_it_starts(agent: Agent) -> None:
    bridge, subnet = network_of_our_own()
    agent.configure(embedded(bridge, subnet))
    rule = ("POSTROUTING", "-s", subnet, "-m", "comment", "--comment", f'name: "{bridge}" id: "1"', "-j", "MASQUERADE")
    subprocess.run(["iptables", "-w", "-t", "nat", "-A", *rule], check=True)
    agent.start()
    child(agent)
    assert address_translation(bridge) == []


def test_a_hangup_makes_it_read_its_configuration_again(agent: Agent) -> None:
    agent.start()
    before = child(agent)
    os.kill(agent.holder("containerd"), signal.SIGHUP)
    assert child(agent, besides=before)


def test_what_is_not_installed_is_named_with_the_remedy(agent: Agent) -> None:
    agent.configure(
        "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
        "embeddedContainerd: {enabled: true, path: /nowhere/containerd, cniBinDir: /nowhere}\n"
    )
    agent.start()
    assert agent.supervisord and agent.supervisord.wait(WAIT_SECONDS) == 0
    lines = (agent.home / "console").read_text()
    assert "/nowhere/containerd is not an executable (apt-get install containerd" in lines
    assert "/nowhere/bridge does not exist (apt-get install" in lines


def dumped(
    program: Path, directory: Path, embedded: EmbeddedContainerd, as_of: tuple[int, int] | None = None
) -> dict[str, Any]:
    """All values that this containerd goes by with the configuration for it, or for the version `as_of`."""
    machine = look(embedded)
    file = directory / "config.toml"
    file.write_text(
        render_config(embedded, replace(machine, containerd_version=as_of or machine.containerd_version),
                      systemd_cgroup=True)
    )  # fmt: skip
    done = subprocess.run([program, "--config", file, "config", "dump"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return tomllib.loads(done.stdout)


@pytest.mark.parametrize("suite", SUITES)
def test_containerd_reads_its_configuration_as_it_is_meant(suite: str, tmp_path: Path) -> None:
    program = fetched(suite) / "containerd"
    embedded = EmbeddedContainerd(
        root=f"{tmp_path}/root", state=f"{tmp_path}/state", socket=f"{tmp_path}/c.sock", config_file="",
        cni_conf_dir="/cni", cni_bin_dir="/cni/bin", path=str(program), registry_config_path="/certs.d",
    )  # fmt: skip
    read = dumped(program, tmp_path, embedded)
    assert read["grpc"]["address"] == embedded.socket
    assert read["timeouts"]["io.containerd.timeout.shim.load"] == "30s"
    if read["version"] == 2:
        cri = read["plugins"]["io.containerd.grpc.v1.cri"]
        assert (cri["sandbox_image"], cri["registry"]["config_path"]) == (embedded.sandbox_image, "/certs.d")
        assert (cri["cni"]["bin_dir"], cri["cni"]["conf_dir"]) == ("/cni/bin", "/cni")
        assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True
        return
    # containerd itself makes the same values from the version that it replaced, but for the socket of NRI, which every
    # containerd of the machine would share.
    assert read["plugins"]["io.containerd.nri.v1.nri"].pop("socket_path") == f"{tmp_path}/nri.sock"
    migrated = dumped(program, tmp_path, embedded, (1, 6))
    assert migrated["plugins"]["io.containerd.nri.v1.nri"].pop("socket_path") == "/var/run/nri/nri.sock"
    assert read == migrated


def test_one_that_was_replaced_by_an_older_one_is_started_with_a_configuration_that_it_reads(agent: Agent) -> None:
    programs = agent.home / "bin"
    programs.mkdir()
    (programs / "containerd").symlink_to(fetched(NEWEST) / "containerd")
    agent.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    agent.start()
    newer = child(agent)
    config = agent.run_dir / "containerd/config.toml"
    assert tomllib.loads(config.read_text())["version"] == 3
    (programs / "containerd").unlink()
    (programs / "containerd").symlink_to(fetched(INSTALLED) / "containerd")
    os.kill(newer, signal.SIGTERM)
    assert child(agent, besides=newer)
    assert tomllib.loads(config.read_text())["version"] == 2
