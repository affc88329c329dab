"""What one volume shows is bounded, however often it names the same object or field."""

import tracemalloc
from typing import Any

import pytest

from services.volume.core.files.files_source import Files
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import MAX_PAYLOAD_BYTES, ContentError, FoundObject, SetUpInputs, make_payload
from services.volume.core.specs.volume_spec import Node, VolumeSpec
from services.volume.plugins.registry import volume_spec

LARGE = SetUpInputs(objects={ObjectKey("ConfigMap", "n", "c"): FoundObject({"data": {"a": "x" * 1_000_000}})})
TOO_LARGE = f"the files of the volume have more than {MAX_PAYLOAD_BYTES} bytes"


def files(volume: dict[str, Any], annotations: dict[str, str] | None = None) -> Files:
    metadata = {"name": "p", "namespace": "n", "annotations": annotations or {}}
    spec = {"containers": [], "volumes": [{"name": "v", **volume}]}
    read = volume_spec({"metadata": metadata, "spec": spec}, "v", Node())
    assert isinstance(read, VolumeSpec) and isinstance(read.source, Files)
    return read.source


def configmaps(number: int) -> dict[str, Any]:
    source = {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}}
    return {"projected": {"defaultMode": 420, "sources": [source] * number}}


def test_an_object_may_be_projected_a_few_times_but_not_a_thousand() -> None:
    assert len(make_payload(files(configmaps(30)), LARGE)) == 1
    tracemalloc.start()
    try:
        with pytest.raises(ContentError, match=TOO_LARGE):
            make_payload(files(configmaps(1_000)), LARGE)
        assert tracemalloc.get_traced_memory()[1] < 2 * MAX_PAYLOAD_BYTES
    finally:
        tracemalloc.stop()


def test_a_field_is_written_out_once_for_all_files_that_show_it() -> None:
    items = [{"path": f"f{n}", "fieldRef": {"fieldPath": "metadata.annotations"}} for n in range(5_000)]
    tracemalloc.start()
    try:
        source = files({"downwardAPI": {"defaultMode": 420, "items": items}}, {"k": '"' * 250_000})
        with pytest.raises(ContentError, match=TOO_LARGE):
            make_payload(source, SetUpInputs())
        assert tracemalloc.get_traced_memory()[1] < MAX_PAYLOAD_BYTES
    finally:
        tracemalloc.stop()
