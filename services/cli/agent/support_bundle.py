"""`bulkhead support-bundle` writes one archive with what is needed to find a fault from elsewhere, without secrets.

A part that cannot be read becomes a line in `problems.txt`, so that a broken agent still has a bundle. Every part
passes through `masking`; files of credentials are not read."""

import io
import json
import os
import platform
import tarfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from bus.client import Question
from bus.messages.debugging import GetStacks, Stacks
from bus.messages.services import SERVICES
from services.cli.agent.events import events_of_agent
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.agent.local_server import open_answer
from services.cli.agent.status import as_data, status_lines
from services.cli.config.masking import MASK, without_credentials
from services.cli.config.show import masked
from services.cli.terminal.table import Paint
from shared.config.effective import EffectiveConfig
from shared.config.loader import load_effective
from shared.errors import OperatorError
from shared.model.frozen_copy import replace
from shared.story.files import directory_of, read_conditions

Write = Callable[[str], None]
Part = tuple[str, Callable[[], str]]  # the name in the archive, and the function that reads the part

MAX_ARCHIVE_BYTES = 20 << 20  # of the archive
_MAX_TEXT_BYTES = 19 << 20  # all parts before compression, which never makes them larger than the archive may be
_MAX_LOG_BYTES = 1 << 20  # the newest bytes of each log
_MAX_STORIES_BYTES = 4 << 20
_MAX_PART_BYTES = 2 << 20
# Other programs may log to the same directory.
_LOGS = (*SERVICES, "supervisord", "bulkhead-supervisord", "containerd", "dockershim")
_URL, _URL_FLAG = "staticPodURL", "manifest-url"
_MAX_STACKS_SECONDS = 5.0  # that a process has to show its stacks
_GZIP_LEVEL = 3  # of gzip: it takes a tenth of the default's time, and the text becomes a fifth larger
_ENTRY_OVERHEAD_BYTES = 2048  # of an entry besides its content


def make_bundle(run_dir: str, file: str, out: Write, err: Write) -> int:
    """Write the archive to `file`, "" = a name with node and time in the working directory. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            name = f"bulkhead-{agent.config.node_name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            path = Path(file or f"{name}.tar.gz")
            _write(path, name, parts(agent))
    except OperatorError as error:
        err(str(error))
        return 1
    out(f"{path}: {path.stat().st_size} bytes, without credentials (look into it before you send it)")
    return 0


def parts(agent: Agent) -> Iterator[Part]:
    """Yield the parts of the bundle, the most important first: later parts are left out when the archive is full."""
    config = load_effective(agent.run_dir)
    yield "versions.txt", _versions
    yield "status.txt", lambda: "\n".join(status_lines(agent.report(), "wide", 0, Paint(False)))
    yield "status.json", lambda: json.dumps(as_data(agent.report()), indent=1)
    yield "configuration.json", lambda: json.dumps(masked_configuration(config), indent=1)
    yield "events.json", lambda: json.dumps(events_of_agent(agent)[0], indent=1)
    yield "conditions.json", lambda: json.dumps(read_conditions(config.root_dir, config.run_dir), indent=1)
    yield "runtime.json", lambda: json.dumps(agent.streams("node.observed"), indent=1)
    resources = ("node.resources", "devices.resources", "pods.admitted")
    yield "resources.json", lambda: json.dumps(agent.streams(*resources), indent=1)
    for service in SERVICES:
        yield f"stacks/{service}.txt", _stacks(agent, service)
    yield "metrics.txt", lambda: _metrics(agent.run_dir)
    yield from _logs(config.log_dir, "log")
    left = _MAX_STORIES_BYTES
    stories = ((*_changed_and_size(path), path) for path in directory_of(config.root_dir).glob("*.jsonl"))
    for _, size, path in sorted(stories, reverse=True):
        if (left := left - size) >= 0:
            yield f"stories/{path.name}", _end_of(path, size)
    yield from _logs(config.log_dir, "log.1")


def _logs(directory: str, ending: str) -> Iterator[Part]:
    for name in _LOGS:
        path = Path(directory) / f"{name}.{ending}"
        if path.exists():
            yield f"logs/{path.name}", _end_of(path, _MAX_LOG_BYTES)


def masked_configuration(config: EffectiveConfig) -> dict[str, Any]:
    """Return the effective configuration by field; masked are the values of URL headers, a static pod URL with a user
    or a query (the log has its host), and what credential plugins are given: each may be secret.
    """
    headers, url = dict.fromkeys(config.static_pod_url_header, (MASK,)), config.static_pod_url
    shown = MASK if "@" in url or "?" in url else url
    flags = {name: shown if name == _URL_FLAG else text for name, text in config.given_flags.items()}
    document = {key: shown if key == _URL else value for key, value in masked(config.document).items()}
    changed = {"static_pod_url": shown, "static_pod_url_header": headers, "given_flags": flags, "document": document}
    plugins = tuple(
        replace(one, args=(MASK,) * len(one.args), env=tuple((name, MASK) for name, _ in one.env))
        for one in config.credential_providers
    )
    return {**to_builtins(replace(config, credential_providers=plugins)), **changed}


def _write(path: Path, directory: str, found: Iterator[Part]) -> None:
    """Write all parts that fit below `directory` of a new archive, which is readable by its owner alone."""
    problems: list[str] = []
    left = _MAX_TEXT_BYTES - _MAX_PART_BYTES
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OperatorError(
            f"cannot be written: {error.strerror}", where=str(path), remedy="name another file with --file"
        ) from error
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=_GZIP_LEVEL) as archive,
        ):
            for name, read in found:
                try:
                    text = without_credentials(read())
                except Exception as error:  # a broken agent still gets a bundle
                    problems.append(f"{name}: {type(error).__name__}: {error}")
                    continue
                content = text.encode("utf-8", "backslashreplace")
                if len(content) > _MAX_PART_BYTES:
                    problems.append(f"{name}: {len(content)} bytes, of which the first {_MAX_PART_BYTES} are here")
                    content = content[:_MAX_PART_BYTES]
                if (left := left - len(content) - _ENTRY_OVERHEAD_BYTES) < 0:
                    problems.append(f"{name} and what follows: left out, the bundle is full")
                    break
                _add(archive, f"{directory}/{name}", content)
            lines = without_credentials("\n".join([*problems, ""])).encode("utf-8", "backslashreplace")
            _add(archive, f"{directory}/problems.txt", lines[:_MAX_PART_BYTES])
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OperatorError(
            f"cannot be written: {error.strerror}", where=str(path), remedy="name a file on another disk with --file"
        ) from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(content))


def _versions() -> str:
    system = Path("/etc/os-release")
    lines = [f"bulkhead {version_of('bulkhead-kubelet')}", f"Python {platform.python_version()}", platform.platform()]
    return "\n".join([*lines, system.read_text(encoding="utf-8", errors="replace") if system.exists() else ""])


def _stacks(agent: Agent, service: str) -> Callable[[], str]:
    def read() -> str:
        agent.require(service)
        question = Question(service, GetStacks(), Stacks)
        open_answer = agent.client.ask([question], _MAX_STACKS_SECONDS).get(question)
        if not isinstance(open_answer, Stacks):
            raise agent.silence_of(service)
        return f"{open_answer.threads}\n\n{open_answer.tasks}\n"

    return read


def _end_of(path: Path, most: int) -> Callable[[], str]:
    def read() -> str:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most, 0))
            lines = file.read(most)
        return (lines if size <= most else lines.partition(b"\n")[2]).decode("utf-8", "backslashreplace")

    return read


def _metrics(run_dir: str) -> str:
    content = b""
    with open_answer(run_dir, "/metrics", ()) as blocks:
        for block in blocks:
            content += block
            if len(content) > _MAX_PART_BYTES:
                break
    return content[:_MAX_PART_BYTES].decode("utf-8", "replace")


def _changed_and_size(path: Path) -> tuple[float, int]:
    """Return when the file was changed (seconds since the epoch) and its size in bytes; zeros for a file that was
    removed meanwhile."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0.0, 0
    return found.st_mtime, found.st_size
