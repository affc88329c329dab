"""`python -P -m services.volume`: run volume."""

from services.frame.launch import launch
from services.volume.service import build

if __name__ == "__main__":
    launch("volume", build)
