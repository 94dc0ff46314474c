"""Root exception and its leaves. The command line turns them into one message and an exit code."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 75  # EX_TEMPFAIL: schedulers requeue on it


class DepthbenchError(Exception):
    """Something went wrong; the message says what happened, the value, and what to do."""

    exit_code = EXIT_FAILED


class InputError(DepthbenchError):
    """What the user gave cannot work. Raised before anything is written."""

    exit_code = EXIT_USAGE


class DataError(DepthbenchError):
    """A corpus or wheel is missing, damaged, or not what its hash says."""


class CheckpointError(DepthbenchError):
    """A checkpoint cannot be read or written."""
