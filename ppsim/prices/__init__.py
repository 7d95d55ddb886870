"""From options to a schedule, its costs, its memory and its times."""

__all__ = [
    "build",
    "cap",
    "chunked",
    "data_parallel",
    "editable",
    "options",
    "part",
    "parts",
    "rounds",
    "serving",
    "several",
    "software",
    "timing",
    "trained",
]
