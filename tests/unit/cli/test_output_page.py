"""docs/output.md has the keys that the commands print as JSON and YAML."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import fields

from bus.messages.event import KubeEvent
from bus.messages.pleg import NodeImage
from bus.messages.pod_preview import PodPreview
from bus.messages.usage import (
    CgroupUsage,
    ContainerUsage,
    FilesystemUsage,
    FoundUsage,
    NodeUsage,
    PodUsage,
    SystemContainerUsage,
    VolumeUsage,
)
from services.cli.agent.certificates import CertificateRow
from services.cli.agent.cpus import CpuReport, CpuRow, MemoryRow, WholePodRow
from services.cli.agent.devices import ClaimRow, DeviceReport, DeviceRow, ResourceRow
from services.cli.agent.holders import Holder
from services.cli.config.check import QuotableLines, finding_data
from services.cli.config.diff import Difference
from services.cli.preflight import findings as preflight_findings
from services.cli.preflight import text as preflight_text
from services.cli.takeover.account import Account
from services.cli.takeover.containers import Change
from services.cli.takeover.operation import DONE
from services.cli.terminal.output import dump
from services.cli.what_if import text as what_if_text
from services.cli.what_if.candidates import Candidate
from services.cli.what_if.claims import PreviewedClaim
from services.report.node import ProcessRow, Report, RuntimeRow, StreamRow
from services.report.pod_rows import PodRow
from shared.config.findings import ERROR, Finding
from shared.model.frozen_copy import replace
from shared.podspec.support import Effect, Unsupported
from shared.story.lines import Story
from shared.story.restarts import Restart
from shared.story.text import list_data, node_data, story_data

PAGE = (Path(__file__).parents[3] / "docs" / "output.md").read_text()
STORY = Story(uid="u", name="web", namespace="shop", source="api", lines=[])
WHAT_IF = what_if_text.Answer(
    candidate=Candidate(namespace="shop", name="web", file="web.yaml", source="api", pod={}), preview=PodPreview()
)
PREFLIGHT = preflight_findings.Report(node="here", findings=(), pods=())


def names(kind: type[Any]) -> set[str]:
    """The fields of a dataclass."""
    return {field.name for field in fields(kind)}


def of_takeover() -> dict[str, Any]:
    """What `bulkhead takeover -o json` prints once it has compared the containers."""
    printed: list[str] = []
    account = Account("takeover", printed.append, printed.append, "json")
    account.compared(1, Change(kept=1, restarted=(), ended=()))
    account.finish(DONE)
    found: dict[str, Any] = json.loads(printed[0])
    return found


SECTIONS = {
    "## status": names(Report) | {"ready"},
    "### process": names(ProcessRow),
    "### stream": names(StreamRow),
    "### runtime": names(RuntimeRow),
    "## pod": names(PodRow),
    "## events": names(KubeEvent) | {"from"},
    "## cpus": names(CpuReport),
    "### CPU": names(CpuRow),
    "## devices": names(DeviceReport),
    "### resource": names(ResourceRow),
    "### device": names(DeviceRow),
    "## images": names(NodeImage),
    "## certs": names(CertificateRow),
    "### node": names(NodeUsage),
    "### usage of a pod": names(PodUsage),
    "### cgroup": names(CgroupUsage),
    "### filesystem": names(FilesystemUsage),
    "## explain": set(list_data([STORY])[0]),
    "### explain of a pod": set(story_data(STORY)),
    "## what-if": set(WHAT_IF.data),
    "## config check": set(finding_data(Finding(ERROR, "port", "wrong"), QuotableLines())),
    "## config diff": names(Difference),
    "## preflight": set(preflight_text.report_data(PREFLIGHT)),
    "## takeover and give-back": set(of_takeover()),
}
LISTS = {  # section and key -> the keys of an element, or of the object, which the row names
    ("## cpus", "memory"): names(MemoryRow),
    ("## cpus", "pods"): names(WholePodRow),
    ("### CPU", "containers"): names(Holder),
    ("### device", "containers"): names(Holder),
    ("### node", "system_containers"): names(SystemContainerUsage),
    ("### usage of a pod", "containers"): names(ContainerUsage),
    ("### usage of a pod", "volumes"): names(VolumeUsage),
    ("### explain of a pod", "restarts"): names(Restart),
    ("## what-if", "unsupported"): names(Unsupported),
    ("## what-if", "claims"): names(PreviewedClaim),
    ("## devices", "claims"): names(ClaimRow),
    ("## preflight", "findings"): names(preflight_findings.Finding),
    ("## preflight", "pods"): names(preflight_findings.PodVerdict),
    ("## takeover and give-back", "containers"): set(of_takeover()["containers"]),
}


def rows(section: str) -> list[tuple[list[str], str]]:
    """Keys and text of each row of a section."""
    text = PAGE.partition(f"\n{section}\n")[2]
    lines = re.split(r"\n##", text, maxsplit=1)[0].splitlines()
    cells = [line.strip("|").split("|", 1) for line in lines if line.startswith("| `")]
    return [(re.findall(r"`(\w+)`", keys), value) for keys, value in cells]


def test_a_table_has_the_keys_of_its_output(subtests: pytest.Subtests) -> None:
    for section in SECTIONS:
        with subtests.test(section):
            keys = [key for found, _ in rows(section) for key in found]
            assert sorted(keys) == sorted(SECTIONS[section])


def test_a_row_about_a_list_names_the_keys_of_its_elements(subtests: pytest.Subtests) -> None:
    for section, key in LISTS:
        with subtests.test(section):
            [text] = [value for found, value in rows(section) if key in found]
            assert LISTS[section, key] <= set(re.findall(r"`(\w+)`", text))


def test_every_section_with_a_table_is_compared() -> None:
    headings = [line for line in PAGE.splitlines() if line.startswith("##")]
    assert {one for one in headings if rows(one)} == set(SECTIONS)


def test_top_and_explain_node_have_the_keys_in_the_text() -> None:
    assert names(FoundUsage) <= set(re.findall(r"`(\w+)`", PAGE.partition("\n## top\n")[2].partition("\n###")[0]))
    assert all(f"`{key}`" in PAGE for key in node_data({}))


def test_yaml_has_the_same_values_as_json_also_of_enumerations() -> None:
    field = Unsupported(field="spec.nodeName", effect=Effect.REJECTED, consequence="the pod is rejected")
    answer = replace(WHAT_IF, unsupported=(field,)).data
    assert yaml.safe_load(dump(answer, "yaml")) == json.loads(dump(answer, "json"))
