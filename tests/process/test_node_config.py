"""The configuration that a Node names, under a real supervisord: a bad one is rolled back, and never ends the agent."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.bootstrap.adapters.node_config_store import NodeConfigStore
from shared.config.effective import EffectiveConfig
from shared.config.loader import load_effective
from shared.model.config_source import ConfigSource
from tests.process.supervised import CONFIGURATION, Agent, eventually

SERVICES = ("sources", "podsync")
SOURCE = ConfigSource(
    namespace="kube-system", name="nodes", uid="a8b4", resource_version="7", kubelet_config_key="kubelet"
)


class NodeConfigAgent(Agent):
    """An agent with `--dynamic-config-dir`; no API server names a configuration, the records on disk do."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, dummies=SERVICES)
        self.dynamic = home / "dynamic"
        self.args += ["--dynamic-config-dir", str(self.dynamic), "--feature-gates", "DynamicKubeletConfig=true"]
        root = home / "root"
        self.args += ["--root-dir", str(root)]
        self.store = NodeConfigStore(
            EffectiveConfig(
                node_name="n",
                root_dir=str(root),
                run_dir=str(self.run_dir),
                log_dir="",
                cert_dir="",
                dynamic_config_dir=str(self.dynamic),
            )
        )

    def assign(self, more: str, source: ConfigSource = SOURCE) -> None:
        """As if the Node had named this configuration."""
        self.store.prepare()
        self.store.save(source, {source.kubelet_config_key: (CONFIGURATION.format(port=32250) + more).encode()})
        self.store.assign(source)

    def in_force(self) -> EffectiveConfig | None:
        """The configuration in force; None before there is one."""
        try:
            return load_effective(str(self.run_dir))
        except OSError:
            return None


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeConfigAgent]:
    agent = NodeConfigAgent(tmp_path_factory.mktemp("b"))
    yield agent
    agent.clean_up()


def test_a_good_configuration_replaces_the_local_one(agent: NodeConfigAgent) -> None:
    agent.configure("podPidsLimit: 100\n")
    agent.assign("maxPods: 7\n")
    agent.start()
    for service in SERVICES:
        agent.logged(service, "dummy runs")
    config = agent.in_force()
    assert config is not None
    assert (config.max_pods, config.pod_pids_limit, config.config_source) == (7, -1, SOURCE)


def test_a_configuration_that_makes_services_crash_at_their_start_is_rolled_back(agent: NodeConfigAgent) -> None:
    good = replace(SOURCE, resource_version="6")
    agent.assign("maxPods: 7\n", good)
    agent.store.promote(good)
    agent.assign("maxOpenFiles: 8\n")
    agent.start()
    text = "failed to run config"
    agent.logged("bootstrap", text)
    eventually(lambda: (config := agent.in_force()) is not None and config.config_source == good, "it is rolled back")
    for service in SERVICES:
        agent.logged(service, "dummy runs")
    checkpoints, _ = agent.store.load()
    assert (checkpoints.assigned, checkpoints.last_known_good) == (SOURCE, good)
    assert checkpoints.rejection is not None and "crashed" in checkpoints.rejection.error
