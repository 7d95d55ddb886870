"""From options to a schedule, its costs, its memory and its times."""

__all__ = [
    "build",
    "cap",
    "chunked",
    "dealing",
    "editable",
    "lengths",
    "options",
    "part",
    "parts",
    "replicas",
    "rounds",
    "serving",
    "several",
    "software",
    "timing",
    "trained",
]
