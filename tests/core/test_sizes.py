import pytest

from lagoon.sizes import in_words


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (9949, "9.9 kB"),
        (9950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (2.4e9, "2.4 GB"),
        (3e18, "3000 PB"),
    ],
)
def test_bytes_are_said_in_three_digits(num_bytes: float, words: str) -> None:
    assert in_words(num_bytes) == words
