"""Plan and chain files to bytes: no more of them than their header says. Needs no torch."""

from __future__ import annotations

from sdm_runtime.files.reading import MOST_BYTES, Source, opened, too_large
from sdm_runtime.format.plan_format import CHAIN_MAGIC, PLAN_MAGIC, ChainHeader, PlanHeader

_TOTALS = {
    magic.to_bytes(8, "little"): header.SPANS["total_bytes"]
    for magic, header in ((PLAN_MAGIC, PlanHeader), (CHAIN_MAGIC, ChainHeader))
}


def starts_with(data: bytes, magic: int) -> bool:
    """Whether a file's bytes are those of a plan (PLAN_MAGIC) or of a chain (CHAIN_MAGIC)."""
    return data[:8] == magic.to_bytes(8, "little")


def read_plan_file(source: Source) -> bytes:
    """The bytes for a decoder: the header, and one byte past what it promises if there are more.

    The decoder then names what is wrong, whatever the file's size.

    Args:
        source: A regular file or a pipe, by path; or an open descriptor, such as
            ``sdm_runtime.files.reading.STANDARD_INPUT``.

    Raises:
        FileNotFoundError: There is no such file; as open() raises it.
        OSError: The file cannot be read, or is a device, a folder or a pipe that nobody writes to;
            or there are more bytes, and more promised, than any plan or chain has.
    """
    with opened(source) as reader:
        head = reader.read(PlanHeader.SIZE)
        span = _TOTALS.get(head[:8])
        if span is None:
            return head
        promised = int.from_bytes(head[span[0] : span[0] + span[1]], "little")
        wanted = min(promised, MOST_BYTES) + 1
        data = head + reader.read(max(0, wanted - len(head)))
    if len(data) > MOST_BYTES:
        raise too_large(source)
    return data
