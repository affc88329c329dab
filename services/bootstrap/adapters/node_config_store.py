"""Keeps the configurations that a Node named, and which of them counts, as the kubelet lays them out (config.md 4.1).

The layout is that of the kubelet, so that either of them continues with what the other one left. The rejection of a
source is a record of our own, in the root directory; with a full disk it is in the run directory.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from services.bootstrap.core.config_source import decode_source, encode_source, source_of
from services.bootstrap.core.node_config import Checkpoints, Rejection
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from shared.files.atomic import remove_unfinished, sync_directory, write_atomically
from shared.files.checkpoint import Checkpoint
from shared.model.config_source import ConfigSource
from shared.process.crash import crash_point
from shared.yaml_reader.reader import Limits, UnreadableError, read_documents

ASSIGNED, LAST_KNOWN_GOOD = "assigned", "last-known-good"
_RECORD = "config-rejection"
_MAX_META_BYTES = 16 * 1024
_LIMITS = Limits(depth=10, values=100, characters=_MAX_META_BYTES)
_UNFINISHED = "tmp_"  # how the name of a checkpoint begins while it is written


class NodeConfigStore:
    """The checkpoints below the directories of `config`. All methods block, and raise OSError if a file cannot be read
    or written."""

    def __init__(self, config: EffectiveConfig) -> None:
        store = Path(config.dynamic_config_dir) / "store"
        self._meta, self._checkpoints = store / "meta", store / "checkpoints"
        self._records = Checkpoint(Path(config.root_dir) / "bootstrap", Path(config.run_dir) / "bootstrap")

    def prepare(self) -> None:
        """Make what is missing, and remove what a kill has left unfinished. Only for the one writer, at its start."""
        for directory in (self._meta, self._checkpoints):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in (ASSIGNED, LAST_KNOWN_GOOD):
            file = self._meta / name
            remove_unfinished(file)
            if not file.exists():
                write_atomically(file, b"")
        for unfinished in self._checkpoints.glob(f"*/{_UNFINISHED}*"):
            shutil.rmtree(unfinished)

    def load(self) -> tuple[Checkpoints, tuple[str, ...]]:
        """Return the checkpoints on disk, and a line for each record that cannot be read."""
        sources: dict[str, ConfigSource | None] = {}
        problems: dict[str, str] = {}
        for name in (ASSIGNED, LAST_KNOWN_GOOD):
            try:
                sources[name] = self._read(name)
            except (OSError, OperatorError) as error:
                problems[name] = str(error)
        assigned, good = sources.get(ASSIGNED), sources.get(LAST_KNOWN_GOOD)
        damaged = ASSIGNED in problems
        return Checkpoints(assigned, good, self._rejection(), is_damaged=damaged), tuple(problems.values())

    def assign(self, source: ConfigSource | None) -> None:
        """Save which source is assigned."""
        crash_point("bootstrap.node_config.downloaded")
        write_atomically(self._meta / ASSIGNED, encode_source(source))
        crash_point("bootstrap.node_config.assigned")

    def promote(self, source: ConfigSource | None) -> None:
        """Save which source is the last known good one."""
        write_atomically(self._meta / LAST_KNOWN_GOOD, encode_source(source))
        crash_point("bootstrap.node_config.promoted")

    def reject(self, rejection: Rejection | None) -> None:
        """Save that a source is not used again; None = none is rejected."""
        if rejection is None:
            self._records.delete(_RECORD)
        else:
            record = {"source": rejection.source.as_object(), "error": rejection.error}
            self._records.save(_RECORD, record)
        crash_point("bootstrap.node_config.rejected")

    def save(self, source: ConfigSource, files: Mapping[str, bytes]) -> None:
        """Save the content of this version, complete or not at all; one that is there already stays."""
        target = self._directory(source)
        if target.is_dir():
            return
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        prefix = f"{_UNFINISHED}{source.resource_version}"[:100]
        unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        try:
            for name, content in files.items():
                with (unfinished / name).open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            sync_directory(unfinished)
            crash_point("bootstrap.node_config.written")
            unfinished.rename(target)
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync_directory(target.parent)
        sync_directory(self._checkpoints)

    def file(self, source: ConfigSource) -> Path:
        """Return the path of the KubeletConfiguration of this version."""
        return self._directory(source) / source.kubelet_config_key

    def keep_only(self, kept: set[ConfigSource | None]) -> None:
        """Remove all other checkpoints."""
        directories = {self._directory(source) for source in kept if source is not None}
        for checkpoint in self._checkpoints.glob("*/*"):
            if checkpoint not in directories:
                shutil.rmtree(checkpoint)
        for of_map in self._checkpoints.iterdir():
            if not any(of_map.iterdir()):
                of_map.rmdir()

    def _directory(self, source: ConfigSource) -> Path:
        return self._checkpoints / source.uid / source.resource_version

    def _read(self, name: str) -> ConfigSource | None:
        """Read a source. Raises OSError, OperatorError."""
        file = self._meta / name
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OperatorError("is no regular file", where=str(file), remedy="remove it")
            content = os.read(fd, _MAX_META_BYTES + 1)
        finally:
            os.close(fd)
        if not content:
            return None
        try:
            if len(content) > _MAX_META_BYTES:
                raise ValueError(f"it has more than {_MAX_META_BYTES} bytes")
            return decode_source(next(read_documents(content, _LIMITS), None))
        except (UnreadableError, ValueError) as error:
            remedy = "it is written again when the Node is read"
            raise OperatorError(f"cannot be used: {error}", where=str(file), remedy=remedy) from error

    def _rejection(self) -> Rejection | None:
        record = self._records.load_all().get(_RECORD, {})
        try:
            return Rejection(source_of(record.get("source")), str(record.get("error")))
        except ValueError:
            return None
