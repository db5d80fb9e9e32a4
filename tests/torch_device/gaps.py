"""Known gaps of the op_db sweep: op -> why. A listed op that passes all its cases is an error, so the list stays true."""

GAPS = {}
