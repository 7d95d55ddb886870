"""Time schedules under noise and slow hardware."""

from ppsim.cli._command import ask_command
from ppsim.questions.jitter import JitterRequest, answer

command = ask_command(JitterRequest, answer)
