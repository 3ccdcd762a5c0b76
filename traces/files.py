"""Opening trace files: what can be wrong before the first row, and reading lines safely."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from traces.errors import TraceError, bad_place
from traces.not_traces import refuse_folder

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_BYTES = 65_536
MAX_LINE_BYTES = 64 * 1024 * 1024
_BLOCK_BYTES = 1 << 18
_BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UNREADABLE = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
MAX_DOCUMENT_BYTES = 2 * 1024**3


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

    A file that begins like gzip or zstandard is unpacked on the way; its own bytes are hashed.

    Raises:
        TraceError: the file can't be read, is empty or is no plain file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._raw = _HashingReader(_opened(self.path))
        self._packed = io.BufferedReader(self._raw, HEAD_BYTES)
        self.stream, self.packing = _unpacked(self._packed)
        try:
            with self._damage_refused():
                self.head = Head(self.path, self._beginning())
            self._refuse_emptiness()
        except TraceError:
            self.close()
            raise

    def _beginning(self) -> bytes:
        return bytes(self.stream.peek(HEAD_BYTES)[:HEAD_BYTES])

    def _refuse_emptiness(self) -> None:
        if not self.head.data.removeprefix(_BOM).strip():
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
        self._packed.close()

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
        for block in self._whole_lines():
            data = block.removeprefix(_BOM) if number == 0 else block
            if len(data) < MAX_LINE_BYTES and (text := _text_or_none(data)) is not None:
                some = list(io.StringIO(text, newline="\n"))
                yield from some
                number += len(some)
                continue
            for line in io.BytesIO(data):  # something is wrong: find the line
                number += 1
                yield self._decoded(line, number)

    def _whole_lines(self) -> Iterator[bytes]:
        """The bytes in blocks that end where a line ends."""
        rest = b""
        with self._damage_refused():
            while data := self.stream.read(max(_BLOCK_BYTES, len(rest))):
                end = data.rfind(b"\n") + 1
                if not end and len(rest) + len(data) < MAX_LINE_BYTES:
                    rest += data
                    continue
                yield rest + data[: end or None]
                rest = data[end:] if end else b""
            if rest:
                yield rest

    def document(self) -> str:
        """All of the file as one text, for formats that are one JSON document.

        Raises:
            TraceError: as `lines`, or for more than `MAX_DOCUMENT_BYTES`.
        """
        check_is_text(self.head)
        with self._damage_refused():
            data = self.stream.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            limit = MAX_DOCUMENT_BYTES
            raise TraceError(f"{self.path}: one JSON document may have at most {limit} bytes")
        return self._decoded(data.removeprefix(_BOM), 1, is_line=False)

    @contextmanager
    def _damage_refused(self) -> Iterator[None]:
        """Turn what unpacking a damaged file raises into a TraceError."""
        try:
            yield
        except (OSError, EOFError, zlib.error) as error:
            if self.packing is None:
                raise TraceError(f"{self.path}: the file can't be read: {error}") from None
            raise TraceError(
                f"{self.path}: no whole {self.packing} file ({error}); it may be cut off or damaged"
            ) from None

    def _decoded(self, line: bytes, number: int, *, is_line: bool = True) -> str:
        if is_line and len(line) >= MAX_LINE_BYTES:
            what = f"the line is longer than {MAX_LINE_BYTES} bytes; a row must be shorter"
            raise bad_place(self.path, f"line {number}", what)
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            number += line[: error.start].count(b"\n")
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


def _text_or_none(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _opened(path: str) -> IO[bytes]:
    if Path(path).is_dir():
        refuse_folder(Path(path))
    try:
        return Path(path).open("rb", buffering=0)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; name an existing trace file") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: the file can't be read: {error}") from None


def _unpacked(packed: Any) -> tuple[Any, str | None]:
    """The stream, or what it unpacks to and the name of its packing."""
    magic = packed.peek(4)[:4]
    if magic.startswith(_GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=packed), HEAD_BYTES), "gzip"
    if magic.startswith(_ZSTANDARD):
        return io.BufferedReader(_ZstandardReader(packed), HEAD_BYTES), "zstandard"
    return packed, None


class _ZstandardReader(io.RawIOBase):
    """A zstandard stream unpacked by Arrow, which has it built in."""

    def __init__(self, packed: Any) -> None:
        import pyarrow as pa  # noqa: PLC0415  (only those who use zstandard pay for it)

        self._packed = packed
        self._stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._stream.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        super().close()


def check_is_text(head: Head) -> None:
    """Refuse compressed and binary files with a sentence that says what they look like.

    Raises:
        TraceError: the head holds bytes that no text trace has.
    """
    for magic, kind in _UNREADABLE.items():
        if head.data.startswith(magic):
            raise TraceError(f"{head.path}: the file is {kind}-compressed; unpack it first")
    if b"\0" in head.data:
        line = head.data[: head.data.index(b"\0")].count(b"\n") + 1
        what = "a zero byte: this is a binary or UTF-16 file; a text trace must be UTF-8"
        raise bad_place(head.path, f"line {line}", what)
