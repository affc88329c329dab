"""A number of bytes as text. Pure."""


def byte_size(number: int) -> str:
    """Return bytes as `12 MiB`, `1.5 GiB` or `512 B`."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
