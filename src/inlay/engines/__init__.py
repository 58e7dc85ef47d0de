"""What computes primitives: each engine answers `Operation`s with formats and with code that runs."""
