"""Exit statuses of every verb."""

OK = 0
NO_TEXT = 1
SETUP = 2
FAILURE = 3
INTERRUPTED = 130
