"""A real vLLM engine in an interpreter of its own, asked to serve workloads in real time."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from calibration import ModelSpec
from sim.errors import StudyError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.validate.engine_log import EngineRun, parse_run
from sim.worker_process import WorkerError, WorkerProcess

_WORKER = Path(__file__).parent / "vllm_worker" / "serve.py"
_KV_MARGIN_GIB = 1

Workload = Sequence[tuple[float, int, int]]
"""(arrival in seconds from the start, prompt tokens, output tokens) of each request."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the engine is asked for; the rest is vLLM's own choice."""

    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    max_model_len: int = 1024
    block_size: int = 32
    num_gpu_blocks_override: int = 1025


class VllmServer:
    """A running engine with random weights in a model's shape. Use as a context manager.

    `python` is the path of a Python that can import vLLM. One core computes (the last that this
    process may use), the client of the engine uses the others. What vLLM says goes to `log`.

    Raises:
        StudyError: it can't be started, or ended before it answered; with the last of its log.
    """

    def __init__(
        self, python: Path, model: ModelSpec, settings: EngineSettings, log: Path | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headway-vllm-")
        folder = Path(self._folder.name)
        self.python, self._log = python, log or folder / "engine.log"
        (folder / "config.json").write_text(json.dumps(_llama_config(model)), encoding="utf-8")
        self._worker = self._start(model, settings)
        options = {
            "folder": self._folder.name,
            "vocab_size": model.vocab_size,
            "engine": asdict(settings),
        }
        built = self._ask(options)
        self.version, self.torch = str(built["vllm"]), str(built["torch"])
        self.num_cores = int(built["cores"])
        self.scheduler = SchedulerConfig(**built["scheduler"])
        self.cache = CacheConfig(**built["cache"])

    def serve(self, requests: Workload) -> EngineRun:
        """Serve requests at their times, and wait for the last token."""
        return parse_run(self._ask({"requests": list(requests)}))

    def close(self) -> None:
        """End the engine."""
        self._worker.close()
        self._folder.cleanup()

    def __enter__(self) -> VllmServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, model: ModelSpec, settings: EngineSettings) -> WorkerProcess:
        bytes_per_token = 2 * model.num_hidden_layers * model.kv_size * model.dtype_bytes
        kv_bytes = settings.num_gpu_blocks_override * settings.block_size * bytes_per_token
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": str(_KV_MARGIN_GIB + int(kv_bytes) // 2**30),
            "OMP_NUM_THREADS": "1",
        }
        try:
            with self._log.open("w", encoding="utf-8") as log:
                return WorkerProcess(self.python, _WORKER, environment=environment, log=log)
        except OSError as error:
            raise StudyError(f"{self._log}: cannot be written: {error}") from None
        except WorkerError as error:
            raise StudyError(str(error)) from None

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._worker.ask(question)
        except WorkerError as error:
            said = self._last_words()
            self.close()
            raise StudyError(f"{error}{said}") from None
        if "error" in answer:
            self.close()
            raise StudyError(f"{self.python}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f": {said[-1]}" if said else ""


def _llama_config(model: ModelSpec) -> dict[str, Any]:
    """The model as Hugging Face's `config.json` describes it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_key_value_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": model.dtype,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
