"""A Parquet file whose footer lies of its rows is refused: a place would mean other rows.

So is one that is encrypted. Columns of views, as some programs write them, are read as plain ones.
"""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from common.errors import InputError
from common.parquet_files import ParquetFile
from common.tables import TableSource, read_table

ROWS, GROUPS = 1000, 10


def footer_number(value):
    """A whole number of 64 bits as a footer has it: its type, and then seven bits in a byte."""
    value, written = 2 * value, b"\x16"
    while value > 127:
        written, value = written + bytes([value & 127 | 128]), value >> 7
    return written + bytes([value])


@pytest.fixture
def lying(tmp_path):
    """Makes a file that says another number of rows of itself, or of each group of them."""

    def make(*, rows=ROWS, rows_of_group=ROWS // GROUPS):
        path = tmp_path / "lies.parquet"
        numbers = pa.table({"x": [float(k) for k in range(ROWS)]})
        pq.write_table(numbers, path, row_group_size=ROWS // GROUPS, use_dictionary=False)
        content = path.read_bytes()
        start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        footer = content[start:-8].replace(footer_number(ROWS), footer_number(rows), 1)
        groups = footer_number(ROWS // GROUPS), footer_number(rows_of_group)
        footer = footer.replace(*groups)
        path.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        return path

    return make


@pytest.mark.parametrize("rows", [":-50", "-50:", "250:", None])
@pytest.mark.parametrize("said", [10, 999, 1001, 2**40])
def test_a_file_that_counts_its_rows_wrongly_is_refused(lying, said, rows):
    """Before, the last 50 rows, which were to be public, could be all that there were."""
    path = lying(rows=said)
    with pytest.raises(InputError) as refused:
        read_table(TableSource(path=path, rows=rows), base=Path())
    words = (
        f"{path}: says that it has {said:,} rows, but holds 1,000; it is damaged, write it again"
    )
    assert str(refused.value) == words


@pytest.mark.parametrize("where", [{}, {"x": {"min": 500}}])
def test_a_group_that_counts_its_rows_wrongly_is_refused(lying, where):
    """As many as are read are compared, since the places of those behind them follow from it."""
    path = lying(rows=1010, rows_of_group=101)
    source = TableSource.model_validate({"path": path, "where": where})
    with pytest.raises(InputError, match=r"it is damaged, write it again$"):
        read_table(source, base=Path())


@pytest.mark.parametrize("where", [{"x": 7}, {"x": {"min": 500}}])
def test_a_footer_at_which_arrow_would_end_the_process_is_not_asked(where, tmp_path):
    """Its rows are all there: that only what it says of its columns is damaged costs none."""
    path = tmp_path / "damaged.parquet"
    numbers = pa.table({"x": [float(k) for k in range(ROWS)]})
    pq.write_table(numbers, path, row_group_size=ROWS // GROUPS, use_dictionary=False)
    source = TableSource.model_validate({"path": path, "where": where})
    expected = read_table(source, base=Path())
    # In each group the column says again that its numbers are real, and now that they are whole.
    content, real, whole = path.read_bytes(), b"\x1c\x15\x0a\x19", b"\x1c\x15\x04\x19"
    assert content.count(real) == GROUPS
    path.write_bytes(content.replace(real, whole))
    pd.testing.assert_frame_equal(read_table(source, base=Path()), expected)


def test_a_file_that_counts_its_rows_rightly_is_read(lying):
    assert len(read_table(TableSource(path=lying(), rows="-50:"), base=Path())) == 50


@pytest.mark.parametrize("chosen", [{}, {"rows": "::2"}, {"where": {"x": [1, 2, 5]}}])
@pytest.mark.parametrize(
    ("view", "plain"), [(pa.string_view(), pa.string()), (pa.binary_view(), pa.binary())]
)
def test_views_of_texts_and_bytes_are_read_as_these(view, plain, chosen, tmp_path):
    """Arrow chooses no rows of views: with `rows` or `where` such a table was refused."""
    read = {}
    for kind in (view, plain):
        path = tmp_path / f"{kind}.parquet"
        cells = pa.array(["a", None, "b", "b", "é", "a longer text than a view holds"], kind)
        pq.write_table(pa.table({"x": range(6), "z": cells}), path)
        source = TableSource.model_validate({"path": path} | chosen)
        read[kind] = read_table(source, base=Path())
    assert len(read[view]) == (3 if chosen else 6)
    pd.testing.assert_frame_equal(read[view], read[plain])


class Keys(pe.KmsClient):
    """Keeps no key from anybody."""

    def wrap_key(self, key, _):
        return key.hex()

    def unwrap_key(self, wrapped, _):
        return bytes.fromhex(wrapped)


@pytest.mark.parametrize("encrypted", [["x", "y"], ["x"]])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_file_is_said_to_be_one(encrypted, plaintext_footer, tmp_path):
    """With `where`, the metadata of its columns ended the process."""
    asked = pe.EncryptionConfiguration(
        footer_key="all", column_keys={"some": encrypted}, plaintext_footer=plaintext_footer
    )
    factory = pe.CryptoFactory(lambda _: Keys())
    made = factory.file_encryption_properties(pe.KmsConnectionConfig(), asked)
    path = tmp_path / "secret.parquet"
    table = pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    pq.write_table(table, path, encryption_properties=made)
    source = TableSource.model_validate({"path": path, "where": {"x": 1}})
    # An owner asks first how large it is.
    for ask in (lambda: read_table(source, base=Path()), lambda: ParquetFile(path).num_bytes):
        with pytest.raises(InputError, match=r"secret\.parquet: is encrypted, .* that is not$"):
            ask()
