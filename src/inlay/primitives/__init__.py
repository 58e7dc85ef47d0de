"""What each operation of the specification asks of its formats, and the operations themselves."""
