"""Every key that acts reaches a service, and no field of a service's configuration names a key that does not act."""

from dataclasses import fields
from pathlib import Path

import pytest

from shared.config.effective import KEY, EffectiveConfig
from shared.config.field_table import FIELDS

ROOT = Path(__file__).parents[3]
ROWS = {row.key: row for row in FIELDS}
NAMED = {field.name: field.metadata[KEY] for field in fields(EffectiveConfig) if KEY in field.metadata}

# Keys that act without a field of their own -> the module that reads them.
READ_ELSEWHERE = {
    "failCgroupV1": "shared/config/host_facts.py",
    "failSwapOn": "shared/config/host_facts.py",
    "featureGates": "shared/config/gates.py",
    "logging.options.json.infoBufferSize": "shared/config/settings.py",
    "logging.options.json.splitStream": "shared/config/settings.py",
    "logging.options.text.infoBufferSize": "shared/config/settings.py",
    "logging.options.text.splitStream": "shared/config/settings.py",
    "memorySwap.swapBehavior": "services/podsync/adapters/node_facts_reader.py",
    "mergeDefaultEvictionSettings": "shared/config/layers.py",
    "singleProcessOOMKill": "services/podsync/adapters/node_facts_reader.py",
    "userNamespaces.idsPerPod": "services/podsync/adapters/node_facts_reader.py",
}


def test_every_key_that_acts_is_read() -> None:
    acting = {row.key for row in FIELDS if row.acts}
    assert acting - set(NAMED.values()) == set(READ_ELSEWHERE)


@pytest.mark.parametrize("key", sorted(READ_ELSEWHERE))
def test_a_key_without_a_field_is_read_by_its_module(key: str) -> None:
    assert key.rpartition(".")[2] in (ROOT / READ_ELSEWHERE[key]).read_text()


def test_a_key_that_a_service_reads_acts() -> None:
    assert {key for key in NAMED.values() if not ROWS[key].acts} == set()
    assert len(set(NAMED.values())) == len(NAMED)
