"""docs/configuration.md agrees with the tables: every key, every flag, everything without effect."""

import pytest

from shared.config.field_table import FIELDS
from shared.config.fields import BULKHEAD_CONFIGURATION
from shared.config.flag_table import FLAGS, REMOVED_FLAGS
from shared.config.readers import GATE_READERS
from tools import configuration_page


def sections() -> dict[str, str]:
    _, *parts = configuration_page.page().split("\n## ")
    return dict(part.split("\n", 1) for part in parts)


def test_the_page_is_the_one_that_the_tables_make() -> None:
    assert configuration_page.PAGE.read_text(encoding="utf-8") == configuration_page.page(), (
        "run: python -m tools.configuration_page"
    )


def test_every_key_and_flag_is_on_the_page_in_its_own_table() -> None:
    keys, own, gone = (
        sections()[name] for name in ("Keys of KubeletConfiguration", "Flags without a key", "Removed flags")
    )
    assert not [field.key for field in FIELDS if f"\n| `{field.key}` | " not in keys]
    assert not [name for name, flag in FLAGS.items() if flag.key and f"| `--{name}` |" not in keys]
    assert not [name for name, flag in FLAGS.items() if not flag.key and f"`--{name}` | " not in own + gone]
    assert not [name for name in REMOVED_FLAGS if f"\n| `--{name}` | refused; removed in 1." not in gone]


def test_all_that_has_no_effect_is_in_one_table() -> None:
    table = sections()["Accepted, but without effect"]
    named = {field.key: field.acts for field in FIELDS}
    named |= {f"--{name}": flag.acts for name, flag in FLAGS.items() if not flag.key}
    assert {name: f"\n| `{name}` | " not in table for name in named} == named


def test_every_key_of_the_agents_own_document_is_on_the_page() -> None:
    known = BULKHEAD_CONFIGURATION["embeddedContainerd"]
    assert isinstance(known, dict)
    assert {name.strip("`") for name, _, _ in configuration_page.CONTAINERD} == known.keys()
    offline = BULKHEAD_CONFIGURATION["offlinePods"]
    assert isinstance(offline, dict)
    assert {name.strip("`") for name, _, _ in configuration_page.OFFLINE} == offline.keys()
    docker = BULKHEAD_CONFIGURATION["docker"]
    assert isinstance(docker, dict)
    assert {name.strip("`") for name, _, _ in configuration_page.DOCKER_SHIM} == docker.keys()
    others = BULKHEAD_CONFIGURATION.keys() - {"apiVersion", "kind", "docker", "embeddedContainerd", "offlinePods"}
    assert {name.strip("`") for name, _, _ in (*configuration_page.DEVICES, *configuration_page.RELEASE)} == others


def test_every_gate_that_a_process_reads_is_on_the_page() -> None:
    table = sections()["Feature gates"]
    assert not [name for name in GATE_READERS if f"\n| `{name}` | " not in table]
    assert "\n| `RestartAllContainersOnContainerExits` | " in table  # the Node declares it
    assert "\n| `DRAPartitionableDevices` | " not in table


@pytest.mark.parametrize(
    "row",
    [
        "| `readOnlyPort` | int32 | `0`; flags alone `10255` | `--read-only-port` | ",
        "| `authentication.webhook.enabled` | bool | `true`; flags alone `false` | `--authentication-token-webhook` | ",
        "| `maxParallelImagePulls` | int32 | not set |  | ",
        "| `enforceNodeAllocatable` | list of string | `[pods]` | `--enforce-node-allocatable` | ",
        "| `--cni-cache-dir` | refused; removed in 1.24: ",
        "| `-h`, `--help` | bool | `false` | ",
    ],
)
def test_a_row_has_type_default_and_flag(row: str) -> None:
    assert f"\n{row}" in configuration_page.page()
