"""Decides what follows from the name of an image alone."""


def image_tag(image: str) -> str:
    """Return the tag; "latest" where neither tag nor digest is given; "" for an image named by digest alone."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    if colon:
        return tag
    return "" if digest else "latest"


def default_pull_policy(image: str) -> str:
    """imagePullPolicy where the spec has none."""
    return "Always" if image and image_tag(image) == "latest" else "IfNotPresent"
