"""Reads the names of block devices from sysfs."""

import os
from functools import lru_cache
from pathlib import Path

_SYSFS = Path("/sys/dev/block")


@lru_cache(256)
def device_name(major: int, minor: int) -> str:
    """Return the path of the block device with these numbers, such as /dev/sda; `8:0` where it has no name."""
    numbers = f"{major}:{minor}"
    try:
        lines = (_SYSFS / numbers / "uevent").read_text().splitlines()
    except OSError:
        return numbers
    return next((f"/dev/{line.removeprefix('DEVNAME=')}" for line in lines if line.startswith("DEVNAME=")), numbers)


def device_of(path: str) -> str:
    """Return the device of the filesystem at the path, "" where that cannot be read."""
    try:
        number = Path(path).stat().st_dev
    except OSError:
        return ""
    return device_name(os.major(number), os.minor(number))
