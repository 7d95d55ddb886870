"""What training costs: time per stage and step, memory per device."""

__all__ = ["calibrated", "costs", "measured", "memory", "serving", "volumes"]
