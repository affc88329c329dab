"""Decides names and values of the cgroups of pods, QoS classes and kubepods, for the drivers cgroupfs and systemd.
Reads and writes no file, and does not call systemd. Must not know what is tracked of a pod.
"""
