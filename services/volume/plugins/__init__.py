"""The types of volumes, one file each: what an entry of spec.volumes requests (pure), and how it is set up (blocking).

`registry.py` is the one table of them; `plugin.py` is the protocol that each follows.
"""
