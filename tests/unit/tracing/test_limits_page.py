"""docs/limits.md has the numbers for traces that the code has."""

from pathlib import Path

from shared.tracing import otlp, span, tracer

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_rows_for_traces_are_what_the_code_has() -> None:
    request = f"{otlp.MAX_BATCH_SPANS}; {otlp.TIMEOUT_SECONDS:.0f}"
    rows = (
        f"| spans of a process that wait for the collector | {otlp.MAX_WAITING_SPANS} |",
        f"| spans in a request to the collector; seconds for its answer | {request} |",
        f"| pods whose traces a process keeps | {tracer.MAX_PODS} |",
        f"| characters of an attribute | {span.MAX_TEXT_CHARACTERS} |",
    )
    assert not [row for row in rows if row not in PAGE.read_text()]
