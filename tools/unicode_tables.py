"""Writes the tables of src/text/template/unicode_tables.inc: python3 tools/unicode_tables.py > FILE."""
import unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def case_ranges(mapping):
    """[(first, last, stride, delta)] that cover {code: target}: one delta each, stride 1 or 2."""
    out = []
    for code in sorted(mapping):
        delta = mapping[code] - code
        if out:
            first, last, stride, previous = out[-1]
            step = code - last
            if previous == delta and step in (1, 2) and (first == last or step == stride):
                out[-1] = (first, code, step, delta)
                continue
        out.append((code, code, 1, delta))
    return out


def rows(items):
    """Prints initialisers, as many a line as fit."""
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            print(line)
            line = "   "
        line += f" {item},"
    print(line + "\n};")


def case_table(name, method, skip=lambda code, mapped: mapped == chr(code)):
    simple, special = {}, {}
    for code in CODES:
        mapped = getattr(chr(code), method)()
        if skip(code, mapped):
            continue
        if len(mapped) == 1:
            simple[code] = ord(mapped)
        else:
            special[code] = mapped
    print(f"constexpr CaseRange k{name}Ranges[] = {{")
    rows("{0x%04X, 0x%04X, %d, %d}" % r for r in case_ranges(simple))
    print(f"constexpr SpecialCase k{name}Special[] = {{")
    padded = ((code, [ord(c) for c in mapped] + [0] * (3 - len(mapped))) for code, mapped in special.items())
    rows("{0x%04X, {0x%04X, 0x%04X, 0x%04X}}" % (code, *chars) for code, chars in padded)


def code_table(name, wanted):
    out = []
    for code in CODES:
        if wanted(chr(code)):
            if out and out[-1][1] == code - 1:
                out[-1] = (out[-1][0], code)
            else:
                out.append((code, code))
    print(f"constexpr CodeRange k{name}[] = {{")
    rows("{0x%04X, 0x%04X}" % r for r in out)


print(f"// Unicode {unicodedata.unidata_version}, written by tools/unicode_tables.py; not for editing.")
case_table("Upper", "upper")
case_table("Lower", "lower")
# Title case is upper case but for these.
case_table("Title", "title", lambda code, mapped: mapped == chr(code).upper())
# Case folding is lower case but for these.
case_table("Fold", "casefold", lambda code, mapped: mapped == chr(code).lower())
# Digits and numbers outside of the general categories Nd and N.
code_table("OtherDigits", lambda c: c.isdigit() and not c.isdecimal())
code_table("OtherNumbers", lambda c: c.isnumeric() and not unicodedata.category(c).startswith("N"))
