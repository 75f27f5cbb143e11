"""From bytes to a model, with the checks that the core makes before it knows the kernel.

What needs the kernel (is it registered, do its numbers stay inside the operands) is left to
``verify``: a plan that the executor refuses for such a reason can still be looked at.
"""

from __future__ import annotations

from sdm_runtime.files.reading import Source
from sdm_runtime.format.plan_files import read_plan_file
from sdm_runtime.format.plan_format import (
    CHAIN_MAGIC,
    PLAN_MAGIC,
    ChainEntry,
    ChainHeader,
    StepOrder,
)
from sdm_runtime.inspect.reading.checks import check_seal, expect
from sdm_runtime.inspect.reading.decode_plan import decode_plan
from sdm_runtime.inspect.reading.model import ChainModel, FileError


def load(path: Source) -> ChainModel:
    """Read a plan or chain file: a regular file or a pipe, by path or open descriptor.

    Raises:
        FileError: The file is not a plan or chain; the message says which byte, and why.
        OSError: The file cannot be read, as ``read_plan_file`` says.
    """
    return decode(read_plan_file(path))


def decode(data: bytes) -> ChainModel:
    """Read a plan's or a chain's bytes. Raises FileError."""
    if len(data) < 8:
        raise FileError(f"truncated: {len(data)} bytes, a plan or chain starts with 8", len(data))
    magic = int.from_bytes(data[:8], "little")
    if magic == PLAN_MAGIC:
        plan = decode_plan(data)
        return ChainModel("plan", data, plan.steps, (plan,))
    if magic == CHAIN_MAGIC:
        return _decode_chain(data)
    raise FileError("bad magic: this is neither a plan nor a chain", 0)


def _decode_chain(data: bytes) -> ChainModel:
    size = ChainHeader.SIZE
    expect(len(data) >= size, f"truncated: {len(data)} bytes, a header takes {size}", len(data))
    check_seal(ChainHeader, data, 0)
    header = ChainHeader.unpack(data)
    expect(header.num_plans >= 1, "no plan in it", ChainHeader.SPANS["num_plans"][0])
    expect(
        header.order in tuple(StepOrder),
        f"step order {header.order}, expected 0 (last step first) or 1 (first step first)",
        ChainHeader.SPANS["order"][0],
    )
    following = size + header.num_plans * ChainEntry.SIZE
    expect(
        following <= len(data),
        f"{header.num_plans} plans do not fit into {len(data)} bytes",
        ChainHeader.SPANS["num_plans"][0],
    )
    plans = []
    for index in range(header.num_plans):
        at = size + index * ChainEntry.SIZE
        entry = ChainEntry.unpack(data, at)
        expect(
            entry.offset == following and entry.size <= len(data) - following,
            f"plan {index} lies at {entry.offset} with {entry.size} bytes, expected {following}",
            at,
        )
        try:
            plans.append(decode_plan(data[entry.offset : entry.offset + entry.size], entry.offset))
        except FileError as error:
            raise FileError(f"plan {index}: {error.reason}", error.byte) from None
        following += entry.size
    expect(following == len(data), "bytes after the last plan", following)
    return ChainModel("chain", data, header.steps, tuple(plans), StepOrder(header.order))
