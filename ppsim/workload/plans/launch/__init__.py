"""Launchers: one file for each software that plans have launch flags of. A file put into this
folder is a launcher; its name is what ``--flags`` takes.

A module here has ``LAUNCHER``, a :class:`ppsim.workload.plans.launcher.Launcher`.
"""
