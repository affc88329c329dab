"""Calls the programs of CNI's plugins for a sandbox, and keeps what they answered until its network is gone.

The record of a sandbox is written before the first plugin runs, so that whatever a kill leaves behind is known: DEL of
all its plugins is repeated until it succeeds, also after the container was removed by hand.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from services.dockershim.core.cni_requests import (
    MAX_CONFIGURATION_BYTES,
    Attachment,
    Network,
    NetworkConfigurationError,
    addresses_of,
    environment_of,
    input_of,
    is_configuration,
    parse_network,
)
from services.dockershim.core.errors import CallError
from shared.files.atomic import write_atomically
from shared.process.child_process import OutputTooLargeError, run_child
from shared.process.crash import crash_point

log = logging.getLogger(__name__)

MAX_PLUGIN_SECONDS = 60.0
MAX_ANSWER_BYTES = 1024 * 1024


class Record(Struct, frozen=True):
    """What is on disk of a sandbox's network. `is_up`: all plugins have answered, with `result`."""

    attachment: Attachment
    network: Network
    is_up: bool = False
    result: Any = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the sandbox's addresses."""
        return addresses_of(self.result)


class Networks:
    """The networks of all sandboxes. `directory`: of the records; `binaries`, `configurations`: CNI's directories."""

    def __init__(self, directory: Path, binaries: tuple[str, ...], configurations: Path) -> None:
        self._directory, self._path, self._configurations = directory, ":".join(binaries), configurations
        self._records: dict[str, Record] = {}
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in directory.glob("*.json"):
            try:
                self._records[file.stem] = msgspec.json.decode(file.read_bytes(), type=Record)
            except (OSError, msgspec.MsgspecError) as error:
                log.error("%s cannot be read: %s; release the addresses of this sandbox by hand", file, error)

    def find(self, sandbox_id: str) -> Record | None:
        """Return the record of a sandbox that has, or had, a network."""
        return self._records.get(sandbox_id)

    def sandboxes(self) -> frozenset[str]:
        """Return the ids of all sandboxes with a record."""
        return frozenset(self._records)

    def configured(self) -> Network:
        """Return the network of the first usable configuration. Raises NetworkConfigurationError."""
        trouble = f"no network configuration in {self._configurations}: install a network plugin (CNI)"
        try:
            names = sorted(entry.name for entry in os.scandir(self._configurations) if is_configuration(entry.name))
        except OSError:
            names = []
        for name in names:
            file = self._configurations / name
            try:
                with file.open("rb") as opened:
                    return parse_network(opened.read(MAX_CONFIGURATION_BYTES))
            except (OSError, NetworkConfigurationError) as error:
                trouble = f"the network configuration {file} cannot be used: {error}"
        raise NetworkConfigurationError(trouble)

    async def set_up(self, attachment: Attachment, pid: int) -> tuple[str, ...]:
        """Run ADD of all plugins for the sandbox with this process, and return its addresses. Raises CallError."""
        try:
            network = self.configured()
        except NetworkConfigurationError as error:
            raise CallError("Unknown", f"cni plugin not initialized: {error}") from None
        self._save(Record(attachment, network))
        crash_point("dockershim.network.recorded")
        result: Any = None
        for plugin in network.plugins:
            result = await self._call("ADD", network, plugin, attachment, f"/proc/{pid}/ns/net", result)
        crash_point("dockershim.network.added")
        record = Record(attachment, network, True, result)
        self._save(record)
        return record.addresses

    async def tear_down(self, sandbox_id: str, pid: int) -> None:
        """Run DEL of all plugins, in the opposite order, and forget the sandbox. `pid`: 0 = the process has ended.
        Raises CallError; the record stays then."""
        record = self._records.get(sandbox_id)
        if record is None:
            return
        netns = f"/proc/{pid}/ns/net" if pid else ""
        for plugin in reversed(record.network.plugins):
            await self._call("DEL", record.network, plugin, record.attachment, netns, record.result)
        crash_point("dockershim.network.deleted")
        self._file(sandbox_id).unlink(missing_ok=True)
        del self._records[sandbox_id]

    async def _call(
        self, command: str, network: Network, plugin: Mapping[str, Any], attachment: Attachment, netns: str, result: Any
    ) -> Any:
        kind = str(plugin["type"])
        program = next((p for d in self._path.split(":") if os.access(p := f"{d}/{kind}", os.X_OK)), None)
        if program is None:
            raise CallError("Unknown", f"the network plugin {kind} is in none of {self._path}: install it")
        environment = {**os.environ, **environment_of(command, attachment, netns, self._path)}
        request = input_of(network, plugin, attachment, result)
        try:
            output, code = await run_child(
                [program], request, environment, time_limit=MAX_PLUGIN_SECONDS, largest_output=MAX_ANSWER_BYTES
            )
        except TimeoutError:
            raise CallError("DeadlineExceeded", f"the network plugin {kind} did not answer {command} in time") from None
        except (OSError, ValueError, OutputTooLargeError) as error:
            raise CallError("Unknown", f"the network plugin {kind} cannot be run: {error}") from None
        answer = _decoded(output)
        if code:
            message = answer.get("msg") if isinstance(answer, dict) else None
            raise CallError(
                "Unknown", f"plugin type={kind!r} name={network.name!r} failed ({command.lower()}): {message}"
            )
        if command != "ADD":
            return None
        if not isinstance(answer, dict) or not all(
            isinstance(answer.get(key, []), list) for key in ("ips", "interfaces")
        ):
            raise CallError(
                "Unknown", f"plugin type={kind!r} name={network.name!r} has answered what is no result of CNI"
            )
        return answer

    def _save(self, record: Record) -> None:
        file = self._file(record.attachment.sandbox_id)
        try:
            write_atomically(file, msgspec.json.encode(record))
        except OSError as error:
            what = f"the record of the network of a sandbox, {file}, cannot be written: {error.strerror}"
            raise CallError("Unknown", f"{what}; make room on that file system") from None
        self._records[record.attachment.sandbox_id] = record

    def _file(self, sandbox_id: str) -> Path:
        return self._directory / f"{sandbox_id}.json"


def _decoded(output: bytes) -> Any:
    try:
        return json.loads(output) if output.strip() else None
    except ValueError:
        return None
