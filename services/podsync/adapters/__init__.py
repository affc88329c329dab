"""Carries out what the core of podsync decides: runtime calls, cgroups, directories, checkpoint, story.

The rooms have the names of the rooms in `core`; `calls` carries out the calls that `sync` and `images` return.
"""
