"""Opening trace files: what can be wrong before the first row, and reading lines safely."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from traces.errors import TraceError, bad_place

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_BYTES = 65_536
MAX_LINE_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip"}


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, by which formats know their own."""

    path: str
    data: bytes

    @property
    def first_line(self) -> str:
        """First line that is not blank, without BOM and line end; undecodable bytes replaced."""
        text = self.data.removeprefix(_BOM).decode("utf-8", errors="replace")
        return next((line.strip() for line in text.splitlines() if line.strip()), "")


class InputFile:
    """A file open for reading, which hashes its bytes as they pass; a context manager.

    Raises:
        TraceError: the file can't be read, is empty or is no plain file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._raw = _HashingReader(_opened(self.path))
        self.stream = io.BufferedReader(self._raw, HEAD_BYTES)
        self.head = Head(self.path, self.stream.peek(HEAD_BYTES)[:HEAD_BYTES])
        if not self.head.data.removeprefix(_BOM).strip():
            self.close()
            raise TraceError(f"{self.path}: the file is empty; a trace has at least one request")

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless when closed."""
        self.stream.close()

    def sha256(self) -> str:
        """Digest of all bytes of the file, those not read yet included."""
        self._raw.drain()
        return self._raw.digest.hexdigest()

    def lines(self) -> Iterator[str]:
        """Lines as text, ends kept, a BOM at the very beginning removed.

        Raises:
            TraceError: bytes that are no text in UTF-8, or a line too long to be one.
        """
        check_is_text(self.head)
        number = 0
        while line := self.stream.readline(MAX_LINE_BYTES):
            number += 1
            yield self._decoded(line.removeprefix(_BOM) if number == 1 else line, number)

    def _decoded(self, line: bytes, number: int) -> str:
        if len(line) >= MAX_LINE_BYTES:
            what = f"the line is longer than {MAX_LINE_BYTES} bytes; a row must be shorter"
            raise bad_place(self.path, f"line {number}", what)
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            wrong = line[error.start : error.start + 1]
            what = f"byte {wrong!r} at position {error.start} is no UTF-8; save the file as UTF-8"
            raise bad_place(self.path, f"line {number}", what) from None


class _HashingReader(io.RawIOBase):
    """A raw file whose bytes are hashed, once each, as they are read from start to end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read(len(view))
        view[: len(data)] = data
        self.digest.update(data)
        return len(data)

    def drain(self) -> None:
        """Read, and so hash, what is left."""
        while data := self._file.read(1 << 20):
            self.digest.update(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _opened(path: str) -> IO[bytes]:
    if Path(path).is_dir():
        raise TraceError(f"{path}: this is a directory; name a trace file")
    try:
        return Path(path).open("rb", buffering=0)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; name an existing trace file") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: the file can't be read: {error}") from None


def check_is_text(head: Head) -> None:
    """Refuse compressed and binary files with a sentence that says what they look like.

    Raises:
        TraceError: the head holds bytes that no text trace has.
    """
    for magic, kind in _COMPRESSED.items():
        if head.data.startswith(magic):
            raise TraceError(f"{head.path}: the file is {kind}-compressed; unpack it first")
    if b"\0" in head.data:
        line = head.data[: head.data.index(b"\0")].count(b"\n") + 1
        what = "a zero byte: this is a binary or UTF-16 file; a text trace must be UTF-8"
        raise bad_place(head.path, f"line {line}", what)
