"""Another Python interpreter, asked in lines of JSON and answering each with one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_UNSET = ("PYTHONPATH", "PYTHONHOME")  # of this Python, not of the other one


class WorkerError(Exception):
    """The other Python can't be started, or has ended; the message says with what."""


class WorkerProcess:
    """A script that runs in the interpreter `python`, until `close`.

    `environment` is added to this process's own; what the script says on stderr goes to `log`.
    Raises `WorkerError` if it can't be started.
    """

    def __init__(
        self,
        python: Path,
        script: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        log: IO[str] | None = None,
    ) -> None:
        self.python = python
        own = {name: value for name, value in os.environ.items() if name not in _UNSET}
        try:
            self._process = subprocess.Popen(
                [str(python), str(script), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if log is None else log,
                text=True,
                encoding="utf-8",
                env={**own, **(environment or {})},
            )
        except OSError as error:
            raise WorkerError(f"{python}: cannot be started: {error}") from None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send a question and wait for its answer. Raises `WorkerError` if none comes."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
        except OSError:
            raise self._gone() from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Wait for a line. Raises `WorkerError` if none comes."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the script by the end of its input, and wait for that."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):  # it may have ended before
            process.stdin.close()
        process.wait()
        process.stdout.close()

    def _gone(self) -> WorkerError:
        code = self._process.wait()
        return WorkerError(
            f"{self.python} ended with code {code} before it answered; is it a Python with vLLM?"
        )
