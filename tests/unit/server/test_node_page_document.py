"""docs/node-page.md has the numbers of the node page that the code and its script have."""

import re
from pathlib import Path

from services.report import machine
from services.server.controllers import node_machine, node_page, node_state
from services.server.core.pages import node_history

CHECKOUT = Path(__file__).parents[3]
SCRIPT = "".join((CHECKOUT / f"services/server/page/{name}.js").read_text() for name in ("page", "story"))
PAGE = " ".join((CHECKOUT / "docs/node-page.md").read_text().split())


def of_script(name: str) -> str:
    found = re.search(rf"^const {name} = (\d+);", SCRIPT, re.MULTILINE)
    assert found
    return found[1]


def test_the_bounds_of_pages_are_what_the_code_has() -> None:
    beyond = f"503; the page then reads `/bulkhead/state` every {of_script('RELOAD_SECONDS')} s"
    texts = (
        f"| open pages | {node_page.MAX_PAGES} | {beyond} |",
        f"as many as are free for others: {node_page.MAX_PAGES // 2}, then {node_page.MAX_PAGES // 4}",
        f"| time in which a page takes an event | {node_page.MAX_WRITE_SECONDS:.0f} s |",
        f"| one request for events | {node_page.MAX_STREAM_SECONDS / 60:.0f} min |",
    )
    assert not [text for text in texts if text not in PAGE]


def test_the_times_in_the_text_are_what_the_code_has() -> None:
    log_kib = int(of_script("LOG_BYTES")) // 1024
    texts = (
        f"server reads the state every {node_page.TICK_SECONDS:.0f} s",
        f"The node sends an event at least every {node_page.HEARTBEAT_SECONDS:.0f} s",
        f"lost for {of_script('BROKEN_SECONDS')} s, or no event comes for {of_script('LATE_SECONDS')} s",
        f"A sample is taken every {node_history.INTERVAL_SECONDS} s",
        f"the charts keep {node_history.MAX_SAMPLES} samples",
        f"What pods use is requested from pleg every {node_machine.USAGE_SECONDS:.0f} s",
        f"the newest {of_script('LOG_LINES')} lines, or fewer where these have more than {log_kib} KiB",
    )
    assert not [text for text in texts if text not in PAGE]
    assert node_history.INTERVAL_SECONDS * node_history.MAX_SAMPLES == 3600
    assert node_page.SAMPLES_PER_SAVE * node_history.INTERVAL_SECONDS == 60
    assert node_state.MEMORY_SECONDS <= 60 < node_state.MEMORY_SECONDS + node_history.INTERVAL_SECONDS
    assert machine.MAX_INTERFACES == 8 and "the eight with most bytes" in PAGE
    assert of_script("MAX_SHOWN_PODS") == "8" and "the first eight by name" in PAGE
