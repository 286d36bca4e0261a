"""What a sentence says of a certificate that is not for this host."""

from common.diagnosis import _hosts


def test_an_address_that_is_none_is_told_and_ends_nothing():
    """Python calls so an address of three bytes, which a CA may sign by mistake."""
    shown = {"subjectAltName": (("IP Address", "<invalid>"), ("DNS", "bank.example"))}
    assert _hosts(shown) == "<invalid>, bank.example"
    assert _hosts({"subjectAltName": (("IP Address", "0:0:0:0:0:0:0:1\n"),)}) == "::1"
    assert _hosts({}) == "nobody"
