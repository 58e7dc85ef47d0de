"""From a `Program` to results: a memory plan that is checked, calls that are compiled, and sessions that run them."""
