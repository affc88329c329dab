"""Runs `CertificateForms` in a short-lived child process, so that the memory of `cryptography` is freed after each
call.

Keys are passed through the child's pipes, never in its arguments, and are in no message.
"""

import json
import os
import subprocess
import sys
from typing import Any

import msgspec
from msgspec import to_builtins

from services.bootstrap.adapters.certificate_forms import CertificateForms, CertificateRequest, InspectedPair
from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.core.certificate_template import Template

_TIMEOUT_SECONDS = 60.0  # long, because a machine that has just booted is busy


class CertificateChild(CertificateForms):
    """CertificateForms in a child process: each call starts one and waits for it. Raises ProblemError, also when no
    child can be started."""

    def make(self, template: Template, key: str = "") -> CertificateRequest:
        """Make a request in the child; see CertificateForms.make."""
        return msgspec.convert(_ask("make", template=to_builtins(template), key=key), CertificateRequest)

    def inspect(self, certificate: str, key: str) -> InspectedPair:
        """Inspect a pair in the child; see CertificateForms.inspect."""
        return msgspec.convert(_ask("inspect", certificate=certificate, key=key), InspectedPair)

    def is_ours(self, request: str, key: str, template: Template) -> bool:
        """Check a request in the child; see CertificateForms.is_ours."""
        return bool(_ask("is_ours", request=request, key=key, template=to_builtins(template)))


def _ask(what: str, **arguments: Any) -> Any:
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps({"what": what, "arguments": arguments}).encode(),
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            start_new_session=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise ProblemError(f"could not be looked at: {type(error).__name__} (is there memory?)") from None
    if "problem" in answer:
        raise ProblemError(answer["problem"])
    return answer["found"]


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Do the child's work. `question`: `what`, a method of CertificateForms, and its `arguments`. Return
    `{"found": …}` or `{"problem": <one line>}`."""
    arguments = question["arguments"]
    if "template" in arguments:
        arguments["template"] = msgspec.convert(arguments["template"], Template)
    try:
        found = getattr(CertificateForms(), question["what"])(**arguments)
    except ProblemError as error:
        return {"problem": str(error)}
    return {"found": found if isinstance(found, bool) else to_builtins(found)}


if __name__ == "__main__":
    os.umask(0o077)
    print(json.dumps(answer(json.load(sys.stdin))))
