#!/usr/bin/env python3
"""Prints how far relationships are from f64 where each variant's s² has two digits, and where products are of f32.

    python gram_digits.py

Binomial genotypes of 1,000 samples; the largest error of a pair, over the larger of its two diagonal entries.
src/packed/gram.rs rounds the same way. Needs numpy, and 4 GB for the largest.
"""

import numpy as np

SAMPLES = 1000
# The largest number of two balanced digits, and the maximum that rounding up adds.
LARGEST, SPARE = 127 * 257, 4


def errors(variants, frequencies, rng):
    p = rng.uniform(*frequencies, (variants, 1))
    dosages = rng.binomial(2, p, (variants, SAMPLES)).astype(np.float64)
    mean = dosages.mean(1, keepdims=True)
    square = 2 / (mean * (2 - mean))
    unit = 2 ** np.floor(np.log2((LARGEST - SPARE) / (2 * np.maximum(mean, 1) * square)))
    # Multiples of the golden ratio, modulo 1, determine the numbers that are rounded up.
    turn = np.arange(variants, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(44)
    rounded = np.floor(square * unit + turn / 2**20) / unit
    dosages -= mean
    exact = (dosages * square).T @ dosages
    digits = (dosages * rounded).T @ dosages
    narrow = (dosages * np.sqrt(square)).astype(np.float32)
    narrow = narrow.T @ narrow
    diagonal = np.diag(exact)
    largest = np.maximum.outer(diagonal, diagonal)
    return [(abs(other - exact) / largest).max() for other in (digits, narrow)]


def main():
    rng = np.random.default_rng(1)
    print("| variants | frequencies | two digits | f32 |\n|---:|---|---:|---:|")
    for power in (14, 16, 17):
        for frequencies in ((0.017, 0.05), (0.05, 0.5)):
            digits, narrow = errors(1 << power, frequencies, rng)
            print(f"| 2^{power} | {frequencies[0]} to {frequencies[1]} | {digits:.1e} | {narrow:.1e} |")


if __name__ == "__main__":
    main()
