"""Say where the time of two runs differs: by cause, device and op."""

from ppsim.cli._command import ask_command
from ppsim.questions.diff import DiffRequest, answer

command = ask_command(DiffRequest, answer)
