"""Layers of each stage: layout strings, Megatron's flags, and the costs that follow from layers."""

__all__ = ["costs", "flags", "layout", "text"]
