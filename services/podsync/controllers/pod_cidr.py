"""Sends the addresses for pods to the runtime (UpdateRuntimeConfig), as the kubelet does (node.md 1.5): those of our
Node, or on a node without a cluster those of the configuration.

They are sent at each start of podsync and at each change, and again after a failure. A Node without addresses changes
nothing. What the runtime does with them is its own matter: containerd writes a CNI configuration of its
`conf_template`, once, where it has no other.
"""

import asyncio
import logging

from bus.interface import Change, Put
from bus.messages.sources import NodeObject
from bus.messages.streams import NODE_OBJECT
from services.frame.launch import Context
from services.podsync.core.node.pod_cidr import pod_cidrs
from shared.cri.interface import Runtime, RuntimeCallError
from shared.log.klog import structured

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # after a failure; the kubelet tries again when it reports the Node's status the next time
TROUBLE = "pod CIDR of the Node"


class PodCidr:
    """Keeps the runtime's addresses for pods."""

    def __init__(self, context: Context, runtime: Runtime) -> None:
        self._bus, self._runtime = context.bus, runtime
        self._wanted, self._sent = "", ""  # several are separated by commas; "" = none
        self._changed = asyncio.Event()
        if context.config.joins_cluster:
            context.bus.follow(NODE_OBJECT, self._on_node)
        elif context.config.pod_cidr:
            self._want(context.config.pod_cidr)

    def _on_node(self, change: Change[NodeObject]) -> None:
        if isinstance(change, Put) and (found := pod_cidrs(change.value.node)):
            self._want(found)

    def _want(self, cidrs: str) -> None:
        self._wanted = cidrs
        self._changed.set()

    async def run(self) -> None:
        """Send what is wanted, until cancelled."""
        while True:
            while self._wanted != self._sent:
                if not await self._send(self._wanted):
                    await asyncio.sleep(RETRY_SECONDS)
            await self._changed.wait()
            self._changed.clear()

    async def _send(self, cidrs: str) -> bool:
        """Return whether the runtime has taken them."""
        try:
            await self._runtime.update_runtime_config(cidrs)
        except RuntimeCallError as error:
            log.warning("%s", structured("Error updating pod CIDR", err=f"failed to update pod CIDR: {error}"))
            self._bus.trouble(TROUBLE, f"the runtime did not take the pod CIDR {cidrs}: {error}")
            return False
        log.info("%s", structured("Updating Pod CIDR", originalPodCIDR=self._sent, newPodCIDR=cidrs))
        self._bus.trouble(TROUBLE, None)
        self._sent = cidrs
        return True
