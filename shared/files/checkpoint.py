"""A directory of records that survive any crash: one JSON file per key, the newest copy wins.

When the disk is full or broken, or something is in the way, records go to a second directory (in the run directory, a
tmpfs) and move back once the disk takes them again; `save` never raises for that, so that no pod is kept from
terminating a pod by a full disk.
Knows nothing of what a record means.
"""

import hashlib
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from shared.files.atomic import replace, sync_directory, write_atomically
from shared.text.json_text import json_bytes

_VERSION = 1
_SUFFIX = ".json"
MAX_WRITES = 16  # at the same time; each waits for the disk and its journal, together not much longer than one

log = logging.getLogger(__name__)


class RecordLocation(StrEnum):
    """Where a record is after `save` or `delete`."""

    ON_DISK = "on disk"
    IN_FALLBACK = "in the fallback directory, lost at a reboot"
    NOWHERE = "nowhere"


@dataclass
class _Copy:
    number: int
    data: dict[str, Any] | None  # None = the key was deleted while the disk could not be written


class _NewerError(Exception):
    """A record of a version that is not known yet."""


class Checkpoint:
    """Records under `directory`, with `fallback` for the time the disk is full. Both are made if absent.

    A file of a newer version of the agent stays as it is, unread, until a record of the same key is saved or deleted.
    Safe to call from several threads. `trouble` is one line while the disk cannot be written, for the beat.
    """

    def __init__(self, directory: Path, fallback: Path) -> None:
        self.trouble: str | None = None
        self.directory, self._fallback = directory, fallback
        self._lock = threading.Lock()
        self._fallen: set[str] = set()  # keys whose newest copy is in the fallback
        self._number = 0
        self._scanned = False
        self._reported: set[Path] = set()  # directories whose newer records have been logged
        self._threads = _new_threads()

    def load_all(self) -> dict[str, dict[str, Any]]:
        """Return every record by key. A file that is no record is renamed to `<name>.corrupt` and logged;
        those of a newer version are left alone and logged in one line."""
        with self._lock:
            return {key: copy.data for key, copy in self._scan().items() if copy.data is not None}

    def save(self, key: str, data: dict[str, Any]) -> RecordLocation:
        """Store the record; when this returns ON_DISK a crash of the machine does not lose it."""
        with self._lock:
            return self._store(key, data)

    def save_all(self, records: Mapping[str, dict[str, Any]]) -> dict[str, RecordLocation]:
        """`save` for several records, for the price of one sync of the directory."""
        if len(records) == 1:
            return {key: self.save(key, data) for key, data in records.items()}
        with self._lock:
            self._scan_once()
            contents: dict[str, bytes] = {}
            for key, data in records.items():
                self._number += 1
                contents[key] = _encode(key, self._number, data)
            try:
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                files = {_file_name(key): content for key, content in contents.items()}
                write_all_atomically(self.directory, files, self._threads)
            except (OSError, RuntimeError):  # or no further thread can be started: each for itself, as it may be
                self._threads.shutdown()  # waits for the writes that have begun
                self._threads = _new_threads()
                return {key: self._store(key, data) for key, data in records.items()}
            kept = {key: self._came_home(key) for key in records}
            self._move_back()
            return kept

    def delete(self, key: str) -> RecordLocation:
        """Forget the record; an absent key is no matter."""
        with self._lock:
            self._scan_once()
            try:
                if key not in self._fallen:
                    _remove(self._fallback, key)  # an older leftover must go first, or a crash would revive it
                _remove(self.directory, key)
            except OSError as error:
                log.error("the record of %s cannot be removed: %s (noted as gone in %s)", key, error, self._fallback)
                return self._store(key, None)
            self._fallen.discard(key)
            _remove(self._fallback, key)
            return RecordLocation.ON_DISK

    def _store(self, key: str, data: dict[str, Any] | None) -> RecordLocation:
        self._scan_once()
        self._number += 1
        content = _encode(key, self._number, data)
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if data is None:
                _remove(self.directory, key)
            else:
                write_atomically(self.directory / _file_name(key), content)
        except OSError as error:
            return self._fall_back(key, content, error)
        self._came_home(key)
        self._move_back()
        return RecordLocation.ON_DISK

    def _came_home(self, key: str) -> RecordLocation:
        """Remove the copy in the fallback, because the newest one is on disk."""
        self._fallen.discard(key)
        _remove(self._fallback, key)
        return RecordLocation.ON_DISK

    def _fall_back(self, key: str, content: bytes, reason: OSError) -> RecordLocation:
        if self.trouble is None:
            self.trouble = f"checkpoint {self.directory} cannot be written: {reason.strerror} (free some space there)"
            log.error("%s; records go to %s meanwhile", self.trouble, self._fallback)
        self._fallen.add(key)
        try:
            self._fallback.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self._fallback / _file_name(key), content)
        except OSError as error:
            log.error("checkpoint of %s is lost at a restart: %s: %s", key, self._fallback, error.strerror)
            return RecordLocation.NOWHERE
        return RecordLocation.IN_FALLBACK

    def _move_back(self) -> None:
        """Move records from the fallback to the disk, as far as it has room, because it took one."""
        for key in sorted(self._fallen):
            source = self._fallback / _file_name(key)
            try:
                copy = _decode(source.read_bytes())[1] if source.exists() else None
                if copy is not None and copy.data is None:
                    _remove(self.directory, key)
                elif copy is not None:
                    write_atomically(self.directory / _file_name(key), source.read_bytes())
                source.unlink(missing_ok=True)
            except (OSError, ValueError, _NewerError):
                return
            self._fallen.discard(key)
        if self.trouble is not None:
            log.info("checkpoint %s can be written again", self.directory)
            self.trouble = None

    def _scan_once(self) -> None:
        if not self._scanned:
            self._scan()

    def _scan(self) -> dict[str, _Copy]:
        home, fallen = self._read(self.directory), self._read(self._fallback)
        newest = dict(home)
        for key, copy in fallen.items():
            if key not in home or copy.number > home[key].number:
                newest[key] = copy
                self._fallen.add(key)
            else:
                self._fallen.discard(key)
        self._number = max([self._number, *(copy.number for copy in newest.values())])
        self._scanned = True
        return newest

    def _read(self, directory: Path) -> dict[str, _Copy]:
        records, newer = _read_directory(directory)
        if newer and directory not in self._reported:
            self._reported.add(directory)
            what = "a newer version of the agent and left as they are (start that version to use them)"
            log.warning("%s: %d records, %s among them, are of %s", directory, len(newer), newer[0], what)
        return records


def read_record(directory: Path, fallback: Path, key: str) -> dict[str, Any] | None:
    """Return the newest copy of the record with this key, which another process writes; None where there is none, or it
    cannot be understood. Changes no file: an unfinished one may be a save that is under way. Raises OSError.
    """
    copies = [copy for place in (directory, fallback) if (copy := _copy_in(place, key)) is not None]
    return max(copies, key=lambda copy: copy.number).data if copies else None


def _copy_in(directory: Path, key: str) -> _Copy | None:
    try:
        return _decode((directory / _file_name(key)).read_bytes())[1]
    except (FileNotFoundError, NotADirectoryError, ValueError, _NewerError):
        return None


def _file_name(key: str) -> str:
    name = quote(key, safe="")
    name = name.replace(".", "%2E") if name.startswith(".") else name
    if len(name) > 200:
        name = f"{name[:100]}~{hashlib.sha256(key.encode()).hexdigest()}"
    return name + _SUFFIX


def _encode(key: str, number: int, data: dict[str, Any] | None) -> bytes:
    return json_bytes({"version": _VERSION, "key": key, "number": number, "data": data})


def _decode(content: bytes) -> tuple[str, _Copy]:
    """Return the key and the record. Raises ValueError, or _NewerError for what only a newer version can read."""
    envelope = orjson.loads(content)
    version = envelope.get("version") if isinstance(envelope, dict) else None
    if type(version) is int and version > _VERSION:
        raise _NewerError
    if version != _VERSION:
        raise ValueError("not a record of a version known here")
    key, number, data = envelope.get("key"), envelope.get("number", 0), envelope.get("data")
    if not isinstance(key, str) or not isinstance(number, int) or not (data is None or isinstance(data, dict)):
        raise ValueError("not a record")
    return key, _Copy(number, data)


def _read_directory(directory: Path) -> tuple[dict[str, _Copy], list[str]]:
    """Return the records by key, and the names of files of a newer version."""
    records: dict[str, _Copy] = {}
    newer: list[str] = []
    if not directory.is_dir():
        return records, newer
    for path in sorted(directory.iterdir()):
        if path.name.startswith(".") and path.name.endswith(".tmp"):
            _remove_quietly(path)  # a save that a crash cut short; its record is still the old one
        elif path.name.endswith(_SUFFIX):
            try:
                key, copy = _decode(path.read_bytes())
                records[key] = copy
            except OSError as error:
                log.error("%s cannot be read: %s (left as it is)", path, error.strerror)
            except _NewerError:
                newer.append(path.name)
            except ValueError as error:
                _set_aside(path, error)
    return records, newer


def _set_aside(path: Path, reason: Exception) -> None:
    try:
        path.rename(path.with_name(path.name + ".corrupt"))
    except OSError:
        pass
    log.error("%s is not a readable record: %s (set aside as %s.corrupt)", path, reason, path.name)


def _remove_quietly(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass


def _remove(directory: Path, key: str) -> None:
    path = directory / _file_name(key)
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_directory(directory)


def _new_threads() -> ThreadPoolExecutor:
    """Return an executor whose threads are started when they are needed first, and stay: a thread for each write of a
    batch costs more than the write."""
    return ThreadPoolExecutor(MAX_WRITES, thread_name_prefix="write")


def write_all_atomically(directory: Path, contents: Mapping[str, bytes], threads: Executor, mode: int = 0o600) -> None:
    """`write_atomically` for many files of a directory, by name.

    Raises OSError, and RuntimeError where no thread can be started: then some of them may be replaced, also later."""
    replaced = [threads.submit(replace, directory / name, content, mode) for name, content in contents.items()]
    for one in replaced:
        one.result()
    sync_directory(directory)
