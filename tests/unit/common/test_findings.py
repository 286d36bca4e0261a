"""How rules that were looked at are told."""

import pytest

from common.errors import InputError
from common.findings import fails, passes, show


def test_a_finding_that_nobody_reads_on_a_terminal_is_one_line(capsys):
    words = f"/{'folder/' * 60}ledger.sqlite: sound; extended attributes are kept"
    with pytest.raises(InputError, match=r"some checks failed \(records\)"):
        show([passes("ledger", words), fails("records", "of another table " * 30)])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if words in line and " pass " in line]
    assert [line for line in lines if line.count("of another table") == 30 and " FAILS " in line]
