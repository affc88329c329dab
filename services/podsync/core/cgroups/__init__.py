"""Names and values of cgroups: of pods, QoS classes and kubepods, for the drivers cgroupfs and systemd.

Touches no file and asks no systemd. Must not know the record of a pod.
"""
