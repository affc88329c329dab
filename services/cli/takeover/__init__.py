"""`bulkhead takeover` and `bulkhead give-back`: exchange the kubelet of a node, in both directions."""
