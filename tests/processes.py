"""Child processes, as tests start them."""

import signal


def accept_interrupts():
    """Let a child process receive SIGINT: pass it to `subprocess.Popen` as ``preexec_fn``.

    A shell starts its background jobs with SIGINT ignored, and children inherit that. Without
    this, tests that interrupt a child would fail in a background job.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
