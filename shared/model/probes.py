"""Describes what a probe found."""

from enum import StrEnum


class ProbeResult(StrEnum):
    """The result of one kind of probe of one container instance, thresholds applied."""

    SUCCESS = "success"
    FAILURE = "failure"
    NONE = ""  # there is no probe of the kind, or it has no result yet
