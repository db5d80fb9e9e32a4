"""Signals as a terminal has them. A shell starts what it puts into the background with SIGINT ignored, nohup ignores SIGHUP,
and the programs that the tests start and interrupt would inherit it."""
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
