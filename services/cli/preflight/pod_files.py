"""Reads pods from files: those an operator names, or the static pods of the configuration."""

import os
import stat
from pathlib import Path

from services.cli.pods.manifest_files import read_manifest_file
from services.cli.preflight.findings import Finding, Section, Severity
from shared.errors import OperatorError
from shared.model.objects import Object
from shared.podspec.static_pod import InvalidPod, static_pod

_MAX_FILES = 1000  # in one directory
_MAX_PODS = 5000

Found = tuple[list[Object], list[Finding]]


def read_named_pods(place: str) -> Found:
    """Return the pods of a file, of every file of a directory, or of standard input ("-"), items of lists included."""
    pods: list[Object] = []
    findings: list[Finding] = []
    try:
        files = _files(place)
    except OSError as error:
        return [], [_problem(place, f"cannot be read: {error.strerror}")]
    for file in files:
        found, wrong = _documents(file)
        findings += wrong
        for document in found:
            if document.get("kind", "Pod") == "Pod":  # an item of a PodList from the API has no kind
                pods.append(document)
            else:
                what = f"holds an object of kind {str(document.get('kind'))[:80]}, which is no pod"
                findings.append(_finding(Severity.WARNING, file, what))
    if len(pods) > _MAX_PODS:
        findings.append(_problem(place, f"has more than {_MAX_PODS} pods"))
    return pods[:_MAX_PODS], findings


def read_static_pods(place: str, node_name: str) -> Found:
    """Return the static pods of a file or directory, as this agent would run them; what is no pod is a finding."""
    pods: list[Object] = []
    findings: list[Finding] = []
    try:
        files = _files(place)
    except OSError as error:
        return [], [_finding(Severity.WARNING, place, f"cannot be read: {error.strerror}")]
    for file in files:
        found, wrong = _documents(file)
        findings += wrong
        for document in found[:1]:  # of a file the kubelet reads only the first document
            try:
                pods.append(static_pod(document, node_name=node_name, source="file", origin=file))
            except InvalidPod as error:
                findings.append(_problem(file, str(error)))
    return pods, findings


def _files(place: str) -> list[str]:
    """Return the files of a directory, or the file itself. Raises OSError."""
    if place == "-" or not Path(place).is_dir():
        return [place]
    names = sorted(entry.name for entry in os.scandir(place) if not entry.name.startswith(".") and entry.is_file())
    return [str(Path(place, name)) for name in names[:_MAX_FILES]]


def _documents(file: str) -> tuple[list[Object], list[Finding]]:
    """Return the objects of one file, and findings about what is none."""
    try:
        if file != "-" and not stat.S_ISREG(Path(file).stat().st_mode):
            return [], [_problem(file, "is no regular file")]
        return list(read_manifest_file(file)), []
    except OSError as error:
        return [], [_problem(file, f"cannot be read: {error.strerror}")]
    except OperatorError as error:
        return [], [_problem(file, error.what)]


def _problem(where: str, what: str) -> Finding:
    return _finding(Severity.PROBLEM, where, what)


def _finding(severity: Severity, where: str, what: str) -> Finding:
    return Finding(
        section=Section.PODS, severity=severity, what=what, where=where, remedy="correct it, or name another file"
    )
