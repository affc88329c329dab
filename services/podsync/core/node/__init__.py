"""The node itself: its facts, capacity and allocatable. Must not know any pod."""
