"""The node itself: its facts, capacity, allocatable and pressure conditions. Must not know any pod."""
