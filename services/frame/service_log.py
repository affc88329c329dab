"""Opens the log of a service: at its start in the directory of an earlier configuration, so that the first lines are
not lost, and then by the configuration in force. Until then lines are kept in memory; what concerns the operator before
that goes to the console.
"""

import errno
from contextlib import suppress
from pathlib import Path

from services.frame.log_configuration import configure_log
from shared.config.effective import EffectiveConfig
from shared.config.loader import load_effective
from shared.errors import OperatorError
from shared.log.process_log import Console, LogFile, start_log, watch_for_faults
from shared.process.watchdog import end_when_busy

_RUNS_WITHOUT_LOG = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


class ServiceLog:
    """Has the log of this process: `file`, which is open where `is_open`, and `console`."""

    def __init__(self, service: str) -> None:
        self.console = Console()
        self.is_open = False
        self._service = service
        self.file: LogFile = start_log(service)

    def open_early(self, run_dir: Path) -> None:
        """Open it in the directory of an earlier configuration, where there is one."""
        try:
            config = load_effective(str(run_dir))
        except (OSError, OperatorError):
            return
        self.open(config)

    def open(self, config: EffectiveConfig) -> None:
        """Open it as configured; on a disk that takes no writes the service runs without. Raises OperatorError."""
        configure_log(self.file, config)
        try:
            self.file.open(config.log_dir)
        except OSError as error:
            problem = OperatorError(
                f"cannot be written: {error.strerror}", where=config.log_dir, remedy="repair it, or set --log-dir"
            )
            if error.errno not in _RUNS_WITHOUT_LOG:
                raise problem from error
            self.console.line(f"bulkhead {self._service}: {problem}")
            self.file.go_without_file()
            return
        self.is_open = True
        watch_for_faults()
        end_when_busy()

    def open_anyhow(self, directory: str) -> None:
        """Write the lines logged so far to `directory`, if that is possible."""
        if not self.is_open:
            with suppress(OSError):
                self.file.open(directory)
                self.is_open = True
