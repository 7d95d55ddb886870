"""Explain one schedule in a screenful."""

from ppsim.cli._command import ask_command
from ppsim.questions.describe import DescribeRequest, answer

command = ask_command(DescribeRequest, answer)
