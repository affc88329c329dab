"""`python -P -m services.status`: run status."""

from services.frame.launch import launch
from services.status.service import build

if __name__ == "__main__":
    launch("status", build)
