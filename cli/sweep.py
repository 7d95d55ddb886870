"""Schedules over a grid of shapes, best marked."""

from ppsim.cli._command import ask_command
from ppsim.questions.sweep import SweepRequest, answer

command = ask_command(SweepRequest, answer)
