"""ListOps: nested operations on lists of digits, each worth a digit; values, expressions of one's own, and files.

Source: Nangia and Bowman, "ListOps: A Diagnostic Dataset for Latent Tree Learning" (2018); Tay et al., "Long Range
Arena" (2021), which asks for 500 to 2,000 tokens, a depth of at most 10 and at most 10 arguments. What writes
expressions here was written for this library.
"""

from narrows.data.listops.expressions import LISTOPS_TOKENS, evaluate_listops, listops_tokens
from narrows.data.listops.generate import ListOps, generate_listops
from narrows.data.listops.write import write_listops

__all__ = [
    "LISTOPS_TOKENS",
    "ListOps",
    "evaluate_listops",
    "generate_listops",
    "listops_tokens",
    "write_listops",
]
