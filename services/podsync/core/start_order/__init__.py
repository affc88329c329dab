"""Decides in which order pods start while more want to start than the machine can serve: after a boot above all. The
mirror image of `shutdown`. Must not know calls, streams or how a pod is synced.

`rank` has the place of a pod in the order, `turns` who may begin now, `places` how many start at once, and `queue` the
pods that start.
"""
