"""Has an installed vLLM decide workloads, in an interpreter of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from sim.conformance.cases import Case, ConformanceError
from sim.worker_process import WorkerError, WorkerProcess

_WORKER = Path(__file__).with_name("vllm_worker.py")


class Recorder:
    """A running interpreter in which vLLM decides. Use as a context manager.

    `python` is the path of a Python that can import vLLM; `scheduler` is `vllm` or a class
    `module:Class` that this Python can import. Raises `ConformanceError` if it cannot be started.
    """

    def __init__(self, python: Path, scheduler: str = "vllm") -> None:
        self.python = python
        try:
            self._worker = WorkerProcess(python, _WORKER, [scheduler])
            greeting = self._worker.answer()
        except WorkerError as error:
            raise ConformanceError(str(error)) from None
        if "error" in greeting:
            self.close()
            raise ConformanceError(f"{python}: {greeting['error']}")
        self.vllm_version = str(greeting["vllm"])

    def record(self, workload: Case) -> Case:
        """The workload with the steps that vLLM took. Raises `ConformanceError` if it failed."""
        sent = {key: value for key, value in workload.items() if key != "steps"}
        try:
            answer = self._worker.ask(sent)
        except WorkerError as error:
            raise ConformanceError(str(error)) from None
        if "error" in answer:
            raise ConformanceError(f"case {workload['name']}: vLLM: {answer['error']}")
        return answer

    def record_all(self, workloads: Iterable[Case]) -> Iterator[Case]:
        """Record one after the other."""
        return (self.record(workload) for workload in workloads)

    def close(self) -> None:
        """End the interpreter."""
        self._worker.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
