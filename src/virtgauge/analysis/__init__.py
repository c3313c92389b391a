"""Pure statistics: numbers in, estimates out.  Knows nothing of guests, files or plans."""
