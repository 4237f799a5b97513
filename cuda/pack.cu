// Bytes to values of BITS bits, the first in the lowest bits of a byte; each row begins with a byte, and is zero after its values.
// Grid: linear, one block per WG words of the window of out.
// Bindings: 0 x (rows, cols) u8 or i8 read; 1 out (rows, stride) read, write; 2 refused [number, ~first place] read, write; 3 params.
// Constants: WG; BITS 1, 2 or 4; RECODE 1 if values go through the table.
// Hardware: a thread reads up to 32 bytes, 16 at once if they are aligned, and writes 8 bytes (4 of 1-bit values): 32 KiB and more in
// flight on a multiprocessor. Four values are checked and packed at a time, in the bytes of a word. Sixteen values go through the table at
// a time, by their planes of bits.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 BITS = 2;
constexpr u32 RECODE = 0;

constexpr u32 PER = 8 / BITS;
// The number of bytes and of values of a thread.
constexpr u32 BYTES = BITS == 1 ? 4 : 8;
constexpr u32 VALUES = BYTES * PER;
constexpr u32 REFUSE = 0xffffffff;
constexpr u32 ONES = 0x01010101;

// Returns four values in the lowest bits of a word.
DEVICE u32 squeeze(u32 values) {
    values |= values >> (8 - BITS);
    if constexpr (BITS == 4) values &= 0x00ff00ff;
    return (values | values >> (16 - 2 * BITS)) & (u32)low_bits(4 * BITS);
}

constexpr u32 MASK = (1 << BITS) - 1;
// The value 1 in each place.
constexpr u32 EACH = REFUSE / MASK;

// Returns the entries, of `COUNT`, that packed values name: each bit of a value halves the number of candidates. In a loop over the bits,
// some compilers keep the entries in memory.
template <u32 COUNT> DEVICE u32 choose(const u32 (&entries)[COUNT], u32 packed) {
    if constexpr (COUNT == 1) {
        return entries[0];
    } else {
        u32 plane = (packed & EACH) * MASK;
        u32 left[COUNT / 2];
#pragma unroll
        for (u32 i = 0; i < COUNT / 2; i++) left[i] = (plane & entries[2 * i + 1]) | (~plane & entries[2 * i]);
        return choose(left, packed >> 1);
    }
}

// Replaces packed values by the table's entries.
DEVICE u32 recode(u32 packed, const Params& params) {
    u64 table = join(params.table_low, params.table_high);
    u32 entries[MASK + 1];
#pragma unroll
    for (u32 i = 0; i <= MASK; i++) entries[i] = ((u32)(table >> (4 * i)) & MASK) * EACH;
    return choose(entries, packed);
}

// Returns `count` values of x from a place on, packed, and counts the refused ones.
DEVICE u64 pack_run(const u32* x, u32 place, u32 count, u32* refused, const Params& params) {
    u32 words[VALUES / 4];
    load_bytes(x, params.x0 + place, count, words);
    u32 sign = params.negative == REFUSE ? 0 : ONES;
    u64 bits = 0;
#pragma unroll
    for (u32 i = 0; i < VALUES / 4; i++) {
        u32 negative = words[i] >> 7 & sign;
        u32 values = words[i] & ~(negative * 255);
        u32 over = (((values & 0x7f7f7f7f) + (128 - params.entries) * ONES) | values) & 0x80808080;
        if (over != 0) {
            atomic_add(refused, popcount(over));
            // The popcount is the number of zeros below the lowest bit of `over`.
            atomic_max(refused + 1, ~(place + 4 * i + popcount(~over & (over - 1)) / 8));
        }
        bits |= (u64)squeeze(values | negative * params.negative) << (4 * BITS * i);
    }
    if constexpr (RECODE == 1) bits = join(recode((u32)bits, params), BYTES == 8 ? recode(high_word(bits), params) : 0);
    return bits & low_bits(BITS * count);
}

KERNEL(pack, 4 * WG / BYTES)(const u32* __restrict__ x, u32* __restrict__ out, u32* __restrict__ refused, Params params) {
    u32 end = params.out0 + params.rows * params.stride;
    u32 unit = linear_block() * (4 * WG / BYTES) + threadIdx.x;
    if (unit >= div_ceil(end, BYTES) || (unit + 1) * BYTES <= params.out0) return;
    u32 first = unit * BYTES;
    u32 from = max(first, params.out0);
    u32 to = min(first + BYTES, end);
    u32 row = (from - params.out0) / params.stride;
    u32 column = from - params.out0 - row * params.stride;
    u64 bits = 0;
    // The loop runs once, unless a row ends within the bytes of the thread.
    for (u32 at = from; at < to;) {
        u32 bytes = min(to - at, params.stride - column);
        if (column < div_ceil(params.cols, PER)) {
            u32 count = min(params.cols - column * PER, bytes * PER);
            u64 run = pack_run(x, row * params.cols + column * PER, count, refused + params.refused0, params);
            bits |= run << (8 * (at - first));
        }
        at += bytes;
        column = 0;
        row++;
    }
    store_bytes<BYTES>(out, first, from, to, bits);
}
EXPORT(pack)
