"""The step kernels in the words of docs/step_chain.md, section 4, one scalar at a time.

Slow on purpose, and independent of the package: every operation is one numpy float32 operation or
one ``fmaf`` of the C library, in the order that the text gives. Functions take the tensors and
sizes of their namesakes in ``sdm_runtime.kernels`` and work in place on CPU tensors.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import struct

import numpy as np
import torch

_fmaf = ctypes.CDLL(ctypes.util.find_library("m")).fmaf
_fmaf.restype = ctypes.c_float
_fmaf.argtypes = [ctypes.c_float] * 3

ZERO = np.float32(0.0)


def fma(a, b, c):
    return np.float32(_fmaf(a, b, c))


def bits_of(value) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f32_of(bits: int):
    return np.frombuffer(struct.pack("<I", bits & 0xFFFFFFFF), dtype=np.float32)[0]


def bf16_bits(value) -> int:
    bits = bits_of(value)
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFF
    low, high = bits & 0xFFFF, bits >> 16
    up = low > 0x8000 or (low == 0x8000 and high % 2 == 1)
    return high + up


def bf16(value):
    return f32_of(bf16_bits(value) << 16)


def e4m3_value(byte: int):
    sign = np.float32(-1.0 if byte & 0x80 else 1.0)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if (exponent, mantissa) == (15, 7):
        return np.float32(np.nan)
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return sign * np.float32(magnitude)


class Rows:
    """Rows of one storage type, read and written as float32 scalars."""

    def __init__(self, tensor: torch.Tensor, hd: int):
        self.kind = {
            torch.float32: "f32",
            torch.bfloat16: "bf16",
            torch.float8_e4m3fn: "e4m3",
            torch.uint8: "e4m3" if tensor.shape[-1] == hd else "int4",
        }[tensor.dtype]
        flat = tensor.reshape(-1, tensor.shape[-1])
        assert flat.data_ptr() == tensor.data_ptr()
        as_ints = {"bf16": torch.int16, "e4m3": torch.uint8}.get(self.kind, flat.dtype)
        self.data = flat.view(as_ints).numpy()

    def get(self, row: int, column: int):
        if self.kind == "f32":
            return np.float32(self.data[row, column])
        if self.kind == "bf16":
            return f32_of(int(self.data[row, column]) << 16)
        if self.kind == "e4m3":
            return e4m3_value(int(self.data[row, column]))
        byte = int(self.data[row, column // 2])
        nibble = byte & 15 if column % 2 else byte >> 4
        return np.float32((nibble ^ 8) - 8)

    def set(self, row: int, column: int, value) -> None:
        if self.kind == "f32":
            self.data[row, column] = value
        else:
            bits = bf16_bits(value)
            self.data[row, column] = bits - 0x10000 if bits >= 0x8000 else bits


def slices(hd: int) -> list[range]:
    count = 1 + (hd - 1) // 128
    width = 4 * math.ceil(math.ceil(hd / 4) / count)
    return [range(s * width, min(hd, (s + 1) * width)) for s in range(count)]


def row_dot(a: dict, b: dict, columns: range):
    """<a, b> on one slice; a and b map columns to values."""
    level = []
    for lane in range(32):
        first = columns.start + 4 * lane
        x = [a[c] if c in columns else ZERO for c in range(first, first + 4)]
        y = [b[c] if c in columns else ZERO for c in range(first, first + 4)]
        p = x[0] * y[0]
        for k in (1, 2, 3):
            p = fma(x[k], y[k], p)
        level.append(p)
    while len(level) > 1:
        level = [level[i] + level[i + 1] for i in range(0, len(level), 2)]
    return level[0]


def _token_row(rows: torch.Tensor, row: int, hd: int) -> dict:
    return dict(enumerate(rows.reshape(-1, hd)[row].numpy()))


def _stored_row(rows: Rows, row: int, hd: int) -> dict:
    """Zeros for row -1."""
    return {c: ZERO if row < 0 else rows.get(row, c) for c in range(hd)}


@np.errstate(all="ignore")
def gx_gwr(grad, delta, pd, slots, d_dv, dpd, *, ti, num_parallel, chunk_size, num_tokens):
    hd, writes = grad.shape[1], slots.shape[1]
    rows, dv = Rows(grad, hd), d_dv.reshape(-1, hd).numpy()
    planes = dpd.view(len(slices(hd)), -1).numpy()
    for chunk in range(ti * num_parallel, (ti + 1) * num_parallel):
        for t in range(chunk_size):
            row = chunk * chunk_size + t
            if ti * chunk_size + t >= num_tokens:
                dv[row] = 0
                planes[:, row * writes : (row + 1) * writes] = 0
                continue
            delta_row, acc = _token_row(delta, row, hd), [ZERO] * hd
            for n in range(writes):
                g = _stored_row(rows, int(slots[row, n]), hd)
                weight = pd[row, n].numpy()
                acc = [fma(weight, g[c], acc[c]) for c in range(hd)]
                for s, columns in enumerate(slices(hd)):
                    planes[s, row * writes + n] = row_dot(delta_row, g, columns)
            dv[row] = acc


@np.errstate(all="ignore")
def gx_gemm(d_u, x, d_dv, *, ti, num_parallel):
    _, size, hd = d_u.shape
    dv, out, xs = d_dv.reshape(d_u.shape).numpy(), d_u.numpy(), x.numpy()
    for n in range(ti * num_parallel, (ti + 1) * num_parallel):
        for i in range(size):
            for c in range(hd):
                acc = ZERO
                for j in range(size):
                    acc = fma(xs[n, j, i], dv[n, j, c], acc)
                out[n, i, c] = out[n, i, c] + acc


def _words(rec: torch.Tensor, chunk: int):
    """The records of one chunk: (word, row, scale, decay)."""
    for word, row, scale, decay in rec[chunk].tolist():
        yield word & 0xFFFFFFFF, row, f32_of(scale), f32_of(decay)


def snapshot_value(snap: Rows, scales, row: int, column: int, bank_dtype: torch.dtype):
    value = snap.get(row, column)
    if snap.kind in ("f32", "bf16"):
        return value
    scale = scales.reshape(-1)[row].numpy()
    return bf16(value * bf16(scale)) if bank_dtype == torch.bfloat16 else value * scale


@np.errstate(all="ignore")
def gx_pa2(
    grad, bank, snap, d_u, beta, kpay, rec, out_eff, out_g, *, ti, num_parallel, chunk_size,
    num_writes, bpre=None, scales=None, snap_step_rows=None, snap_chunk_rows=None,
):  # fmt: skip
    hd, entries = bank.shape[1], chunk_size * num_writes
    g_rows, bank_rows, snap_rows = Rows(grad, hd), Rows(bank, hd), Rows(snap, hd)
    spans = slices(hd)
    eff = out_eff.view(len(spans), -1).numpy()
    gdots = out_g.view(len(spans), -1).numpy()
    one_slice = len(spans) == 1
    for sequence in range(num_parallel):
        chunk, ordinal = ti * num_parallel + sequence, 0
        for word, row, sck, cpe in _words(rec, chunk):
            first, last, invalid = word >> 31 & 1, word >> 30 & 1, word >> 17 & 1
            tok, w = word >> 9 & 0xFF, word & 0xFF
            place = (chunk * chunk_size + tok) * num_writes + w
            if invalid:
                eff[:, place] = 0
                gdots[:, place] = 0
                continue
            if first:
                if snap_step_rows is None:
                    source = chunk * (snap_chunk_rows or entries) + ordinal
                else:
                    source = ti * snap_step_rows + sequence * entries + tok * num_writes + w
                ordinal += 1
                acc = [ZERO] * hd
                g = _stored_row(g_rows, row, hd)
                m = {c: snapshot_value(snap_rows, scales, source, c, bank.dtype) for c in range(hd)}
            x = _token_row(d_u, chunk * chunk_size + tok, hd)
            acc = [fma(sck, x[c], acc[c]) for c in range(hd)]
            strength = beta[chunk * chunk_size + tok].numpy()
            for s, columns in enumerate(spans):
                eff_dot, g_dot = row_dot(x, m, columns), row_dot(g, m, columns)
                eff[s, place] = (-strength) * eff_dot if one_slice else eff_dot
                gdots[s, place] = cpe * g_dot if one_slice else g_dot
            if last:
                for c in range(hd):
                    g_rows.set(row, c, fma(g[c], cpe, acc[c]))
                    bank_rows.set(row, c, m[c])


@np.errstate(all="ignore")
def gx_gds(grad, bank, gy, qrec, dq, *, ti, num_parallel, chunk_size, num_reads):
    hd = bank.shape[1]
    g_rows, bank_rows, spans = Rows(grad, hd), Rows(bank, hd), slices(hd)
    dots = dq.view(len(spans), -1).numpy()
    for chunk in range(ti * num_parallel, (ti + 1) * num_parallel):
        for word, row, scq, _ in _words(qrec, chunk):
            first, last, invalid = word >> 31 & 1, word >> 30 & 1, word >> 17 & 1
            tok, m = word >> 9 & 0xFF, word & 0xFF
            place = (chunk * chunk_size + tok) * num_reads + m
            if invalid:
                dots[:, place] = 0
                continue
            if first:
                acc = [ZERO] * hd
                bank_row = _stored_row(bank_rows, row, hd)
            x = _token_row(gy, chunk * chunk_size + tok, hd)
            acc = [fma(scq, x[c], acc[c]) for c in range(hd)]
            for s, columns in enumerate(spans):
                dots[s, place] = row_dot(x, bank_row, columns)
            if last:
                for c in range(hd):
                    g_rows.set(row, c, g_rows.get(row, c) + acc[c])


@np.errstate(all="ignore")
def plane_reduce(
    planes, out, *, factor=None, negate=False, group=1, num_tokens, num_parallel, chunk_size
):
    source, target = planes.numpy(), out.view(-1).numpy()
    steps = -(-num_tokens // chunk_size)
    width = target.size // (steps * num_parallel * chunk_size)
    for i in range(target.size):
        row = i // width
        ti, t = row // chunk_size // num_parallel, row % chunk_size
        if ti * chunk_size + t >= num_tokens:
            target[i] = 0
            continue
        total = source[0, i]
        for plane in source[1:]:
            total = total + plane[i]
        if factor is not None:
            f = factor.view(-1)[i // group].numpy()
            total = (-f if negate else f) * total
        target[i] = total


@np.errstate(all="ignore")
def fx_read(
    bank, v, row_weights, residual, reading, *, ti, num_parallel, chunk_size, num_writes,
    num_tokens,
):  # fmt: skip
    hd = bank.shape[1]
    rows, values = Rows(bank, hd), Rows(v, hd)
    outputs = [x.reshape(-1, hd).numpy() for x in (residual, reading)]
    for row in range(ti * num_parallel * chunk_size, (ti + 1) * num_parallel * chunk_size):
        entries = [(slot, f32_of(bits)) for slot, bits in row_weights[row].tolist()]
        padding = ti * chunk_size + row % chunk_size >= num_tokens
        for out, part in zip(outputs, (entries[:num_writes], entries[num_writes:]), strict=True):
            acc = [ZERO] * hd
            if not padding and out is outputs[0]:
                acc = [values.get(row, c) for c in range(hd)]
            for slot, weight in [] if padding else part:
                row_of_slot = _stored_row(rows, slot, hd)
                acc = [fma(weight, row_of_slot[c], acc[c]) for c in range(hd)]
            out[row] = acc


@np.errstate(all="ignore")
def fx_write(
    bank, delta, updates, *, ti, num_parallel, chunk_size, num_writes, snap=None, bpre=None,
    snap_chunk_rows=None,
):  # fmt: skip
    hd, entries = bank.shape[1], chunk_size * num_writes
    rows = Rows(bank, hd)
    kept = None if snap is None else Rows(snap, hd)
    for chunk in range(ti * num_parallel, (ti + 1) * num_parallel):
        ordinal = 0
        for word, row, pd, cpe in _words(updates, chunk):
            if word >> 17 & 1:
                continue
            if word >> 31 & 1:
                acc = [ZERO] * hd
                if kept is not None:
                    kept.data[chunk * (snap_chunk_rows or entries) + ordinal] = rows.data[row]
                ordinal += 1
            x = _token_row(delta, chunk * chunk_size + (word >> 9 & 0xFF), hd)
            acc = [fma(pd, x[c], acc[c]) for c in range(hd)]
            if word >> 30 & 1:
                for c in range(hd):
                    rows.set(row, c, fma(rows.get(row, c), cpe, acc[c]))
