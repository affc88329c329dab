"""What runs inside the machine; outside, only `plan` is read, for the names of the checks."""
