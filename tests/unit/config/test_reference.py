"""Types, defaults, limits and flags of the configuration equal those of the kubelet: two tables written from
docs/reference/config.md, not from the product's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.config.field_table import FIELDS, MIN_DURATION_SECONDS
from shared.config.fields import UNSET, Field
from shared.config.flag_table import FLAGS
from shared.config.flag_text import value_text
from shared.model.schema import ListOf, MapOf, Scalar
from tests.support.recorded.differences import assert_same

HERE = Path(__file__).parent

# Where the agent differs from the reference on purpose: row, column -> its own value and the reason.
DIFFERS: dict[tuple[str, str], tuple[Any, str]] = {
    **{
        (key, "low"): (0, "a negative period would only fail later, or count as none")
        for key in ("fileCheckFrequency", "nodeStatusUpdateFrequency", "runtimeRequestTimeout")
    },
    ("memoryThrottlingFactor", "low"): (0, "a range has no open end: a rule refuses 0"),
}
# Flags of the agent alone, and flags of earlier releases that existing command lines have.
OWN_FLAGS = {"log-dir", "node-page-port", "output", "reload-config", "run-dir"}
EARLIER_FLAGS = {
    "chaos-chance",
    "cni-bin-dir",
    "cni-conf-dir",
    "container-runtime",
    "docker-endpoint",
    "dynamic-config-dir",
    "image-pull-progress-deadline",
    "network-plugin",
    "pod-infra-container-image",
    "redirect-container-streaming",
}


def table(name: str) -> list[dict[str, str]]:
    """The rows of a table, by column; empty cells at the end of a line are left out in the file."""
    lines = [line for line in (HERE / name).read_text().splitlines() if not line.startswith("#")]
    head = lines[0].split("\t")
    return [
        dict(zip(head, [*(cells := line.split("\t")), *[""] * (len(head) - len(cells))], strict=True))
        for line in lines[1:]
    ]


REFERENCE_FIELDS = table("reference_fields.tsv")
REFERENCE_FLAGS = table("reference_flags.tsv")

TYPES = {
    "bool": Scalar.BOOLEAN,
    "int32": Scalar.INT32,
    "int64": Scalar.INT64,
    "uint32": Scalar.UINT32,
    "float64": Scalar.FLOAT64,
    "string": Scalar.STRING,
    "duration": Scalar.DURATION,
    "duration or nanoseconds": Scalar.DURATION_OR_NANOSECONDS,
    "quantity": Scalar.QUANTITY,
    "[]string": ListOf(Scalar.STRING),
    "[]int32": ListOf(Scalar.INT32),
    "map": MapOf(Scalar.STRING),
    "bools": MapOf(Scalar.BOOLEAN),
    "lists": MapOf(ListOf(Scalar.STRING)),
}
_FIELD = {field.key: field for field in FIELDS}


def limit(text: str) -> float | None:
    return None if not text else MIN_DURATION_SECONDS if text == ">0" else float(text)


def as_reference(field: Field) -> dict[str, Any]:
    """The field in the columns of the table; None for a column that it has no value in."""
    default, flags_only = (
        list(value) if isinstance(value, tuple) else value for value in (field.default, field.flags_only_default)
    )
    return {
        "default": default,
        "flags only": flags_only,
        "zero": "Z" if field.zero == UNSET else "K",
        "low": field.low,
        "high": field.high,
        "choices": sorted(field.choices),
    }


def expected(row: dict[str, str]) -> dict[str, Any]:
    default = json.loads(row["default"])
    return {
        "default": default,
        "flags only": default if row["flags only"] == "=" else json.loads(row["flags only"]),
        "zero": row["zero"],
        "low": limit(row["low"]),
        "high": limit(row["high"]),
        "choices": sorted(filter(None, row["choices"].split(", "))),
    }


def with_own(key: str, columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {column: own for (row, column), (own, _) in DIFFERS.items() if row == key}


def test_the_tables_have_the_same_keys_and_flags() -> None:
    assert {row["key"] for row in REFERENCE_FIELDS} == _FIELD.keys()
    assert {row["flag"] for row in REFERENCE_FLAGS} | OWN_FLAGS | EARLIER_FLAGS == FLAGS.keys()


def test_a_key_is_as_in_the_reference(subtests: pytest.Subtests) -> None:
    for row in REFERENCE_FIELDS:
        with subtests.test(row["key"]):
            field = _FIELD[row["key"]]
            if row["type"] in TYPES:
                assert field.schema == TYPES[row["type"]]
            found, wanted = as_reference(field), with_own(field.key, expected(row))
            if row["zero"] == "-":
                wanted["zero"] = found["zero"]
            assert_same(found, wanted)


@pytest.mark.long
def test_a_flag_is_as_in_the_reference(subtests: pytest.Subtests) -> None:
    for row in REFERENCE_FLAGS:
        with subtests.test(row["flag"]):
            flag = FLAGS[row["flag"]]
            shown = value_text(flag.kind, flag.default)
            found = {"type": flag.kind.word, "default": shown, "deprecated": bool(flag.deprecated), "key": flag.key}
            default = "" if row["default"] == '""' else row["default"]
            wanted = {
                "type": row["type"],
                "default": default,
                "deprecated": row["deprecated"] == "D",
                "key": row["key"],
            }
            assert found == with_own(f"--{flag.name}", wanted)


def test_every_difference_is_one() -> None:
    rows = {row["key"]: expected(row) for row in REFERENCE_FIELDS}
    for (name, column), (own, why) in DIFFERS.items():
        assert why
        if not name.startswith("--"):
            assert rows[name][column] != own, f"{name} {column} is as in the reference"
