"""How fast, how exact and how small: one file per question, one shared harness."""
