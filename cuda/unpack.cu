// Values of BITS bits, the first in the lowest bits of a byte, to elements of BYTES bytes: out[i, j] = table[value j of row i].
// Grid: linear, one block per WG words of the window of out.
// Bindings: 0 packed (rows, stride) read; 1 table (16) of elements' bits read; 2 out (rows, cols) read, write; 3 params, starts in elements.
// Constants: WG; BITS 1, 2 or 4; BYTES 1, 2 or 4.
// Hardware: a thread writes 16 bytes at once, next to its neighbours'. Bytes are looked up in registers, four by one permutation with the
// values as digits of its selector. Larger elements are looked up in the table itself, which is one line of the cache.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 BITS = 2;
constexpr u32 BYTES = 4;

constexpr u32 PER = 8 / BITS;
constexpr u32 MASK = (1 << BITS) - 1;
// The number of values of a thread.
constexpr u32 VALUES = 16 / BYTES;

// Returns `count` values from bit `bit` of byte `at` on, in the lowest bits. Reads only words that hold one of them.
DEVICE u64 load_values(const u32* packed, u32 at, u32 bit, u32 count) {
    constexpr u32 WORD = 8 * sizeof(u32);
    u32 shift = 8 * (at & 3) + bit;
    u32 bits = shift + BITS * count;
    const u32* words = packed + at / 4;
    u64 values = join(words[0], bits > WORD ? words[1] : 0) >> shift;
    // Here, the shift is above 0.
    if (bits > 2 * WORD) values |= (u64)words[2] << (2 * WORD - shift);
    return values & low_bits(BITS * count);
}

// Returns eight values, one in each digit of a word.
DEVICE u32 digits(u32 values) {
    if constexpr (BITS == 1) values = (values | values << 12) & 0x000f000f;
    if constexpr (BITS == 2) values = (values | values << 8) & 0x00ff00ff;
    if constexpr (BITS == 1) values = (values | values << 6) & 0x03030303;
    if constexpr (BITS == 2) values = (values | values << 4) & 0x0f0f0f0f;
    if constexpr (BITS == 1) values = (values | values << 3) & 0x11111111;
    if constexpr (BITS == 2) values = (values | values << 2) & 0x33333333;
    return values;
}

DEVICE u32 bytes_of(uint4 entries) { return entries.x | entries.y << 8 | entries.z << 16 | entries.w << 24; }

// Looks up the lowest four digits of a word in a table of 16 bytes.
DEVICE u32 look_up(const u32 (&bytes)[4], u32 digits) {
    if constexpr (BITS < 4) return byte_permute(bytes[0], 0, digits);
    // The top bit of a digit would ask for a sign.
    u32 low = byte_permute(bytes[0], bytes[1], digits & 0x7777);
    u32 high = byte_permute(bytes[2], bytes[3], digits & 0x7777);
    return byte_permute(low, high, 0x3210 + (digits >> 1 & 0x4444));
}

// Writes the table's entries for values to four words.
DEVICE void expand(const u32* table, u64 values, u32 (&words)[4]) {
    if constexpr (BYTES == 1) {
        u32 bytes[4] = {};
        // Only entries of values that exist are loaded.
#pragma unroll
        for (u32 i = 0; i < (MASK + 4) / 4; i++) bytes[i] = bytes_of(((const uint4*)table)[i]);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 eight = digits((u32)(values >> (8 * BITS * i)) & (u32)low_bits(8 * BITS));
            words[2 * i] = look_up(bytes, eight);
            words[2 * i + 1] = look_up(bytes, eight >> 16);
        }
    } else {
        constexpr u32 EACH = 4 / BYTES;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            words[i] = 0;
#pragma unroll
            for (u32 j = 0; j < EACH; j++) {
                u32 value = (u32)(values >> (BITS * (EACH * i + j))) & MASK;
                words[i] |= table[value] << (8 * BYTES * j);
            }
        }
    }
}

DEVICE void store_element(u32* out, u32 place, u32 bits) {
    if constexpr (BYTES == 1) ((u8*)out)[place] = (u8)bits;
    else if constexpr (BYTES == 2) ((u16*)out)[place] = (u16)bits;
    else out[place] = bits;
}

KERNEL(unpack, WG / 4)(const u32* __restrict__ packed, const u32* __restrict__ table, u32* __restrict__ out, Params params) {
    u32 end = params.out0 + params.rows * params.cols;
    u32 unit = linear_block() * (WG / 4) + threadIdx.x;
    if (unit >= div_ceil(end, VALUES) || (unit + 1) * VALUES <= params.out0) return;
    u32 first = unit * VALUES;
    u32 from = max(first, params.out0);
    u32 to = min(first + VALUES, end);
    u32 row = (from - params.out0) / params.cols;
    u32 column = from - params.out0 - row * params.cols;
    u64 values = 0;
    // The loop runs once, unless a row ends within the values of the thread.
    for (u32 at = from; at < to;) {
        u32 count = min(to - at, params.cols - column);
        u32 byte = params.packed0 + row * params.stride + column / PER;
        values |= load_values(packed, byte, BITS * (column % PER), count) << (BITS * (at - first));
        at += count;
        column = 0;
        row++;
    }
    u32 words[4];
    expand(table, values, words);
    if (to - from == VALUES) {
        ((uint4*)out)[unit] = {words[0], words[1], words[2], words[3]};
        return;
    }
#pragma unroll
    for (u32 i = 0; i < VALUES; i++) {
        u32 bits = words[i * BYTES / 4] >> (8 * (i * BYTES % 4));
        if (first + i >= from && first + i < to) store_element(out, first + i, bits);
    }
}
EXPORT(unpack)
