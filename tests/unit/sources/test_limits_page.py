"""docs/limits.md has the numbers of sources that the code has."""

from pathlib import Path

from services.sources.adapters import apply_socket, manifest_url
from services.sources.controllers import fetched_objects, read_places, volume_claims
from services.sources.core import applied_object, reflector, url_source
from services.sources.core.yaml_document import MAX_BYTES, MAX_VALUES
from shared.agent import apply_api
from shared.kube.interface import READ_TIMEOUT_SECONDS
from shared.podspec.static_pod import MAX_POD_BYTES

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_rows_for_the_static_pod_url_are_what_the_code_has() -> None:
    sizes = f"{MAX_BYTES >> 20} MiB; {manifest_url.MAX_REDIRECTS}; {url_source.MAX_PODS}"
    rows = (
        f"| seconds from the connection to the last byte | {manifest_url.TIMEOUT_SECONDS:.0f} |",
        f"| bytes of the document; redirects; pods of it | {sizes} |",
        f"| values (scalars, lists and maps) of the document, also of a file | {MAX_VALUES} | the same |",
        f"| bytes of one pod with its defaults, also of a file's | {MAX_POD_BYTES >> 20} MiB | the same |",
    )
    assert not [row for row in rows if row not in PAGE.read_text()]


def test_the_rows_for_applied_manifests_are_what_the_code_has() -> None:
    rows = (
        f"| bytes of an applied object | {apply_api.MAX_APPLIED_BYTES} | 413 |",
        f"| bytes of the data of a ConfigMap or Secret | {applied_object.MAX_DATA_BYTES} | 422 |",
        f"| objects; bytes of all together | {applied_object.MAX_FILES}; {applied_object.MAX_BYTES >> 20} MiB | 403 |",
        f"| {apply_socket.MAX_BODY_SECONDS:.0f}; {apply_socket.MAX_BODIES} | 408; a request waits |",
    )
    assert not [row for row in rows if row not in PAGE.read_text()]


def test_the_rows_for_an_outage_are_what_the_code_has() -> None:
    pauses = ", ".join(f"{reflector.PROBES.delay(failures):.0f}" for failures in (1, 2, 3))
    prompt = f"{reflector.PROMPT_PROBES.delay(1):.1f} to {reflector.MAX_PROMPT_PROBE_PAUSE_SECONDS:.0f}, by chance"
    rows = (
        f"| {pauses}, then {reflector.PROBES.delay(9):.0f}; by chance up to twice as long |",
        f"since its start (`offlinePods`) | {prompt} |",
        f"| seconds over which the watches of one node resume after it was noticed | {reflector.SPREAD_SECONDS:.0f} |",
    )
    assert not [row for row in rows if row not in PAGE.read_text()]
    assert f"up to {reflector.MAX_PROBE_PAUSE_SECONDS:.0f} s after the return" in PAGE.read_text()


def test_the_rows_for_single_reads_are_what_the_code_has() -> None:
    numbers = f"{volume_claims.MAX_READS}; {fetched_objects.MAX_READS}; {read_places.MAX_SLOW_READS}"
    path = "services/sources/controllers/read_places.py"
    assert f"that have taken over {read_places.SLOW_AFTER_SECONDS:.0f} s (`{path}`) | {numbers} |" in PAGE.read_text()
    assert f"(a claim, a Secret that is not watched) | {READ_TIMEOUT_SECONDS:.0f}," in PAGE.read_text()
