"""Parts: one file for each aspect of a schedule's costs. A file put into this folder is a part.

A module here has one class derived from :class:`ppsim.prices.part.Part`: its fields are its
options, and its methods are the changes that they make.
"""

__all__ = ["layout", "modelled", "profile", "steps"]
