"""Step chains: plans in order, run for every step by one call into the core."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import starmap

import torch

from sdm_runtime import _core
from sdm_runtime.errors import CudaError, PlanError
from sdm_runtime.files.writing import write_file
from sdm_runtime.format.plan_files import read_plan_file, starts_with
from sdm_runtime.format.plan_format import PLAN_MAGIC
from sdm_runtime.machine.forked import check_threads
from sdm_runtime.plan.blas_step import blas_handle
from sdm_runtime.plan.graphed_chain import ChainReplays
from sdm_runtime.plan.plan import Plan, moved_operand
from sdm_runtime.plan.unread import unread_names
from sdm_runtime.tensor.arena import Arena
from sdm_runtime.tensor.refs import stream_address
from sdm_runtime.tensor.written import keep_until_run, raise_versions


class StepChain:
    """An ordered list of plans and a step count; runs ``ti = steps-1 .. 0``, or the steps upwards.

    Args:
        plans: Bound plans of one backend and device (or, from :meth:`load`, unbound ones).
        steps: Number of steps, at most what every plan covers.
        order: ``"descending"`` (the last step runs first) or ``"ascending"``.

    Raises:
        TypeError: ``plans`` is not a sequence of Plans, or ``steps`` not an integer.
        ValueError: ``steps`` is less than 1, ``plans`` is empty, or ``order`` is another word.
        PlanError: The plans do not fit each other or ``steps``.
    """

    _refs: _core.Operands  # to a template's operands, as bound
    _arenas: Sequence[Arena] = ()  # with the operands that are not tensors yet

    def __init__(self, plans: Sequence[Plan], steps: int, *, order: str = "descending"):
        """See the class."""
        if not isinstance(plans, Iterable):
            given = type(plans).__name__
            raise TypeError(f"[chain] plans: expected a sequence of plans, got {given}")
        self._plans = tuple(plans)
        for index, plan in enumerate(self._plans):
            if not isinstance(plan, Plan):
                raise TypeError(
                    f"[chain] plans[{index}]: expected a Plan, got {type(plan).__name__}"
                )
        if not self._plans:
            raise ValueError("[chain] plans: expected at least one plan, got none")
        self._steps = operator.index(steps)
        if not 1 <= self._steps < 1 << 31:
            raise ValueError(f"[chain] steps: expected 1..2^31-1, got {steps}")
        if order not in ("descending", "ascending"):
            raise ValueError(f"[chain] order: expected 'descending' or 'ascending', got {order!r}")
        self._ascending = order == "ascending"
        self._core: _core.Chain | None = None
        self._operands: Mapping[str, torch.Tensor] | None = None  # else each plan has its own
        _core.check_together([plan._core for plan in self._plans], self._steps)
        if all(plan.bound for plan in self._plans):
            bound = [plan.require_bound() for plan in self._plans]
            self._core = _core.Chain(bound, self._steps, self._ascending)

    @classmethod
    def _of_core(
        cls,
        core: _core.Chain,
        operands: dict[str, torch.Tensor],
        refs: _core.Operands,
        arenas: Sequence[Arena],
    ) -> StepChain:
        """A chain that a template has bound to operands (those of all plans), read as refs."""
        chain = cls.__new__(cls)
        chain._core, chain._steps, chain._ascending = core, core.steps(), core.ascending()
        chain._operands, chain._refs, chain._arenas = operands, refs, arenas
        return chain

    @cached_property
    def _plans(self) -> tuple[Plan, ...]:
        """Of a chain from a template, whose plans are wrapped when somebody asks for them."""
        assert self._operands is not None
        self._require_unmoved()
        operands = dict(self._operands)
        for arena in self._arenas:
            operands |= arena.operands()
        return tuple(Plan._of_bound(b, operands) for b in self._require_bound().bound_plans())

    @cached_property
    def _written(self) -> tuple[torch.Tensor, ...]:
        """What runs write; nothing of a template's chain: who binds one keeps the versions."""
        if self._operands is not None:
            return ()
        written = {id(tensor): tensor for plan in self._plans for tensor in plan._written()}
        return tuple(written.values())

    def _all_operands(self) -> Iterator[torch.Tensor]:
        if self._operands is None:
            for plan in self._plans:
                yield from plan.tensors.values()
        else:
            yield from self._operands.values()
            yield from (arena.memory for arena in self._arenas)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans, in the order of one step."""
        return self._plans

    @property
    def steps(self) -> int:
        """The number of steps of a run."""
        return self._steps

    @property
    def order(self) -> str:
        """Which step runs first: ``"descending"``, the last one, or ``"ascending"``."""
        return "ascending" if self._ascending else "descending"

    @property
    def backend(self) -> str:
        """``"host"`` or ``"cuda"``."""
        if self._core is None:
            return self._plans[0].backend
        return "host" if self._core.on_host() else "cuda"

    @property
    def launches(self) -> int:
        """Launches of one run; an empty grid is not launched."""
        return int(self._require_bound().launches())

    def _require_bound(self) -> _core.Chain:
        if self._core is None:
            for plan in self._plans:
                plan.require_bound()
        assert self._core is not None  # else a plan is not bound, which was raised
        return self._core

    def _require_unmoved(self) -> None:
        """As Plan.require_unmoved, for every operand."""
        if self._operands is None:
            for plan in self._plans:
                plan.require_unmoved()
            return
        moved = self._refs.moved(self._operands, [arena.memory for arena in self._arenas])
        if moved is not None:
            raise moved_operand("chain", moved)

    def run(
        self,
        stream: torch.cuda.Stream | int | None = None,
        *,
        windowed: bool | None = None,
        ran: list[None] | None = None,
    ) -> None:
        """Run every step in the chain's order. One call into the core; the GIL is released.

        Single launches cost the host 2.4 to 3.6 us each, which is more than short kernels run. A
        window is a small CUDA graph of a few steps, made once for all chains of one recording,
        whose nodes get the next steps' parameters before each launch: the same kernels in the same
        order for a seventh of the host's time, and the same bits.

        Autograd is told what a run writes: a graph that saved one of these tensors before refuses
        its backward.

        Args:
            stream: A CUDA stream (or its address); None takes torch's current stream of the
                chain's device. Host chains run before the call returns and take none. The memory
                of the operands is not used again before a run on another stream than torch's
                current one has ended, even where the chain and the tensors are dropped.
            windowed: True launches in windows from the first step on, False never. None starts to
                use windows when the device is found waiting for launches, in a long chain of
                kernels alone that has run before. It uses none in a capture, and none after a
                window has failed, for lack of memory for instance: the run then goes on with
                single launches. A device runs the windows of one recording one after the other,
                whatever their streams: do not ask for them where a run waits for one that is
                issued later on another stream.
            ran: Takes an element when the run has been issued, with no bytecode in between: whoever
                is interrupted can tell by it.

        Raises:
            PlanError: The chain is not bound, or the memory of an operand was replaced since.
            CudaError: A launch failed; what was issued before it stays issued, and ``issued`` says
                how many launches that is. It is a CudaOutOfMemoryError, and so a
                torch.OutOfMemoryError, where the device has no memory.
            RuntimeError: A host chain in a forked process that has lost its parent's threads.
            TypeError: ``windowed`` is neither a bool nor None.
            ValueError: A stream was given for a host chain, or ``windowed=True`` for one, for a
                chain with a library step or without a launch, or in a capture.
        """
        core = self._require_bound()
        self._require_unmoved()
        if windowed is not None and not isinstance(windowed, bool):
            raise TypeError(f"[chain] windowed: expected True, False or None, got {windowed!r}")
        if self.backend == "host":
            if stream is not None:
                raise ValueError(f"[chain] stream: expected None for a host chain, got {stream}")
            if windowed:
                raise ValueError(
                    "[chain] windowed: expected None or False for what a window cannot hold, "
                    "got a host chain"
                )
            check_threads("chain")
            _run_noted(core.run, (0,), ran)
            raise_versions(self._written)
            return
        device = self.device
        handle = blas_handle(device, stream) if core.has_library_step() else 0
        try:
            _run_noted(core.run, (stream_address(device, stream), handle, windowed), ran)
        except CudaError as error:
            if error.issued != 0:
                self._note_run(stream)
            raise
        self._note_run(stream)

    def _note_run(self, stream: torch.cuda.Stream | int | None) -> None:
        """Tell torch what a run on the device writes, and for how long it needs its operands."""
        raise_versions(self._written)
        if stream is not None:  # else the allocator knows
            keep_until_run(self._all_operands(), self.device, stream)

    def run_step(self, ti: int, *, ran: list[None] | None = None) -> None:
        """Run the launches of one step of a host chain: for work that looks at each step's results.

        Args:
            ti: The step.
            ran: As in :meth:`run`.

        Raises:
            PlanError: As :meth:`run`.
            ValueError: The chain has no such step, or does not run on the host.
        """
        core = self._require_bound()
        self._require_unmoved()
        if self.backend != "host":
            raise ValueError(f"[chain] run_step: expected a host chain, got a {self.backend} chain")
        check_threads("chain")
        _run_noted(core.run_step, (operator.index(ti),), ran)
        raise_versions(self._written)

    def run_timed(self) -> list[tuple[int, int, int]]:
        """Run a host chain and say when each launch ran.

        Returns:
            ``(plan index, start, end)`` of every launch in the order they ran; nanoseconds of a
            monotonic clock.

        Raises:
            PlanError: As :meth:`run`.
            ValueError: The chain does not run on the host (``sdm_runtime.inspect.trace`` does).
        """
        core = self._require_bound()
        self._require_unmoved()
        if self.backend != "host":
            raise ValueError(
                f"[chain] run_timed: expected a host chain, got a {self.backend} chain"
            )
        check_threads("chain")
        times: list[tuple[int, int, int]] = core.run_timed()
        raise_versions(self._written)
        return times

    def graph(self) -> GraphedChain:
        """The chain as a CUDA graph, built from the plans: one launch replays every step.

        Raises:
            PlanError: The chain is not bound.
            ValueError: The chain runs on the host.
            CudaError: The driver refuses a node; the message names its step and kernel.
            RuntimeError: The chain has a library step, and torch's allocator (PYTORCH_ALLOC_CONF)
                is one that cannot keep the BLAS's workspace as long as the graph lives.
        """
        return GraphedChain(self)

    @property
    def has_library_step(self) -> bool:
        """Whether a plan is a call into the BLAS (:class:`~sdm_runtime.BlasGemmStep`)."""
        if self._core is not None:
            return bool(self._core.has_library_step())
        return any(plan.library for plan in self._plans)

    @property
    def device(self) -> torch.device:
        """The device of the chain's operands."""
        tensors = [self._operands] if self._operands else [plan.tensors for plan in self._plans]
        for operands in tensors:
            for tensor in operands.values():
                return tensor.device
        raise PlanError(
            "[chain] device: expected a plan with operands, got none: it belongs to no device"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the chain's plans, step count and order to ``path``; operands are not written.

        The file is replaced in one piece or not at all. Raises OSError when it cannot be written.
        """
        write_file(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """What :meth:`save` writes."""
        plans = [plan._core for plan in self._plans]
        encoded: bytes = _core.encode_chain(plans, self._steps, self._ascending)
        return encoded

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StepChain:
        """Read a chain written by :meth:`save`, by this or another process; it is unbound.

        Raises:
            OSError: The file cannot be read (FileNotFoundError: is not there), or is neither a
                regular file nor a pipe that somebody writes to.
            PlanError: The file is not a chain that this build can run; the message says which byte.
        """
        data = read_plan_file(os.fspath(path))
        if starts_with(data, PLAN_MAGIC):
            raise PlanError("chain: this is a plan: Plan.load reads it (byte 0)")
        plans, steps, ascending = _core.decode_chain(data)
        order = "ascending" if ascending else "descending"
        return cls([Plan(core) for core in plans], steps, order=order)

    def unbound(self) -> StepChain:
        """The same chain without its operands: what :meth:`load` gives after :meth:`save`."""
        return self._with([Plan.from_tensor(plan.tensor) for plan in self._plans])

    def _with(self, plans: Sequence[Plan]) -> StepChain:
        return StepChain(plans, self._steps, order=self.order)

    def bind(self, **operands: torch.Tensor) -> StepChain:
        """A chain of the same plans that runs on ``operands``, given by operand name.

        Each plan takes the operands that it names (and gx_pa2's the ``kpay`` that no launch
        reads, as :meth:`Plan.bind` says). Raises:
            PlanError: A name that no plan has, or what :meth:`Plan.bind` refuses.
        """
        return self._bound_to(operands, keep=False)

    def _bound_to(self, operands: Mapping[str, torch.Tensor], *, keep: bool) -> StepChain:
        """As :meth:`bind`; ``keep``: what is not given stays as each plan has it."""
        names = [{operand.name for operand in plan.operands} for plan in self._plans]
        unread = [unread_names(plan.kernel) for plan in self._plans]
        unknown = set(operands) - set().union(*names, *unread)
        if unknown:
            known = ", ".join(sorted(set().union(*names)))
            raise PlanError(
                f"[chain] bind: expected one of {known}, got {', '.join(sorted(unknown))}"
            )
        bound = []
        for plan, wanted, checked in zip(self._plans, names, unread, strict=True):
            kept = dict(plan.tensors) if keep else {}
            given = {name: operands[name] for name in wanted | checked if name in operands}
            bound.append(plan.bind(**(kept | given)))
        return self._with(bound)

    def __repr__(self) -> str:
        """Kernels and steps."""
        kernels = " -> ".join(plan.kernel for plan in self._plans)
        return f"StepChain({kernels}, {self._steps} steps {self.order}, {self.backend})"


class GraphedChain(ChainReplays[StepChain]):
    """Every launch of every step of a chain in one CUDA graph; made by :meth:`StepChain.graph`.

    A replay gives the bits of :meth:`StepChain.run`. Consecutive programmatic launches are joined
    by programmatic edges. The graph keeps its chain, and so the operands, alive; it takes about
    3 KiB of device memory per launch. Threads may use it at once: a replay during a
    :meth:`rebind` uses either the operands before it or those after it.

    Library steps use a workspace of the BLAS. It stays where it is as long as the graph lives, also
    where torch frees its own; replays of such a graph wait for each other, whatever their streams.
    """


def _run_noted(
    run: Callable[..., None], arguments: tuple[object, ...], ran: list[None] | None
) -> None:
    """Call `run` and add what it returns to `ran`, between which no interrupt can fall."""
    (list[None]() if ran is None else ran).extend(starmap(run, (arguments,)))
