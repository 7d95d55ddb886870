"""Plan how to train a model on a cluster."""

from ppsim.cli._command import ask_command
from ppsim.questions.plan import PlanRequest, answer

command = ask_command(PlanRequest, answer)
