"""`python -P -m services.sources`: run sources."""

from services.frame.launch import launch
from services.sources.service import build

if __name__ == "__main__":
    launch("sources", build)
