"""Errors meant for the operator: what is wrong, where, and how to correct it, in one line."""


class OperatorError(Exception):
    """Something an operator can correct. `str()` is one line: what, where, remedy; never a secret."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(": ".join(part for part in (where, what) if part) + (f" ({remedy})" if remedy else ""))
