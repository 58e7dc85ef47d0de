"""From a `Program` to results: memory, calls, runs.

plain            the program of a graph without a planner
arena            where each buffer lies in memory
checking         what is refused before a program is compiled
compiling        from steps to calls that only lack memory, and constants in the formats of kernels
guards           which buffers a run checks for special values
instance         a program in memory of its own, every call bound to addresses
adaptive_team    how many threads the next run uses
session          a program compiled and run, from any number of threads
"""
