"""Run schedules for real, compare with predictions."""

from ppsim.cli._command import ask_command
from ppsim.questions.validate import ValidateRequest, answer

command = ask_command(ValidateRequest, answer)
