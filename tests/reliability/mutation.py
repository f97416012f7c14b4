"""Seeded damage to a file: bytes, words of a text, entries of JSON, members of an archive."""

import gzip
import io
import json
import struct
import zipfile

WORDS = (
    "", "0", "-1", "1", "nan", "NaN", "inf", "-inf", "1e309", "1e-320", "-0.0", "1e308", "null", "true", "None",
    "9" * 5000, "10" * 15, "²", "٣", "\x00", "\ufeff", "x" * 200_000, '"', "'", "\\", "{", "}", "[", "]", "[" * 5000,
    "{" * 3000, '{"a":' * 3000, ",", ";", "\t", "\n", "\r", "%", "@data", "@attribute", "<script>alert(1)</script>",
    "../../etc/passwd", "/dev/zero", "=1+1", "é", "日本", "a\u0301", "2026-13-45", "0x10", "1_000", "--", "#", "\x1a",
)  # fmt: skip
VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, 1e308, 1e-320, "", "x", "²", "9" * 5000,
    "x" * 100_000, [], {}, [[]], [None], ["x"], {"x": 1}, [1, 2, 3], "\x00", "../x", "<script>", float("nan"),
    float("inf"), [[[[[[1]]]]]], "\ud800", "9999-12-31", "0001-01-01", 10**4000,
)  # fmt: skip
NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    127,
    128,
    255,
    256,
    32767,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
)


def mutate(rng, name, content):
    """Another content for a file of this name; by its structure or byte by byte."""
    by_structure = _of_structure(name, content)
    if by_structure is not None and rng.random() < 0.6:
        try:
            return by_structure(rng, content)
        except (ValueError, zipfile.BadZipFile, EOFError, OSError, RecursionError, NotImplementedError):
            pass
    return mutate_bytes(rng, content)


def _of_structure(name, content):
    if name.endswith(".gz"):
        return lambda rng, whole: gzip.compress(mutate(rng, name[:-3], gzip.decompress(whole)), 1)
    if content[:2] == b"PK":
        return mutate_zip
    if content[:1] in b"{[" and name.endswith(("json", "jsonl", "toml", "draw")):
        return mutate_json if rng_is_json(content) else mutate_lines_of_json
    if content[:6] == b"\x93NUMPY":
        return mutate_npy
    if content.startswith(b"onepos checkpoint"):
        return mutate_checkpoint
    return mutate_text if _is_text(content) else None


def rng_is_json(content):
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _is_text(content):
    try:
        return "\x00" not in content.decode()
    except UnicodeDecodeError:
        return False


def mutate_bytes(rng, content):
    """One to four small changes anywhere."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if not data:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
        place = rng.randrange(len(data))
        if rng.random() < 0.3:  # headers and footers decide most
            place = (
                min(len(data) - 1, rng.randrange(64))
                if rng.random() < 0.5
                else max(0, len(data) - 1 - rng.randrange(256))
            )
        _CHANGES[rng.randrange(len(_CHANGES))](rng, data, place)
    return bytes(data[: 4 * len(content) + 400_000])


def _flip(rng, data, place):
    data[place] ^= 1 << rng.randrange(8)


def _set(rng, data, place):
    data[place] = rng.choice((0, 255, 127, 128, rng.randrange(256)))


def _cut(rng, data, place):
    del data[place:]


def _drop(rng, data, place):
    del data[place : place + rng.choice((1, 2, 4, 8, 64, 1000))]


def _insert(rng, data, place):
    data[place:place] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 4, 8, 100))))


def _double(rng, data, place):
    data[place:place] = data[place : place + rng.choice((1, 8, 64, 1000))] * rng.choice((1, 2, 50))


def _number(rng, data, place):
    width, value = rng.choice((1, 2, 4, 8)), rng.choice(NUMBERS)
    code = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
    data[place : place + width] = struct.pack(rng.choice("<>") + code, value % 2 ** (8 * width))


def _zero(rng, data, place):
    data[place : place + rng.choice((4, 16, 256))] = bytes(rng.choice((4, 16, 256)))


_CHANGES = (_flip, _flip, _set, _set, _cut, _drop, _insert, _double, _number, _number, _zero)


def mutate_text(rng, content):
    """Change a word or a line."""
    text = content.decode()
    for _ in range(rng.choice((1, 1, 2))):
        lines = text.split("\n")
        place = rng.randrange(min(len(lines), rng.choice((1, 3, len(lines)))))
        action = rng.randrange(7)
        if action == 0:
            del lines[place]
        elif action == 1:
            lines.insert(place, lines[rng.randrange(len(lines))])
        elif action == 2:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        else:
            lines[place] = _change_word(rng, lines[place])
        text = "\n".join(lines)
    return text.encode("utf-8", "surrogatepass")


def _change_word(rng, line):
    mark = rng.choice([each for each in ", ;\t=:'\"{}[]<>/" if each in line] or [" "])
    words = line.split(mark)
    place = rng.randrange(len(words))
    words[place] = rng.choice((rng.choice(WORDS), rng.choice(WORDS), words[place] + rng.choice(WORDS), words[0]))
    return mark.join(words)


def mutate_json(rng, content):
    """Change, drop or add an entry."""
    tree = json.loads(content)
    places = list(_places(tree))
    for _ in range(rng.choice((1, 1, 2))):
        if not places:
            break
        owner, key = places[rng.randrange(len(places))]
        action = rng.randrange(5)
        try:
            if action == 0:
                del owner[key]
            elif action == 1 and isinstance(owner, dict):
                owner[rng.choice(("x", "", "²", "format"))] = rng.choice(VALUES)
            else:
                owner[key] = rng.choice(VALUES)
        except (KeyError, IndexError):
            continue
    text = json.dumps(tree)
    if rng.random() < 0.03:
        text = text.replace("{", "{" + '"deep":' + "[" * 3000 + "]" * 3000 + ",", 1)
    return text.encode()


def _places(tree):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(value)


def mutate_lines_of_json(rng, content):
    lines = content.decode().split("\n")
    place = rng.randrange(len(lines))
    if lines[place] and rng.random() < 0.7:
        lines[place] = mutate_json(rng, lines[place].encode()).decode()
    else:
        lines[place] = rng.choice((*WORDS, *lines))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def mutate_zip(rng, content):
    """Change, drop or rename a member; the archive stays whole."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice(list(members))
    action = rng.randrange(8)
    if action == 0:
        del members[name]
    elif action == 1:
        members[rng.choice(("../out", "x.npy", *members))] = members.pop(name)
    elif action == 2:
        members[name] = members[rng.choice(list(members))]
    else:
        members[name] = mutate(rng, name, members[name])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for each, data in members.items():
            archive.writestr(each, data)
    return out.getvalue()


_TYPES = (
    "<f8",
    "<f4",
    "<i8",
    "|u1",
    "|b1",
    "<U3",
    "|O",
    "<c16",
    "<M8[s]",
    "|V8",
    ">f8",
    "<i2",
    "|S4",
    "<f2",
    "[('a','<f8')]",
)
_SHAPES = (
    "(0,)",
    "()",
    "(1,)",
    "(3, 0)",
    "(9, 3)",
    "(3, 9)",
    "(27,)",
    "(-1, 3)",
    "(10**9,)",
    "(99999999999, 9)",
    "(1, 1, 1)",
    "(2**62,2**62)",
)


def mutate_npy(rng, content):
    """Another type, shape or order in the header, or other numbers."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, content)
    length = struct.unpack("<H", content[8:10])[0]
    header, data = content[10 : 10 + length].decode("latin-1"), content[10 + length :]
    try:
        facts = dict(eval(header, {"__builtins__": {}}))  # a header that this test wrote itself
    except (SyntaxError, ValueError, NameError, TypeError):
        return mutate_bytes(rng, content)
    parts = {"descr": repr(facts["descr"]), "fortran_order": str(facts["fortran_order"]), "shape": repr(facts["shape"])}
    what = rng.choice(("descr", "shape", "fortran_order"))
    parts[what] = {"descr": lambda: repr(rng.choice(_TYPES)), "shape": lambda: rng.choice(_SHAPES)}.get(
        what, lambda: rng.choice(("True", "False", "2"))
    )()
    text = "{" + ", ".join(f"'{key}': {value}" for key, value in parts.items()) + ", }"
    text = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"
    if rng.random() < 0.3:
        data = data * rng.choice((2, 10)) if rng.random() < 0.5 else data[: len(data) // 2]
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin-1") + data


def mutate_checkpoint(rng, content):
    """A change behind the checksum, which is made anew."""
    import hashlib

    first, _, rest = content.partition(b"\n")
    rest = mutate_zip(rng, rest) if rng.random() < 0.5 else mutate_bytes(rng, rest)
    return b" ".join([*first.split(b" ")[:-1], hashlib.sha256(rest).hexdigest().encode()]) + b"\n" + rest
