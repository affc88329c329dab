"""Rules of pulling, checking and discarding images, and of the logs of containers (config.md 2.2). Pure."""

import re
from collections.abc import Mapping
from typing import Any

from shared.config.findings import Findings
from shared.config.rules_data import nanoseconds, note
from shared.model.quantity import is_quantity

POLICIES = ("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")
_POLICY_KEY, _ALLOWLIST = "imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"
_WITH_ALLOWLIST = "NeverVerifyAllowlistedImages"
_GATE = "KubeletEnsureSecretPulledImages"
_DOMAIN = r"(?:[A-Za-z0-9]|[A-Za-z0-9][-A-Za-z0-9]*[A-Za-z0-9])"
_HOST = rf"(?:{_DOMAIN}(?:\.{_DOMAIN})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE_NAME = re.compile(rf"(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)


def check_images(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    """Pulls at a time, garbage collection, verification of credentials, sizes of logs."""
    parallel = data.get("maxParallelImagePulls")
    if parallel is not None and parallel > 1 and data.get("serializeImagePulls"):
        findings.add(
            "maxParallelImagePulls",
            f"is {parallel} while serializeImagePulls is true",
            "set serializeImagePulls to false or maxParallelImagePulls to 1",
        )
    _check_collection(data, gates, findings)
    _check_verification(data, gates, findings)
    size = data.get("containerLogMaxSize")
    if size is not None and not is_quantity(size):
        findings.add("containerLogMaxSize", f'is "{size}", must be a quantity', 'such as "10Mi"; negative is never')


def _check_collection(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    high, low = data.get("imageGCHighThresholdPercent"), data.get("imageGCLowThresholdPercent")
    if high is not None and low is not None and low >= high:
        findings.add("imageGCLowThresholdPercent", f"is {low}, must be below the high threshold {high}", "lower it")
    oldest, youngest = nanoseconds(data, "imageMaximumGCAge") or 0, nanoseconds(data, "imageMinimumGCAge") or 0
    if oldest > 0 and oldest <= youngest:
        what = f"is {data['imageMaximumGCAge']}, must be above imageMinimumGCAge {data['imageMinimumGCAge']}"
        findings.add("imageMaximumGCAge", what, "raise it, or set it to 0s for no limit")
    if oldest and not gates.get("ImageMaximumGCAge"):
        what = "is set while feature gate ImageMaximumGCAge is off"
        findings.add("imageMaximumGCAge", what, "leave it out")


def _check_verification(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    policy, allowed = data.get(_POLICY_KEY), data.get(_ALLOWLIST) or ()
    if not gates.get(_GATE):
        for key, given in ((_POLICY_KEY, policy), (_ALLOWLIST, allowed)):
            if given:
                findings.add(key, f"is set while feature gate {_GATE} is off", "leave it out, or switch the gate on")
        return
    if policy is not None and policy not in POLICIES:
        what = f'is "{policy}", must be one of {", ".join(POLICIES)}'
        findings.add(_POLICY_KEY, what, "names are case-sensitive")
    if allowed and policy != _WITH_ALLOWLIST:
        what = f"is set while {_POLICY_KEY} is {policy}"
        findings.add(_ALLOWLIST, what, f"set that to {_WITH_ALLOWLIST}, or leave the list out")
    for index, pattern in enumerate(allowed):
        if why := _not_a_pattern(pattern):
            remedy = "such as registry.example/team/app or registry.example/team/*"
            note(findings, _ALLOWLIST, f"[{index}]", f'"{pattern}" {why}', remedy)


def _not_a_pattern(pattern: str) -> str:
    """Return why it names neither an image nor a prefix of images; "" when it does."""
    if pattern.strip() != pattern:
        return "has spaces around it"
    if pattern.endswith("/*"):
        prefix = pattern.removesuffix("/*")
        if not prefix:
            return "has nothing before the /*"
        return "has a * that is not at the end" if "*" in prefix else ""
    if "*" in pattern:
        return "has a * that is not at the end, after a /"
    if _IMAGE_NAME.fullmatch(pattern):
        return ""
    return "is not the name of an image, without tag and digest"
