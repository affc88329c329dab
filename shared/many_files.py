"""Many files of one directory, each complete or absent after any crash, for hardly more time than one."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared.files import replace, sync_directory

WRITES_AT_ONCE = 16  # each waits for the disk and the file system's journal, together not much longer than one


def write_all_atomically(directory: Path, contents: Mapping[str, bytes], mode: int = 0o600) -> None:
    """`write_atomically` for many files of a directory, by name.

    Raises OSError, and RuntimeError where no thread can be started: then some of them may be replaced."""
    with ThreadPoolExecutor(WRITES_AT_ONCE, thread_name_prefix="write") as threads:
        replaced = [threads.submit(replace, directory / name, content, mode) for name, content in contents.items()]
    for one in replaced:
        one.result()
    sync_directory(directory)
