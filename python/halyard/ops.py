"""The op table, fallbacks, and the switches that hold for the process. See include/halyard/ops.h and trace.h."""

from dataclasses import dataclass

from halyard import _library
from halyard._library import check, decoded, encoded, lib
from halyard.devices import dtype_names


@dataclass(frozen=True)
class Op:
    number: int
    name: str
    dtypes: tuple
    differentiable: bool


def list_ops():
    """The rows of the op table."""
    rows = (lib.hy_op_at(index).contents for index in range(lib.hy_op_count()))
    return [Op(row.op, decoded(row.name), dtype_names(row.dtypes), row.differentiable) for row in rows]


def fallback_report():
    """What a device lacked and the cpu ran instead, most often first: [{op, dtype, device, reason, count, bytes_staged, example}]."""
    count = lib.hy_fallback_report(None, 0)
    entries = (_library.FallbackEntry * max(count, 1))()
    count = min(lib.hy_fallback_report(entries, count), count)
    report = [dict(op=decoded(lib.hy_op_name(e.op)), dtype=decoded(lib.hy_dtype_name(e.dtype)), device=decoded(e.device),
                   reason=decoded(lib.hy_support_text(e.reason)), count=e.count, bytes_staged=e.bytes_staged, example=decoded(e.example))
              for e in entries[:count]]
    return sorted(report, key=lambda entry: -entry["count"])


def fallback_count():
    return lib.hy_fallback_count()


def clear_fallbacks():
    lib.hy_fallback_clear()


def strict(on=True):
    """Makes every fallback to the cpu an error. Also HALYARD_STRICT=1."""
    lib.hy_set_strict(on)


def set_deterministic(on=True):
    """No kernels whose results depend on timing or thread count. Also HALYARD_DETERMINISTIC=1."""
    lib.hy_set_deterministic(on)


def deterministic():
    return lib.hy_deterministic()


def set_log_level(level):
    """0 nothing, 1 warnings, 2 what is found and chosen, 3 every op, copy and view; below 0 what HALYARD_LOG says."""
    lib.hy_set_log_level(level)


def trace_start(path):
    """Records every op, copy and view for Perfetto, until trace_stop."""
    check(lib.hy_trace_start(encoded(path)))


def trace_stop():
    check(lib.hy_trace_stop())
