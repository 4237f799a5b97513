// Conversions of half-precision numbers, by their bits. No header is included, so that kernels compile fast.

#pragma once

static inline unsigned emulator_float_bits(float value) { return __builtin_bit_cast(unsigned, value); }
static inline float emulator_bits_float(unsigned bits) { return __builtin_bit_cast(float, bits); }

static inline float emulator_half_float(unsigned bits) {
    unsigned sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    // A subnormal half is its fraction times 2^-24, exactly.
    if (exponent == 0) return emulator_bits_float(sign | emulator_float_bits((float)fraction * 0x1p-24f));
    return emulator_bits_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}

// Returns the nearest half; of two that are equally near, the even one.
static inline unsigned emulator_float_half(float value) {
    unsigned bits = emulator_float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7e00;
    // These values are at least halfway from the largest half to the next power of two, and become infinite.
    if (size >= 0x477ff000) return sign | 0x7c00;
    // A subnormal half is a multiple of 2^-24. Adding 0.5 rounds to such a multiple.
    if (size < 0x38800000) return sign | (emulator_float_bits(emulator_bits_float(size) + 0.5f) - 0x3f000000);
    return sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
}
