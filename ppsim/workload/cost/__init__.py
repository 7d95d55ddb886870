"""Costs of training: time per stage and step, memory per device."""

__all__ = [
    "calibrated",
    "costs",
    "exposed",
    "measured",
    "memory",
    "serving",
    "tensor_split",
    "volumes",
]
