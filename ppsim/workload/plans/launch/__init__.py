"""Launchers: one file for each software whose launch flags ppsim can write.

The name of a file in this folder is a value of ``--flags``. The module defines ``LAUNCHER``, a
:class:`ppsim.workload.plans.launcher.Launcher`.
"""
