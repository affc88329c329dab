"""docs/limits.md has the numbers for the reading of usage that the code has."""

from pathlib import Path

import pytest

from bus.messages import usage
from services.pleg.adapters import cgroup_reader, disk_usage, file_statuses, usage_source
from services.pleg.controllers import file_usage
from services.pleg.core import network_counters
from services.server.controllers import usage_endpoints
from services.volume.controllers import volume_usage

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_a_row_of_the_page_is_what_the_code_has(subtests: pytest.Subtests) -> None:
    for what, limit in [
        ("bytes of a cgroup file", f"{cgroup_reader.MAX_FILE_BYTES >> 10} KiB"),
        ("interfaces of a network namespace", network_counters.MAX_INTERFACES),
        (
            "files of a pod with several links that are counted once; links of further ones count by shares",
            disk_usage.MAX_LINKED_FILES,
        ),
        ("share of the time in which the files of a pod are measured", f"1/{file_usage.PAUSE_FACTOR}"),
        ("seconds that the next pod waits for one whose files are measured", f"{file_usage.MAX_NEXT_SECONDS:.0f}"),
        (
            "seconds of a turn, in which the files of a pod are counted; pods that have a turn at the same time",
            f"{file_usage.TURN_SECONDS:.0f}; {usage_source.MAX_COUNTS}",
        ),
        (
            "parts of the volumes of a pod that are left for a later turn, because a directory in it grows or is large",
            file_statuses.MAX_ASIDE_PARTS,
        ),
        (
            "seconds that a count lasts, or twice as long as the last one, at most; such pods with 1/20 of the time",
            f"{file_usage.LONG_SECONDS:.0f}; {file_usage.MAX_COUNT_SECONDS:.0f}; {file_usage.LONG_PODS}",
        ),
        ("bytes or inodes in a figure", f"2^{usage.MAX_AMOUNT.bit_length()} - 1"),
        (
            "requests at once for the figures that volume's plugins read (CSI, NFS, local)",
            file_usage.MAX_VOLUME_REQUESTS,
        ),
        (
            "volumes that plugins read at once; of one CSI driver, or all of NFS",
            f"{volume_usage.MAX_READINGS}; {volume_usage.MAX_READINGS_PER_SERVER}",
        ),
        (
            "seconds that such figures of a pod are waited for; seconds of one reading",
            f"{volume_usage.MAX_WAIT_SECONDS:.0f}; {volume_usage.TIMEOUT_SECONDS:.0f}",
        ),
        (
            "seconds that a request waits for a reading; for new figures of files",
            f"{usage_endpoints.TIMEOUT_SECONDS:.0f}; {file_usage.MAX_REFRESH_SECONDS:.0f}",
        ),
        ("bytes of a form to `/stats/summary`", usage_endpoints.MAX_FORM_BYTES),
    ]:
        with subtests.test(what):
            assert f"\n| {what} | {limit} |" in PAGE.read_text()
