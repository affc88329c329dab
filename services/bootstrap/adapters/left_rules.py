"""Removes NAT rules of pods that are gone, which nothing else removes.

The bridge plugin of CNI removes the masquerading of a pod only where the pod's network namespace still exists. After
`systemctl soft-reboot` no namespace does, while the kernel keeps the rules: each one would leave those of all pods.
"""

import logging
import subprocess
from pathlib import Path

from shared.host.address_translation import remove_address_translation

log = logging.getLogger(__name__)

_INTERFACES = Path("/sys/class/net")


def remove_left_rules(bridge: str, interfaces: Path = _INTERFACES) -> None:
    """Remove the rules of the network of this bridge where no pod is at the bridge. What fails is logged. Blocks.

    To be called while no containerd runs that may be adding a pod.
    """
    if any((interfaces / bridge / "brif").glob("*")):
        return
    try:
        count = remove_address_translation(bridge)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        log.warning("NAT rules of pods that are gone cannot be removed: %s", reason.strip().partition("\n")[0])
        return
    if count:
        log.info("%d NAT rules of pods that are gone are removed; the network is %s", count, bridge)
