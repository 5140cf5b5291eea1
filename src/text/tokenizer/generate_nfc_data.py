#!/usr/bin/env python3
"""Writes nfc_data.inc: what canonical composition needs from the Unicode Character Database.

The database is the one of Python's unicodedata module. Hangul syllables are left out: they are
arithmetic. Run it as `generate_nfc_data.py > nfc_data.inc`.
"""

import sys
import unicodedata

HANGUL = range(0xAC00, 0xD7A4)


def rows(values, per_line):
    for i in range(0, len(values), per_line):
        print("    " + " ".join(values[i : i + per_line]))


def main():
    classes = []  # [first, last, combining class]
    decompositions = []  # (code, first, second or 0, whether composition is excluded)
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        ccc = unicodedata.combining(character)
        if ccc:
            if classes and classes[-1][1] == code - 1 and classes[-1][2] == ccc:
                classes[-1][1] = code
            else:
                classes.append([code, code, ccc])
        mapping = unicodedata.decomposition(character)
        if mapping and not mapping.startswith("<") and code not in HANGUL:
            parts = [int(part, 16) for part in mapping.split()] + [0]
            excluded = unicodedata.normalize("NFC", character) != character
            decompositions.append((code, parts[0], parts[1], int(excluded)))
    print(f"// Unicode {unicodedata.unidata_version}; written by generate_nfc_data.py.")
    print("// clang-format off")
    print("constexpr CombiningRange kCombining[] = {  // first, last, canonical combining class")
    rows([f"{{0x{a:X}, 0x{b:X}, {c}}}," for a, b, c in classes], 4)
    print("};")
    print("// code, first and second character (0: none), composition excluded")
    print("constexpr Decomposition kDecompositions[] = {")
    rows([f"{{0x{a:X}, 0x{b:X}, 0x{c:X}, {d}}}," for a, b, c, d in decompositions], 3)
    print("};")
    print("// clang-format on")


main()
