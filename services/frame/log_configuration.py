"""Configures the log of a process."""

from shared.config.effective import EffectiveConfig
from shared.log.log_lines import form_of
from shared.log.log_verbosity import Verbosity
from shared.log.process_log import LogFile, set_levels


def configure_log(handler: LogFile, config: EffectiveConfig) -> None:
    """Apply the form, `-v`, `--vmodule` and the streams of the configuration, also to the lines that still wait."""
    if handler.stdout:
        handler.stdout.hold(config.log_info_buffer_size, config.log_flush_frequency)
    verbosity = Verbosity(config.verbosity, config.vmodule)
    handler.configure(form_of(config.logging_format, handler.service), verbosity, config.log_split_stream)
    set_levels(verbosity)
