"""Decides what volume does: the desired and the actual state of the world, and what to do about the difference. Pure.

`reconciler` is the one gate: it compares both states and returns the difference as operations and as
`volumes.mounted`. A room imports other rooms only as this table allows:

    room             decides                                         imports
    reconciler       the next operations, and what is published      events files mounting operations specs world
    events           which Events pods get, which pods are rejected  files mounting operations specs world
    mounting         what is mounted, expanded and unmounted now     operations specs world
    world            what is desired, and what is mounted            specs
    operations       what an operation is, and what follows from it  files specs
    specs            what a pod requests of a volume                 files
    files            what the files of a volume contain              nothing
    registration     which plugins are registered                    device_plugins resource_claims
    device_plugins   which device plugins are used, their devices    nothing
    resource_claims  which resource claims are prepared, and how     nothing
"""
