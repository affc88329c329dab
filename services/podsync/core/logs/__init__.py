"""Decides which log files of containers are rotated, compressed or removed. Must not know the record of a pod."""
