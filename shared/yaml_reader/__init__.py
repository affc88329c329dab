"""YAML to plain JSON values with the rules of the kubelet's decoder, within limits, with line numbers. Pure."""
