"""Builds bootstrap after its startup: configuration, certificates, kubeconfig, systemd, run once, containerd."""

import asyncio
from functools import partial
from pathlib import Path

from bus.interface import OwnedStream
from bus.lock import ServiceLock
from bus.messages.bootstrap import CertificateState, NodeConfigStatus
from bus.messages.streams import CERTIFICATES, NODE_CONFIG
from services.bootstrap.controllers.certificates import Certificates
from services.bootstrap.controllers.configuration_watch import ConfigurationWatch
from services.bootstrap.controllers.kubeconfig_follower import KubeconfigFollower
from services.bootstrap.controllers.node_config import NodeConfig
from services.bootstrap.controllers.node_config_choice import uses_node_config
from services.bootstrap.controllers.program_start import ensure_program
from services.bootstrap.controllers.run_once import RunOnce
from services.bootstrap.controllers.startup import BootstrapStartup
from services.bootstrap.controllers.systemd import Systemd
from services.bootstrap.controllers.utility_chains import UtilityChains
from services.frame.launch import Context


def build(context: Context, startup: BootstrapStartup) -> "Bootstrap":
    """Return the service; `startup` has been through `configure`."""
    return Bootstrap(context, startup)


class Bootstrap:
    """The service bootstrap, after its startup. It owns the stream `certificates`."""

    def __init__(self, context: Context, startup: BootstrapStartup) -> None:
        self._context, self._config = context, context.config
        self._run_dir = Path(context.config.run_dir)
        certificates: OwnedStream[CertificateState] = context.bus.own(CERTIFICATES)
        self._systemd = Systemd(context, startup.generation, startup.supervisor_process)
        self._certificates = Certificates(context, startup.credentials, certificates, self._client_changed)
        self._follower: KubeconfigFollower | None = None
        if self._config.joins_cluster:
            self._follower = KubeconfigFollower(context, startup, self._certificates.look_again)
        self._configuration = ConfigurationWatch(context, startup, certificates)
        node_config: OwnedStream[NodeConfigStatus] = context.bus.own(NODE_CONFIG)
        self._node_config: NodeConfig | None = None
        if uses_node_config(self._config):
            self._node_config = NodeConfig(context, startup, self._configuration.reload, node_config)
            self._configuration.on_reload = self._node_config.wake
        self._run_once = RunOnce(context, startup.generation) if self._config.run_once else None
        certificates.mark_complete()

    async def run(self) -> None:
        """Run every part until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for program, module, wanted in (
                ("containerd", "services.bootstrap.containerd", self._config.embedded_containerd),
                ("dockershim", "services.dockershim", self._config.docker),
            ):
                if wanted or ServiceLock(self._run_dir, program).holder():
                    trouble = partial(self._context.bus.trouble, program)
                    tasks.create_task(ensure_program(program, module, trouble), name=program)
            if self._follower is not None:
                tasks.create_task(self._follower.run(), name="kubeconfig")
            if self._run_once is not None:
                tasks.create_task(self._run_once.run(), name="run once")
            if self._node_config is not None:
                tasks.create_task(self._node_config.run(), name="node config")
            tasks.create_task(self._systemd.run(), name="systemd")
            if self._config.make_iptables_util_chains:
                tasks.create_task(UtilityChains().run(), name="utility chains")
            self._certificates.start(tasks)
            self._configuration.start(tasks)

    def _client_changed(self) -> None:
        if self._follower is not None:
            self._follower.wake()
