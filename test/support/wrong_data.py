"""What programs print that compare what they receive with what was sent."""
import re

NOT_WHAT_WAS_SENT = "what was received is not what was sent"  # of the tests themselves
TOLD = re.compile("|".join((
    NOT_WHAT_WAS_SENT,
    "data mismatch",  # rping, uroce ping
    "invalid data (in page|received)",  # ibv_*_pingpong, which ends well all the same; uroce pingpong
    "data verification failed",  # rstream, riostream
    r"Error at iteration=\d+ size=",  # fi_pingpong
    "wrong messages: [1-9]")))  # the MPI program of stacks_test.py


def is_told(output):
    """Whether a program has found wrong data. No busy machine explains that."""
    return TOLD.search(output) is not None
