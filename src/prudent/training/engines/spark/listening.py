"""Where a process of a distributed XGBoost listens: at one address, never at all of them.

XGBoost opens a port in every process for the others, and one by which it is told of errors, at all addresses
of the computer; there is no setting for that. Its library calls the system's `bind` through a table of its
own, as every shared library does: there the address is put in. Like the worker's module, this one is sent to
the executors whole.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_RELOCATIONS = 4  # SHT_RELA
_SECTIONS_AT, _SECTION_SIZES_AT = 0x28, 0x3A
_SECTION, _RELOCATION = "<IIQQQQIIQQ", "<QQq"
_SYMBOL_BYTES = 24
_ANYWHERE = bytes(4)


def listen_only_at(address: str) -> None:
    """From now on this process's XGBoost opens its ports at this address (IPv4) of the computer."""
    import xgboost

    library = str(Path(xgboost.build_info()["libxgboost"]).resolve())
    number = socket.inet_aton(address)
    system = ctypes.CDLL(None, use_errno=True).bind
    system.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]

    def bind(file: int, where: int, size: int) -> int:
        """As the system's, whose address of IPv4 has its number at byte 4."""
        asked = ctypes.string_at(where, size)
        if asked[:2] == struct.pack("=H", socket.AF_INET) and asked[4:8] == _ANYWHERE:
            asked = asked[:4] + number + asked[8:]
        return int(system(file, asked, size))

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, use_errno=True)
    ours = kind(bind)
    # The library calls it as long as the process lives, whoever else forgets it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(ours))
    slots = [_loaded_at(library) + place for place in _slots(Path(library).read_bytes(), b"bind")]
    if not slots or not all(map(_is_writable, slots)):
        raise RuntimeError("this XGBoost cannot be kept from listening at all addresses; install xgboost-cpu")
    for slot in slots:
        ctypes.c_void_p.from_address(slot).value = ctypes.cast(ours, ctypes.c_void_p).value


def local_address_to(address: str) -> str:
    """The own address on the way to another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((address, 9))
        return str(one.getsockname()[0])


def _slots(library: bytes, symbol: bytes) -> Iterator[int]:
    """Where a shared library (ELF, 64 bits) keeps the address of a function that it calls."""
    (start,) = struct.unpack_from("<Q", library, _SECTIONS_AT)
    size, count = struct.unpack_from("<HH", library, _SECTION_SIZES_AT)
    sections = [struct.unpack_from(_SECTION, library, start + number * size) for number in range(count)]
    for _, kind, _, _, begin, length, symbols, _, _, entry in sections:
        if kind != _RELOCATIONS:
            continue
        table, names = sections[symbols][4], sections[sections[symbols][6]][4]
        for place in range(begin, begin + length, entry):
            slot, info, _ = struct.unpack_from(_RELOCATION, library, place)
            (name,) = struct.unpack_from("<I", library, table + (info >> 32) * _SYMBOL_BYTES)
            if library.startswith(symbol + b"\0", names + name):
                yield slot


def _is_writable(address: int) -> bool:
    """Whether this memory may be written; a library can be linked so that its table may not."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights = line.split(maxsplit=2)[:2]
        begin, end = (int(number, 16) for number in place.split("-"))
        if begin <= address < end:
            return "w" in rights
    return False


def _loaded_at(library: str) -> int:
    """The address in memory at which a library begins."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, _, offset, _, _, *path = line.split(maxsplit=5)
        if path == [library] and int(offset, 16) == 0:
            return int(place.partition("-")[0], 16)
    raise RuntimeError(f"{library} is not loaded")
