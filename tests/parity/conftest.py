"""Prints what was compared with the library, at the end of a run that compared many cases."""

import pytest

from tests.parity import tally

TALLIES = pytest.StashKey[list[tally.Tally]]()


@pytest.fixture
def tallies(request: pytest.FixtureRequest) -> list[tally.Tally]:
    """Where the tests leave their counts for the table."""
    return request.config.stash.setdefault(TALLIES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    found = config.stash.get(TALLIES, [])
    if found:
        from tests.oracles import onednn

        terminalreporter.section("compared with oneDNN {}.{}".format(*onednn.version()))
        for line in tally.table(found):
            terminalreporter.write_line(line)
