"""Rules of logging and tracing (config.md 2.2, 5.13). Pure."""

from collections.abc import Mapping
from typing import Any

from shared.config.findings import Findings
from shared.config.nested import value_of
from shared.config.rules_data import note
from shared.config.rules_urls import scheme_of
from shared.model.quantity import QuantityError, parse_quantity

_GATE = "LoggingAlphaOptions"
_MAX_INT32 = 2**31 - 1
_SCHEMES = ("dns", "unix", "unix-abstract")


def check_logging(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    """Check the options that need the text format, and those that are still alpha."""
    key, patterns = "logging.vmodule", value_of(data, "logging.vmodule") or ()
    if patterns and value_of(data, "logging.format") not in ("text", "", None):
        findings.add(key, "is only for the text format", "remove it, or set logging.format to text")
    for index, entry in enumerate(patterns):
        pattern, level = (entry or {}).get("filePattern") or "", (entry or {}).get("verbosity") or 0
        if not pattern or "=" in pattern or "," in pattern:
            what = f'filePattern is "{pattern}", must be given, and without = and ,'
            note(findings, key, f"[{index}]", what, "such as gc*")
        if level > _MAX_INT32:
            what = f"verbosity is {level}, must be at most {_MAX_INT32}"
            note(findings, key, f"[{index}]", what, "lower it")
    for form in ("text", "json"):
        _check_options(f"logging.options.{form}", data, gates, findings)


def _check_options(key: str, data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    off = not gates.get(_GATE)
    what, remedy = f"is set while feature gate {_GATE} is off", "leave it out, or switch the gate on"
    if off and value_of(data, f"{key}.splitStream"):
        findings.add(f"{key}.splitStream", what, remedy)
    size = value_of(data, f"{key}.infoBufferSize")
    try:
        if size is not None and parse_quantity(size).base() != 0 and off:
            findings.add(f"{key}.infoBufferSize", what, remedy)
    except QuantityError:
        findings.add(f"{key}.infoBufferSize", f'is "{size}", must be a quantity', 'such as "64Ki"')


def check_tracing(data: dict[str, Any], findings: Findings) -> None:
    """Check where traces go; the rate is checked with the plain limits."""
    endpoint = value_of(data, "tracing.endpoint")
    if endpoint is None:
        return
    scheme = scheme_of(endpoint if "//" in endpoint else f"dns://{endpoint}")
    if scheme is None:
        what, remedy = f'is "{endpoint}", which is no endpoint', "such as localhost:4317"
        findings.add("tracing.endpoint", what, remedy)
    elif scheme not in _SCHEMES:
        what = f'is "{endpoint}", the scheme must be one of {", ".join(_SCHEMES)}'
        findings.add("tracing.endpoint", what, "such as localhost:4317, which is plain text over gRPC")
