"""Measure op times and messages on this machine."""

from ppsim.cli._command import ask_command
from ppsim.questions.calibrate import CalibrateRequest, answer

command = ask_command(CalibrateRequest, answer)
