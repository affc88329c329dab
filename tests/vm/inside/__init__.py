"""What runs inside the VM; outside, only `plan` is read, for the names of the checks."""
