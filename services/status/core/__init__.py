"""Pure decisions of status: whether the node is Ready, which conditions it has, which events are new."""
