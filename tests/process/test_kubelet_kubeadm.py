"""kubeadm's own unit and drop-in start the agent: nothing in them is changed but paths."""

import re
from pathlib import Path

import pytest
import yaml

from tests.process.supervised import alive
from tests.support.agents.agent import NODE
from tests.support.agents.world import busybox_pod
from tests.support.kubeadm.unit import DROP_IN, UNIT, moved, start_of
from tests.support.kubeadm.world import WorldOfKubeadm
from tests.unit.bootstrap.kubeconfigs import inline, kubeconfig, write
from tests.unit.kube.tls_world import Authority


@pytest.mark.root
async def test_kubeadms_unit_starts_it_and_its_end_leaves_the_pods_running() -> None:
    async with WorldOfKubeadm(start=False) as world:
        user = inline(Authority().issue(f"system:node:{NODE}"))  # of a cluster that is away
        write(world.home.path / "kubelet.conf", kubeconfig(user, server="https://127.0.0.1:1"))
        world.put_manifest("steady", busybox_pod("steady"))
        await world.start()
        pod = await world.wait_running("steady")
        lines = world.stderr.read_text().splitlines()
        assert [line for line in lines if re.match(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+:\d+\] ", line)]
        assert not [line for line in lines if "Traceback" in line]
        effective = yaml.safe_load((world.home.run_dir / "config.json").read_text())["config"]
        assert (effective["node_labels"], effective["node_name"]) == ({"made-by": "kubeadm"}, NODE)
        assert Path(f"/proc/{world.supervisord_pid}/comm").read_text() == "kubelet\n"
        assert await world.stop_supervisord() == 0
        assert alive(pod.containers[0].pid)


def test_its_commands_are_what_systemd_would_run(tmp_path: Path) -> None:
    (tmp_path / "flags.env").write_text('# by kubeadm\nKUBELET_KUBEADM_ARGS="--pod-infra-container-image=p:1 --v=2"\n')
    drop_in = moved(DROP_IN, {"/var/lib/kubelet/kubeadm-flags.env": str(tmp_path / "flags.env")})
    argv, environment = start_of(UNIT, moved(drop_in, {"/etc/default/kubelet": str(tmp_path / "absent")}))
    assert argv == [
        "/usr/bin/kubelet",
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--config=/var/lib/kubelet/config.yaml",
        "--pod-infra-container-image=p:1",
        "--v=2",
    ]
    assert "KUBELET_EXTRA_ARGS" not in environment
