"""Prints the table of the comparison with oneDNN at the end of a run that compared many cases."""

import pytest

from tests.parity import tally

TALLIES = pytest.StashKey[list[tally.Tally]]()


@pytest.fixture
def tallies(request: pytest.FixtureRequest) -> list[tally.Tally]:
    """Return the list of counts for the table, to which the tests append."""
    return request.config.stash.setdefault(TALLIES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    found = config.stash.get(TALLIES, [])
    if found:
        from tests.oracles import onednn

        terminalreporter.section("compared with oneDNN {}.{}".format(*onednn.version()))
        for line in tally.table(found):
            terminalreporter.write_line(line)
