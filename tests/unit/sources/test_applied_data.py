"""ConfigMaps and Secrets of files on a node without a cluster: also of files that were written by hand."""

import base64

import pytest

from services.sources.core.applied_data import AppliedData
from services.sources.core.applied_object import stored_object
from services.sources.core.file_source import ManifestFile


def look(local: AppliedData, **files: str) -> dict[str, str]:
    """What is wrong with which file."""
    found = {name: ManifestFile(path=name, content=text.encode()) for name, text in files.items()}
    return {problem.path: problem.reason for problem in local.look(found)[1]}


def config_map(name: str, value: str) -> str:
    return f'{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": {name}}}, "data": {{"a": "{value}"}}}}'


BAD = {
    "a number as the namespace": ("metadata: {name: c, namespace: 5}", "metadata.namespace: must be a string"),
    "a list as the namespace": ("metadata: {name: c, namespace: [a]}", "metadata.namespace: must be a string"),
    "a number as the name": ("metadata: {name: 5}", "metadata.name: Required value"),
    "no name": ("metadata: {}", "metadata.name: Required value"),
    "no metadata": ("data: {}", "its kind is not ConfigMap or Secret"),
    "a list as data": ("metadata: {name: c}\ndata: [a]", "data: must be a map of strings"),
}


@pytest.mark.parametrize("bad", sorted(BAD))
def test_a_bad_file_is_one_problem_and_hides_no_other_file(bad: str) -> None:
    text, reason = BAD[bad]
    local = AppliedData()
    problems = look(local, a=f"apiVersion: v1\nkind: ConfigMap\n{text}\n", b=config_map('"good"', "1"))
    assert list(problems) == ["a"] and problems["a"].startswith(reason)
    assert local.get("ConfigMap", "default", "good").object is not None


def test_of_two_files_with_one_object_the_last_name_wins_whichever_came_first() -> None:
    first, second = config_map('"c"', "1"), config_map('"c"', "2")
    local = AppliedData()
    look(local, b=second)
    look(local, a=first, b=second)
    found = local.get("ConfigMap", "default", "c").object
    assert found is not None and found["data"] == {"a": "2"}


@pytest.mark.parametrize(("kind", "field"), [("Secret", "data"), ("ConfigMap", "binaryData")])
def test_base64_of_several_lines_is_stored_as_one(kind: str, field: str) -> None:
    lines = base64.encodebytes(b"x" * 100).decode().replace("\n", "\r\n")
    stored = stored_object({"kind": kind, "metadata": {"name": "n"}, field: {"a": lines}})
    assert stored[field] == {"a": base64.b64encode(b"x" * 100).decode()}
