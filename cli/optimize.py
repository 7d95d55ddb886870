"""Find the best schedule for given costs and memory, with proof."""

from ppsim.cli._command import ask_command
from ppsim.questions.optimize import OptimizeRequest, answer

command = ask_command(OptimizeRequest, answer)
