"""The framework of questions: options as data, requests, answers, and their output."""

__all__ = [
    "answer",
    "blocks",
    "given",
    "groups",
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
