"""The verbs of the command line, one file each: `add_arguments(parser)` and `run(args) -> int`.

Exit statuses: 0 done, 1 no text, 2 usage or set-up, 3 server failure, 130 interrupted.
"""
