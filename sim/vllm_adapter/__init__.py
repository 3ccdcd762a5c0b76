"""vLLM's own scheduler behind our interface, where vLLM is installed.

Nothing else in Headway imports vLLM, and this does so only when a scheduler is made.
"""

from sim.vllm_adapter.errors import VllmAdapterError
from sim.vllm_adapter.factory import VllmSchedulerFactory
from sim.vllm_adapter.version import installed_version

__all__ = ["VllmAdapterError", "VllmSchedulerFactory", "installed_version"]
