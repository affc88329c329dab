"""`python -P -m services.podsync`: run podsync."""

from services.frame.launch import launch
from services.podsync.service import build

if __name__ == "__main__":
    launch("podsync", build)
