"""The forms of names Kubernetes allows, and its words for what is wrong with one."""

import ipaddress
import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_QUALIFIED})?"

_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_QUALIFIED_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_LABEL_VALUE}')"
)


def _length(value: str, most: int) -> list[str]:
    return [f"must be no more than {most} characters"] if len(value) > most else []


def _form(value: str, pattern: str, message: str) -> list[str]:
    return [] if re.fullmatch(pattern, value, re.ASCII) else [message]


def dns_label(value: str) -> list[str]:
    """Return why the text is not an RFC 1123 label; empty when nothing."""
    return _length(value, 63) + _form(value, _LABEL, _LABEL_MESSAGE)


def dns_subdomain(value: str) -> list[str]:
    """Return why the text is not an RFC 1123 subdomain."""
    return _length(value, 253) + _form(value, _SUBDOMAIN, _SUBDOMAIN_MESSAGE)


def qualified_name(value: str) -> list[str]:
    """Return why the text is not a key of labels or annotations: `[<subdomain>/]<name>`."""
    prefix, slash, last = value.rpartition("/")
    wrong = []
    if slash:
        wrong += [f"prefix part {text}" for text in (dns_subdomain(prefix) if prefix else ["must be non-empty"])]
    if not last:
        return [*wrong, "name part must be non-empty", _QUALIFIED_MESSAGE]
    return wrong + [f"name part {text}" for text in _length(last, 63)] + _form(last, _QUALIFIED, _QUALIFIED_MESSAGE)


def label_value(value: str) -> list[str]:
    """Return why the text is not the value of a label."""
    return _length(value, 63) + _form(value, _LABEL_VALUE, _LABEL_VALUE_MESSAGE)


def port_name(value: str) -> list[str]:
    """Return why the text is not a valid IANA service name."""
    wrong = ["must be no more than 15 characters"] if len(value) > 15 else []
    if not re.fullmatch(r"[-a-z0-9]+", value, re.ASCII):
        wrong.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", value):
        wrong.append("must contain at least one letter (a-z)")
    if "--" in value:
        wrong.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        wrong.append("must not begin or end with a hyphen")
    return wrong


def env_name(value: str) -> list[str]:
    """Return why the text is not the name of an environment variable (the relaxed rule of today)."""
    if value and all(" " <= character <= "~" and character != "=" for character in value):
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def ip_address(value: str) -> list[str]:
    """Return why the text is not an IP address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"] if "%" in value else []
