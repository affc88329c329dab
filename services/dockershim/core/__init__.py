"""Decides what Docker and CNI are asked and what their answers mean in CRI. Pure: the time is an argument."""
