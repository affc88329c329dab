"""Warns once where cgroups are read in place of the statistics of the runtime (gate PodAndContainerStatsFromCRI)."""

import logging

log = logging.getLogger(__name__)


class CgroupsInstead:
    """Logs one warning for each time in which the runtime does not give the statistics. `what` is read from cgroups
    then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._warned = False

    def warn(self, why: str) -> None:
        """Log why the statistics of the runtime are not used, unless that was logged since its last answer."""
        if not self._warned:
            self._warned = True
            log.warning(
                "PodAndContainerStatsFromCRI: the runtime %s: %s is read from cgroups (use a newer runtime, or switch "
                "the feature gate off)",
                why,
                self._what,
            )

    def answered(self) -> None:
        """Note that the runtime has answered."""
        self._warned = False
