"""Show what a run or file is: devices, schedule, medians."""

from ppsim.cli._command import ask_command
from ppsim.questions.read import ReadRequest, answer

command = ask_command(ReadRequest, answer)
