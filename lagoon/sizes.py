"""Numbers of bytes in words."""

UNITS = ("kB", "MB", "GB", "TB", "PB")


def in_words(num_bytes: float) -> str:
    """``812 bytes``, ``3.4 MB``, ``120 GB``: three digits at most, a kB being 1,000 bytes."""
    if num_bytes < 1000:
        return f"{num_bytes:.0f} byte{'' if num_bytes == 1 else 's'}"
    value = float(num_bytes)
    for unit in UNITS:
        value /= 1000
        if value < 999.5 or unit == UNITS[-1]:
            break
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
