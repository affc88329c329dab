"""Reads what a pod requests of a volume: from its spec, its claim and PersistentVolume, and from CSI objects. Pure."""
