import pytest

from common.errors import InputError
from learner.network.connections import check_token_route, load_token


def test_a_token_is_read_from_its_file(tmp_path):
    (tmp_path / "bank.token").write_text("copriv_s3cret\n")
    assert load_token("file:bank.token", base=tmp_path, setting="t") == "copriv_s3cret"


@pytest.mark.parametrize("content", ["", "copriv_two\nlines", "copriv_\N{SNOWMAN}"])
def test_a_token_that_is_none_is_refused_without_being_shown(tmp_path, content):
    (tmp_path / "bank.token").write_text(content)
    with pytest.raises(InputError, match=r"network\.token = 'file:bank\.token'") as refused:
        load_token("file:bank.token", base=tmp_path, setting="network.token")
    assert not content or content not in str(refused.value)


@pytest.mark.parametrize("kind", ["file", "env"])
@pytest.mark.parametrize(
    "secret", ["hunter2", "AKIAIOSFODNN7EXAMPLE", "postgresql://u:p@h/d", "x copriv_y", "Copriv_z"]
)
def test_a_secret_of_another_program_is_not_sent_whatever_settings_name(tmp_path, kind, secret):
    (tmp_path / "key").write_text(secret)
    with pytest.raises(InputError, match="is not sent; ask the owner") as refused:
        load_token(f"{kind}:key", base=tmp_path, setting="token", environment={"key": secret})
    assert secret not in str(refused.value)


@pytest.mark.parametrize("where", ["file:absent", "env:COPRIV_ABSENT"])
def test_a_token_that_is_not_there_is_named(tmp_path, where):
    with pytest.raises(InputError, match=where):
        load_token(where, base=tmp_path, setting="network.token")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1"])
def test_a_token_may_go_to_this_machine_in_plain_text(address):
    check_token_route(address, encrypted=False, setting="t")


@pytest.mark.parametrize("address", ["10.0.0.2:1", "[fe80::1]:1", "owner.example:1"])
def test_a_token_goes_to_another_machine_only_encrypted(address):
    check_token_route(address, encrypted=True, setting="t")
    with pytest.raises(InputError, match="use TLS"):
        check_token_route(address, encrypted=False, setting="t")
