"""The best split of a model's layers over the stages of a schedule."""

from ppsim.cli._command import ask_command
from ppsim.questions.partition import PartitionRequest, answer

command = ask_command(PartitionRequest, answer)
