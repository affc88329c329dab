"""Decides what the files of a volume contain: keys of objects, tokens, trust anchors and certificates. Pure."""
