"""Has the facts of the node, its capacity and its allocatable. Must not know any pod."""
