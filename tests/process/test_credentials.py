"""A cluster's credentials under a real supervisord: refused, followed, renewed, complete after a kill."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.manifest import read_manifest
from bus.messages.bootstrap import CredentialsRenewal, RenewCredentials
from shared.kube.credentials import Credentials, load_credentials
from tests.process.supervised import CHECKOUT, Agent, eventually, troubles
from tests.support.agents.bus_client import ask_once
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.bootstrap.kubeconfigs import exec_output, kubeconfig, plugin, write
from tests.unit.kube.tls_world import Authority, write_pair

V1BETA1 = "client.authentication.k8s.io/v1beta1"
CA = Authority()
FIRST, SECOND = CA.issue("system:node:a"), CA.issue("system:node:a")


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("c"))
    agent.args += ["--kubeconfig", str(agent.home / "kubelet.conf")]
    yield agent
    agent.clean_up()


def logged(agent: Agent, service: str, text: str) -> str:
    """The log once it holds the text; a child that loads two packages takes its time on a busy machine."""
    path = agent.log_dir / f"{service}.log"
    return eventually(lambda: t if path.exists() and text in (t := path.read_text()) else "", f"{text!r} in {path}")


def join(agent: Agent, user: dict[str, Any], **cluster: Any) -> None:
    """Write the kubeconfig."""
    write(agent.home / "kubelet.conf", kubeconfig(user, **cluster))


def with_files(agent: Agent) -> dict[str, Any]:
    """A user whose pair is in files, the first pair."""
    certificate, key = write_pair(FIRST, agent.home, "node")
    return {"client-certificate": certificate.name, "client-key": key.name}


def rotate(agent: Agent) -> None:
    """Replace the pair as cert-manager and kubeadm do: the kubelet never sees half a file, but half a pair."""
    for name, content in (("node.key", SECOND.key), ("node.crt", SECOND.certificate)):
        (agent.home / f"{name}.new").write_bytes(content)
        (agent.home / f"{name}.new").rename(agent.home / name)


def in_force(agent: Agent) -> tuple[bytes, bytes]:
    """The pair that services would load now; a set that another one replaced meanwhile is looked at again."""
    while True:
        found = load_credentials(agent.run_dir)
        try:
            return pair_of(found)
        except FileNotFoundError:
            assert load_credentials(agent.run_dir).version > found.version


def pair_of(found: Credentials) -> tuple[bytes, bytes]:
    return Path(found.client_certificate_file).read_bytes(), Path(found.client_key_file).read_bytes()


def token(agent: Agent) -> str:
    """Return the token that services would load now; "" where there is none: a start waits some seconds only for
    a plugin."""
    try:
        return Path(load_credentials(agent.run_dir).token_file).read_text()
    except FileNotFoundError:
        return ""


async def until_troubles(agent: Agent, line: str) -> None:
    """Wait until bootstrap has a trouble with this line, and with "" until it has none."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not (line in found if (found := await troubles(agent)) else not line):
            continue


@pytest.mark.parametrize(
    ("user", "line"),
    [
        (None, "cannot be read: No such file or directory (give the path of a kubeconfig, or leave out the flag)"),
        ({"client-certificate": "no.crt", "client-key": "no.key"}, "no.crt cannot be read: No such file"),
        ({"exec": {"command": "no-such", "apiVersion": V1BETA1}}, "exec: no-such cannot be run: No such file"),
    ],
)
def test_a_bad_kubeconfig_ends_the_first_start_with_its_line(
    agent: Agent, user: dict[str, Any] | None, line: str
) -> None:
    if user is not None:
        join(agent, user)
    [message] = agent.run_bootstrap().splitlines()
    assert message.startswith(f"bulkhead bootstrap: --kubeconfig: {agent.home}/kubelet.conf: ")
    assert line in message
    assert "Traceback" not in (agent.log_dir / "bootstrap.log").read_text()
    assert not (agent.run_dir / "manifest.json").exists()


async def test_a_rotated_certificate_is_followed_and_a_bad_edit_changes_nothing(agent: Agent) -> None:
    join(agent, with_files(agent))  # of a server that does not exist
    agent.start()
    logged(agent, "status", "dummy runs")
    assert in_force(agent) == (FIRST.certificate, FIRST.key)
    pid = agent.holder("bootstrap")
    rotate(agent)
    eventually(lambda: in_force(agent) == (SECOND.certificate, SECOND.key), "the second pair is in force")
    await until_troubles(agent, "")  # on a slow machine bootstrap has seen half a pair
    before = load_credentials(agent.run_dir)
    (agent.home / "node.key").write_bytes(FIRST.key)
    await until_troubles(agent, "client-key is not the key of client-certificate")
    assert load_credentials(agent.run_dir) == before
    rotate(agent)
    await until_troubles(agent, "")
    assert load_credentials(agent.run_dir) == before
    assert agent.holder("bootstrap") == pid
    logged(agent, "bootstrap", "client-key is not the key of client-certificate")
    assert "PRIVATE" not in logged(agent, "bootstrap", "is good again")


async def test_restarted_alone_with_a_bad_kubeconfig_it_keeps_the_credentials(agent: Agent) -> None:
    join(agent, with_files(agent))
    agent.start()
    logged(agent, "status", "dummy runs")
    before = load_credentials(agent.run_dir)
    agent.rpc("stopProcess", "bootstrap")
    good = (agent.home / "kubelet.conf").read_bytes()
    (agent.home / "kubelet.conf").write_text("a: [")
    agent.rpc("startProcess", "bootstrap")
    logged(agent, "bootstrap", "is not YAML: line ")
    assert "is not YAML" in await troubles(agent)
    (agent.home / "kubelet.conf").write_bytes(good)
    logged(agent, "bootstrap", "is good again")
    assert load_credentials(agent.run_dir) == before


async def test_a_plugin_that_fails_at_first_is_asked_until_it_answers(agent: Agent) -> None:
    join(agent, plugin(agent.home / "get", "echo no network >&2; exit 1"))
    agent.start()
    logged(agent, "status", "dummy runs")  # so do static pods
    with pytest.raises(FileNotFoundError):
        load_credentials(agent.run_dir)
    message = "process returned 1. no network (run it by hand)"
    logged(agent, "bootstrap", message)  # at the first start a plugin may also be too slow
    assert message in await troubles(agent)
    plugin(agent.home / "get", f"touch {agent.home}/again; echo no network >&2; exit 1")
    eventually((agent.home / "again").exists, "it is asked again")
    agent.rpc("stopProcess", "bootstrap")
    agent.rpc("startProcess", "bootstrap")  # an agent that has none yet is not refused either
    eventually(lambda: (agent.log_dir / "bootstrap.log").read_text().count(message) == 2, "logged once by each process")
    plugin(agent.home / "get", exec_output({"token": "at-last"}))
    logged(agent, "bootstrap", "is good again")
    assert Path(load_credentials(agent.run_dir).token_file).read_text() == "at-last"
    assert await troubles(agent) == ""
    assert (agent.log_dir / "bootstrap.log").read_text().count(message) == 2


def test_a_plugin_is_run_again_before_its_token_ends(agent: Agent) -> None:
    ends = '"expirationTimestamp":"$(date -u -d "+8 seconds" +%Y-%m-%dT%H:%M:%SZ)"'
    status = f'{{"token":"turn-$(wc -l < {agent.home}/turns)",{ends}}}'
    answer = f'"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}'
    join(agent, plugin(agent.home / "get", f"echo >> {agent.home}/turns\ncat <<END\n{{{answer}}}\nEND"))

    agent.start()
    logged(agent, "status", "dummy runs")
    first = eventually(lambda: token(agent), "a token is in force")
    assert first.startswith("turn-")
    eventually(lambda: int(token(agent).removeprefix("turn-") or 0) > int(first.removeprefix("turn-")), "a later one")
    plugin(agent.home / "get", "echo down >&2; exit 1")
    logged(agent, "bootstrap", "process returned 1. down")
    kept = eventually(lambda: token(agent), "a token stays in force")
    plugin(agent.home / "get", exec_output({"token": "for-ever"}))
    eventually(lambda: token(agent) == "for-ever", "tried again until it works")
    assert kept not in logged(agent, "bootstrap", "is good again")


@pytest.mark.parametrize("point", ["bootstrap.credentials.piece", "bootstrap.credentials.written"])
def test_a_kill_leaves_old_or_new_credentials_whole(agent: Agent, point: str) -> None:
    crash = agent.home / "crash"
    agent.environment["CRASH_AT"] = f"@{crash}"
    join(agent, with_files(agent))
    agent.start()
    logged(agent, "status", "dummy runs")
    before = agent.holder("bootstrap")
    crash.write_text(point)
    rotate(agent)
    pairs = [(FIRST.certificate, FIRST.key), (SECOND.certificate, SECOND.key)]

    def settled() -> bool:
        found = in_force(agent)
        assert found in pairs
        return found == pairs[1] and not crash.exists()

    eventually(settled, "the second pair is in force after the kill")
    agent.holder("bootstrap", besides=before)
    logged(agent, "bootstrap", "bootstrap started")
    directory = agent.run_dir / "credentials"
    eventually(lambda: not list(directory.glob(".*")), "nothing half is left")


def test_no_process_keeps_the_packages_of_the_child() -> None:
    code = "import sys, services.bootstrap.service, shared.kube.client; print(*sys.modules)"
    command = [str(CHECKOUT / ".venv/bin/python"), "-c", code]
    modules = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split()
    assert "services.bootstrap.adapters.kubeconfig" in modules
    assert not {"kubernetes", "cryptography"} & set(modules)


async def test_a_plugin_without_an_expiry_is_run_again_when_the_api_server_refused_what_it_gave(agent: Agent) -> None:
    runs = agent.home / "runs"
    body = f"echo run >> {runs}\nn=$(wc -l < {runs})\n" + exec_output({"token": "TOKEN"}).replace("'END'", "END")
    join(agent, plugin(agent.home / "get", body.replace("TOKEN", "token-$n")))
    agent.start()
    logged(agent, "status", "dummy runs")

    async def refuse(version: int) -> bool:
        request = RenewCredentials(version=version)
        answer = await ask_once(read_manifest(agent.run_dir), "bootstrap", request, CredentialsRenewal)
        return answer.due

    before = eventually(lambda: token(agent), "a token is in force")
    first, begun = load_credentials(agent.run_dir).version, len(runs.read_text().splitlines())
    assert not await refuse(first + 1), "other credentials are in force by now"
    answers = [await refuse(first) for _ in range(20)]
    assert answers[0]
    eventually(lambda: token(agent) not in ("", before), "the plugin's next token is in force")
    assert not await refuse(first)
    assert len(runs.read_text().splitlines()) == begun + 1, "twenty refusals are one run"


@pytest.mark.parametrize("moved", [False, True], ids=["removed", "moved away"])
async def test_a_directory_that_was_replaced_is_followed_on(agent: Agent, moved: bool) -> None:
    directory = agent.home / "etc"
    directory.mkdir()
    agent.args[-1] = str(directory / "kubelet.conf")
    write(directory / "kubelet.conf", kubeconfig({"token": "one"}))
    agent.start()
    logged(agent, "status", "dummy runs")
    if moved:
        directory.rename(agent.home / "old")
    else:
        shutil.rmtree(directory)
    logged(agent, "bootstrap", "cannot be read: No such file or directory")
    directory.mkdir()
    write(directory / "kubelet.conf", kubeconfig({"token": "two"}))
    logged(agent, "bootstrap", "new credentials for the API server are in force")
    write(directory / "kubelet.conf", kubeconfig({"token": "three"}))
    three = "the third token is in force"
    eventually(lambda: Path(load_credentials(agent.run_dir).token_file).read_text() == "three", three)
