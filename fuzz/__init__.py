"""Random problems, solved by the library and checked in long double. See `fuzz.__main__`."""
