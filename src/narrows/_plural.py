"""A number beside what it counts, in the right number."""

__all__ = ["count"]


def count(number: int, noun: str) -> str:
    """A count as a person writes it; `noun` is the singular of a noun whose plural ends in s.

    Example:
        >>> count(1, "document"), count(2000, "document"), count(0, "passage")
        ('1 document', '2,000 documents', '0 passages')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
