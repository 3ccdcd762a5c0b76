"""Where tasks run: this process, local processes (joblib), a Ray or a Dask cluster.

Each executor takes a picklable function and items and gives results as they come, in any order.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from sim.errors import SimulationError, StudyError
from sim.study.sweep_section import Executor

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_tasks(
    task: Callable[[Item], Result],
    items: list[Item],
    executor: Executor = "joblib",
    jobs: int = -1,
    address: str | None = None,
) -> Iterator[Result]:
    """Results of `task(item)`, as they come.

    Raises:
        StudyError: the executor's library is not installed, or its cluster can't be reached.
        SimulationError: a worker process ended by force.
    """
    if executor == "ray":
        return _on_ray(task, items, jobs, address)
    if executor == "dask":
        return _on_dask(task, items, jobs, address)
    if executor == "serial" or jobs == 1 or len(items) < 2:
        return map(task, items)
    return _on_joblib(task, items, jobs)


def num_workers(executor: Executor, jobs: int) -> int:
    """How many tasks run at once on this machine."""
    from joblib import cpu_count  # noqa: PLC0415 -- slow to import, needed only here

    return 1 if executor == "serial" else int(cpu_count()) if jobs == -1 else jobs


def _on_joblib(
    task: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Iterator[Result]:
    from joblib import Parallel, delayed  # noqa: PLC0415
    from joblib.externals.loky.process_executor import TerminatedWorkerError  # noqa: PLC0415

    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    try:
        yield from parallel(delayed(task)(item) for item in items)
    except TerminatedWorkerError as error:
        raise SimulationError(
            "a worker process was ended from outside (too little memory?); what was done is kept, "
            "run it again to go on, with fewer --jobs if memory was the reason"
        ) from error


def _on_ray(
    task: Callable[[Item], Result], items: list[Item], jobs: int, address: str | None
) -> Iterator[Result]:
    ray = _imported("ray", "ray")
    cores = None if jobs == -1 or address else jobs
    _connected("Ray", address, lambda: ray.init(address=address, num_cpus=cores, **_QUIET_RAY))
    try:
        remote = ray.remote(task)
        pending = [remote.remote(item) for item in items]
        while pending:
            done, pending = ray.wait(pending, num_returns=1)
            yield ray.get(done[0])
    finally:
        ray.shutdown()


_QUIET_RAY: dict[str, Any] = {
    "include_dashboard": False,
    "logging_level": "ERROR",
    "log_to_driver": False,
    "ignore_reinit_error": True,
}


def _on_dask(
    task: Callable[[Item], Result], items: list[Item], jobs: int, address: str | None
) -> Iterator[Result]:
    distributed = _imported("distributed", "dask")
    with contextlib.ExitStack() as stack:
        target: Any = address
        if address is None:
            workers = num_workers("dask", jobs)
            target = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None
                )
            )
        client = _connected("Dask", address, lambda: distributed.Client(target))
        stack.enter_context(client)
        futures = client.map(task, items, pure=False)
        for future in distributed.as_completed(futures):
            yield future.result()


def _imported(module: str, extra: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module(module)
    except ImportError as error:
        raise StudyError(
            f"executor: {extra} is not installed; pip install 'headway[{extra}]', "
            "or use executor: joblib"
        ) from error


def _connected(name: str, address: str | None, connect: Callable[[], Any]) -> Any:
    try:
        return connect()
    except (OSError, ConnectionError, TimeoutError, ValueError) as error:
        where = f"at {address}" if address else "on this machine"
        raise StudyError(f"executor: no {name} cluster {where} ({error})") from error
