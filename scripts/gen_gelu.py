#!/usr/bin/env python3
"""Writes src/backends/cpu/simd/gelu_table.inc: gelu's cdf and gradient as polynomials on 16 intervals of abs(x).

Each of the four functions f has f(-x) = 1 - f(x), so that one half is enough; the last interval is 0. Around
k STEP, where interval k has its centre, f(-z) is a polynomial of degree 5 in z - k STEP, fitted by Remez's
exchange: to f's own size for a cdf, whose tail counts, to 1 for a gradient, which passes through 0.
"""
import math
import sys

STEP, INTERVALS, DEGREE = 26 / 64, 16, 5
TANH_SCALE, CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715


def normal(z):
    return 0.5 * math.erfc(z / math.sqrt(2))


def normal_grad(z):
    return normal(z) - z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def tanh(z):
    return 1 / (1 + math.exp(TANH_SCALE * (z + CUBIC * z**3)))


def tanh_grad(z):
    s = tanh(z)
    return s - z * s * (1 - s) * TANH_SCALE * (1 + 3 * CUBIC * z * z)


def solve(matrix, right):
    """Gauss's elimination with the largest pivot of a column."""
    n = len(right)
    rows = [row + [r] for row, r in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def extremes(errors):
    """Where each run of one sign is largest."""
    found, first = [], 0
    for i in range(1, len(errors) + 1):
        if i == len(errors) or (errors[i] > 0) != (errors[first] > 0):
            found.append(max(range(first, i), key=lambda j: abs(errors[j])))
            first = i
    return found


def fit(f, low, high, weight):
    count = DEGREE + 2
    middle, half = (low + high) / 2, (high - low) / 2
    grid = [low + (high - low) * i / 2000 for i in range(2001)]
    points = [middle - half * math.cos(math.pi * i / (count - 1)) for i in range(count)]
    for _ in range(10):
        matrix = [[p**j for j in range(DEGREE + 1)] + [(-1) ** i * weight(p)] for i, p in enumerate(points)]
        polynomial = solve(matrix, [f(p) for p in points])[:-1]
        errors = [(sum(c * p**j for j, c in enumerate(polynomial)) - f(p)) / weight(p) for p in grid]
        found = extremes(errors)
        while len(found) > count:
            found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
        if len(found) < count:
            break
        points = [grid[i] for i in found]
    return polynomial


def table(f, is_cdf):
    columns = []
    for k in range(INTERVALS - 1):
        def around(r, k=k):
            return f(k * STEP + r)

        columns.append(fit(around, -STEP / 2 if k else 0, STEP / 2, around if is_cdf else lambda r: 1))
    columns.append([0.0] * (DEGREE + 1))
    return [[column[power] for column in columns] for power in range(DEGREE + 1)]


out = sys.stdout
out.write("// Written by scripts/gen_gelu.py; do not edit. Row j: the factors of power j, one for each interval.\n")
out.write("#define GELU_STEP %sf\n#define GELU_INTERVALS %d\n" % (STEP, INTERVALS))
for f, is_cdf in ((normal, True), (tanh, True), (normal_grad, False), (tanh_grad, False)):
    out.write("static const float gelu_%s_table[%d][GELU_INTERVALS] = {\n" % (f.__name__, DEGREE + 1))
    for row in table(f, is_cdf):
        words = ["%.9gf" % c if "." in "%.9g" % c or "e" in "%.9g" % c else "%.9g" % c for c in row]
        for i in range(0, INTERVALS, 4):
            out.write("%s%s%s\n" % ("    {" if i == 0 else "     ", ", ".join(words[i : i + 4]),
                                      "}," if i + 4 == INTERVALS else ","))
    out.write("};\n")
