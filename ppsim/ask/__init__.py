"""How a question is asked and answered: options as data, requests, answers, and how they are shown
and written.
"""

__all__ = [
    "answer",
    "blocks",
    "given",
    "groups",
    "option_names",
    "options",
    "request",
    "rules",
    "signatures",
    "tasks",
    "terminal",
    "types",
    "words",
    "write",
]
