"""Evaluates a kubelet's command line and prepares the files of supervisord, in a child process that then ends.

Order and texts follow config.md 3.1, 3.9: flags, help, version, configuration, then the lines a kubelet prints before
it runs. `shared.config` decides the values."""

import contextlib
import os
import shlex
from pathlib import Path
from typing import Any

from bus.manifest import prepare_run_dir
from services.kubelet.configuration import SUPERVISORD_CONF, packaged_text, render
from services.kubelet.console import Console
from shared.agent.places import find_arguments, find_places
from shared.agent.run_once import RUN_ONCE_FILE
from shared.agent.service_notify import watchdog_interval
from shared.config.evaluation import emulated_version, evaluate
from shared.config.field_table import FIELDS
from shared.config.findings import ConfigurationRefusedError
from shared.config.flag_lines import flag_lines
from shared.config.flags import Flags, FlagsRefusedError, parse_flags
from shared.config.nested import value_of
from shared.config.resolve import Resolved
from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from shared.log.klog import structured
from shared.process.limits import set_oom_score
from shared.version import release_tag

_MAX_ARGUMENTS_BYTES = 131072 - len("KUBELET_ARGS=") - 1  # as many as the kernel takes in one environment variable


def prepare_start(arguments: list[str], process: int) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what supervisord needs to know; an empty answer = there is nothing to start.

    Without any argument, KUBELET_ARGS or the args file has the flags, as for supervisord alone. `process` is the
    kubelet whose command line this is."""
    console = Console(process)
    try:
        return 0, _prepare_start(arguments or find_arguments(find_places()), process, console)
    except ConfigurationRefusedError as error:
        for line in error.lines:
            console.failed(line)
        return error.exit_code, {}
    except OperatorError as error:
        console.failed(str(error))
        return 1, {}


def _prepare_start(arguments: list[str], process: int, console: Console) -> dict[str, Any]:
    try:
        flags = parse_flags(arguments)
    except FlagsRefusedError as error:
        for line in error.deprecations:
            console.raw(line)
        raise
    for line in flags.deprecations:
        console.raw(line)
    if flags.asks_help:
        from shared.config.help_text import help_text

        _show(help_text())
        return {}
    if flags.version in ("true", "raw"):
        from shared.config.help_text import version_text

        _show(version_text(flags.version, _release_of(flags)))
        return {}
    if len(os.fsencode(shlex.join(arguments))) > _MAX_ARGUMENTS_BYTES:
        what = f"take more than {_MAX_ARGUMENTS_BYTES} bytes"
        raise OperatorError(what, where="the flags", remedy="put them into the file of --config")
    resolved = evaluate(arguments)
    config = resolved.config
    if config.exit_on_lock_contention and not config.lock_file:
        raise OperatorError("needs --lock-file", where="--exit-on-lock-contention", remedy="name the file to lock")
    console.json, console.split = config.logging_format == "json", config.log_split_stream
    if config.verbosity >= 1:
        for line in flag_lines(flags, merged_values(resolved)):
            console.info(line, 1)
    if os.geteuid() != 0:
        console.error(structured("Kubelet needs to run as uid 0", uid=os.geteuid()))
    console.info(structured("Kubelet version", kubeletVersion=_reported(flags.version, config.emulated_version)))
    watchdog_interval(os.environ, process)
    answer = {"supervisord_conf": str(_prepare(resolved)), "lock_file": config.lock_file}
    if config.run_once:
        answer["run_once"] = config.run_once_output
    set_oom_score(config.oom_score_adj, process)  # where this fails, each service reports it
    return answer


def _show(text: str) -> None:
    """Print to standard output. Raise OperatorError if it cannot be written, except for a closed pipe."""
    try:
        print(text.rstrip("\n"), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OperatorError(f"cannot be written: {error.strerror}", where="standard output") from error


def merged_values(resolved: Resolved) -> dict[str, Any] | None:
    """Return the values that FLAG lines show instead of the command line's, by dotted key, because with drop-ins alone
    the kubelet merges into them. None = the command line's values are shown."""
    if not resolved.config.config_dir or resolved.config.config_file:
        return None
    return {field.key: value_of(resolved.layers.data, field.key) for field in FIELDS}


def _release_of(flags: Flags) -> str:
    """Return the release that the file of --config sets, or that of the installed agent where the flags name none."""
    if not flags.own.get("config"):
        with contextlib.suppress(FlagsRefusedError, OperatorError):
            flags = parse_flags(find_arguments(find_places()))
    return emulated_version(flags.own.get("config", ""))


def _reported(version: str, release: str) -> str:
    """Return the version to report. Raises OperatorError where --version names another release."""
    tag = release_tag(release)
    if not version.startswith("v"):
        return tag
    if not version.startswith(tag):
        what = f'"{version}" is another release than {tag}, which emulatedVersion chooses'
        raise OperatorError(what, where="--version", remedy="leave it out")
    return version


def _prepare(resolved: Resolved) -> Path:
    """Prepare the run directory, the log directory and the configuration for supervisord. Return the path of
    supervisord.conf. Raises OperatorError."""
    run_dir, log_dir = Path(resolved.config.run_dir), Path(resolved.config.log_dir)
    prepare_run_dir(run_dir)
    try:
        log_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        text = render(packaged_text(), run_dir, log_dir)
        write_atomically(run_dir / SUPERVISORD_CONF, text.encode())
        (run_dir / RUN_ONCE_FILE).unlink(missing_ok=True)
    except OSError as error:
        where = str(error.filename or log_dir)
        remedy = "give another directory, or run as a user that may write there"
        raise OperatorError(f"cannot be written: {error.strerror}", where=where, remedy=remedy) from error
    return run_dir / SUPERVISORD_CONF
