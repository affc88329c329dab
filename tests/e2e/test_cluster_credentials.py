"""Joining a real cluster with a token that an exec plugin hands out, and with a certificate that is replaced."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.clusters.control_plane import ControlPlane

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

TOKEN = "a-token-of-the-node"


def with_exec_plugin(plane: ControlPlane) -> Path:
    """A kubeconfig whose user comes from the plugin."""
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "status": {"token": TOKEN},
    }
    plugin = plane.directory / "plugin"
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    plugin.chmod(0o755)
    asked = {"apiVersion": answer["apiVersion"], "command": str(plugin), "interactiveMode": "Never"}
    kubeconfig = yaml.safe_load(plane.kubeconfig_with_token("replaced").read_text())
    kubeconfig["users"][0]["user"] = {"exec": asked}
    path = plane.directory / "exec.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


async def test_a_token_of_an_exec_plugin_is_enough_to_join_and_asked_for_again_when_it_is_refused(
    tmp_path: Path,
) -> None:
    tokens, first = tmp_path / "tokens.csv", tmp_path / "first"
    tokens.write_text(f'{TOKEN},system:node:{NODE},node-a,"system:nodes"\n')
    plane = {"api_server_flags": {"token-auth-file": str(tokens)}}

    def outdated_at_first(plane: ControlPlane) -> Path:
        kubeconfig = with_exec_plugin(plane)
        plugin = plane.directory / "plugin"
        good = plugin.read_text().splitlines()[1]
        outdated = good.replace(TOKEN, "outdated")
        plugin.write_text(f"#!/bin/sh\nif [ -e {first} ]; then {good}; else touch {first}; {outdated}; fi\n")
        return kubeconfig

    async with Cluster(tmp_path, plane=plane, kubeconfig=outdated_at_first) as cluster:
        await cluster.create(cluster.pod("web"))
        await cluster.wait_ready("web")
        text = "refuses what the exec plugin"
        await cluster.agent.wait_for(lambda: text in cluster.agent.log_of("bootstrap"), f"bootstrap to log: {text}")
        logs = "".join(cluster.agent.log_of(service) for service in cluster.agent.beats)
        assert TOKEN not in logs


async def test_a_replaced_client_certificate_is_taken_up(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        pids = {service: beat.pid for service, beat in cluster.agent.beats.items()}
        kubeconfig = yaml.safe_load(cluster.plane.kubeconfig_for_node(NODE).read_text())
        user = kubeconfig["users"][0]["user"]
        pair = [Path(user["client-certificate"]), Path(user["client-key"])]
        before = pair[0].read_bytes()
        made = cluster.plane.authority.issue("renewed", f"system:node:{NODE}", "system:nodes")
        for old, new in zip(pair, made, strict=True):
            new.replace(old)
        assert pair[0].read_bytes() != before
        copies = cluster.agent.home.run_dir / "credentials"

        def taken_up() -> bool:
            with suppress(FileNotFoundError):  # bootstrap replaces the files
                return any(pair[0].read_bytes() == copy.read_bytes() for copy in copies.iterdir() if copy.is_file())
            return False

        await cluster.agent.wait_for(taken_up, "the new certificate to be handed on")
        await cluster.create(cluster.pod("web"))
        await cluster.wait_ready("web")
        assert {service: beat.pid for service, beat in cluster.agent.beats.items()} == pids
