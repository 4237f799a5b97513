// Sum, sum of squares, count of valid and of bad elements, over blocks of BLOCK elements of a row or of a column.
// Grid: linear. By row, one block per BLOCK elements; by column, one thread per column of each block of BLOCK rows.
// Bindings: 0 x (rows, cols) read; 1 out [.., 4] words (f32 bits; i32 for i8 by row) write; 2 params, starts in elements.
// Constants: WG; BLOCK; X_TYPE; BY_ROW; MISSING negative is missing (and below -1 is bad, for i8 by row).
// Hardware: neighbours load neighbouring elements at any alignment, many at once for each thread. Bytes are added four at a
// time by dot products of words, since one at a time their arithmetic would take longer than their loads.

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 cols;
    u32 x0;
    u32 out0;
};

constexpr u32 WG = 64;
constexpr u32 BLOCK = 1024;
constexpr u32 X_TYPE = 0;
constexpr u32 BY_ROW = 1;
constexpr u32 MISSING = 0;

// Bytes are added as integers: exact, and a block of them cannot overflow.
constexpr bool EXACT = X_TYPE == I8 && BY_ROW == 1;
constexpr bool IS_FLOAT = X_TYPE == F32 || X_TYPE == F16 || X_TYPE == BF16;

struct Sums {
    float sum;
    float squares;
    u32 valid;
    u32 bad;
};

DEVICE void add(Sums& sums, float value) {
    bool finite = !IS_FLOAT || is_finite(value);
    bool valid = finite && !(MISSING == 1 && value < 0.0f);
    float term = valid ? value : 0.0f;
    sums.sum += term;
    sums.squares += term * term;
    sums.valid += valid;
    sums.bad += !finite;
}

// The same of four bytes; `inside` is 0xff in each byte that is one of the block's.
struct ExactSums {
    i32 sum;
    i32 squares;
    u32 valid;
    u32 bad;
};

DEVICE void add_bytes(ExactSums& sums, u32 word, u32 inside) {
    // The highest bit of each byte.
    constexpr u32 HIGH = 0x80808080u;
    u32 counted = inside;
    if (MISSING == 1) {
        u32 missing = word & inside & HIGH;
        // A byte below -1 has a zero among its lower bits.
        sums.bad += popcount(((~word & ~HIGH) + ~HIGH) & missing);
        counted &= ~((missing >> 7) * 0xff);
    }
    word &= counted;
    sums.sum = dot4(word, 0x01010101u, sums.sum);
    sums.squares = dot4(word, word, sums.squares);
    sums.valid += popcount(counted & HIGH);
}

// Four words of each thread, added over the block in an order that is always the same; the first thread has the result.
template <class T> DEVICE T sum_block(T sums, T* partial) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        sums.sum += shuffle_xor(sums.sum, mask);
        sums.squares += shuffle_xor(sums.squares, mask);
        sums.valid += shuffle_xor(sums.valid, mask);
        sums.bad += shuffle_xor(sums.bad, mask);
    }
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = sums;
    __syncthreads();
    sums = partial[0];
    for (u32 warp = 1; warp < WG / WARP; warp++) {
        sums.sum += partial[warp].sum;
        sums.squares += partial[warp].squares;
        sums.valid += partial[warp].valid;
        sums.bad += partial[warp].bad;
    }
    return sums;
}

DEVICE uint4 words(Sums sums) {
    return {float_bits(sums.sum), float_bits(sums.squares), float_bits((float)sums.valid), float_bits((float)sums.bad)};
}

DEVICE uint4 words(ExactSums sums) { return {(u32)sums.sum, (u32)sums.squares, sums.valid, sums.bad}; }

// Elements `first` to `end`; a whole block has no tests, so that a thread's loads can all be under way.
DEVICE Sums sum_row(const void* x, u32 first, u32 end) {
    Sums sums = {};
    if (end - first == BLOCK) {
#pragma unroll
        for (u32 i = 0; i < BLOCK / WG; i++) add(sums, load<X_TYPE>(x, first + threadIdx.x + i * WG));
    } else {
        for (u32 i = first + threadIdx.x; i < end; i += WG) add(sums, load<X_TYPE>(x, i));
    }
    return sums;
}

// The bits of a word that lie in bytes `first` to `end` of the array.
DEVICE u32 inside(u32 word, u32 first, u32 end) {
    u32 low = first > 4 * word ? first - 4 * word : 0;
    u32 high = min(end - 4 * word, 4u);
    return (0xffffffffu << (8 * low)) & (0xffffffffu >> (8 * (4 - high)));
}

// Bytes `first` to `end`, by aligned words, of which the first and the last may reach beyond.
DEVICE ExactSums sum_row_exactly(const void* x, u32 first, u32 end) {
    ExactSums sums = {};
    const u32* array = (const u32*)x;
    u32 word = first / 4 + threadIdx.x;
    if (end - first == BLOCK && first % 4 == 0) {
#pragma unroll
        for (u32 i = 0; i < BLOCK / 4 / WG; i++) add_bytes(sums, array[word + i * WG], 0xffffffffu);
    } else {
        for (; word < div_ceil(end, 4); word += WG) add_bytes(sums, array[word], inside(word, first, end));
    }
    return sums;
}

KERNEL(reduce, WG)(const void* __restrict__ x, u32* __restrict__ out, Params params) {
    u32 block = linear_block();
    if constexpr (BY_ROW == 1) {
        u32 parts = div_ceil(params.cols, BLOCK);
        u32 row = block / parts;
        if (row >= params.rows) return;
        u32 col = (block - row * parts) * BLOCK;
        u32 first = params.x0 + row * params.cols + col;
        u32 end = first + min(params.cols - col, BLOCK);
        uint4 result;
        if constexpr (EXACT) {
            SHARED(ExactSums, partial, WG / WARP);
            result = words(sum_block(sum_row_exactly(x, first, end), partial));
        } else {
            SHARED(Sums, partial, WG / WARP);
            result = words(sum_block(sum_row(x, first, end), partial));
        }
        // Partial sums are whole quads of words, so that out0 is a multiple of 4.
        if (threadIdx.x == 0) ((uint4*)(out + params.out0))[block] = result;
    } else {
        u32 across = div_ceil(params.cols, WG);
        u32 part = block / across;
        u32 col = (block - part * across) * WG + threadIdx.x;
        u32 first = part * BLOCK;
        if (first >= params.rows || col >= params.cols) return;
        u32 rows = min(params.rows - first, BLOCK);
        u32 i = params.x0 + first * params.cols + col;
        Sums sums = {};
#pragma unroll 16
        for (u32 row = 0; row < rows; row++) {
            add(sums, load<X_TYPE>(x, i));
            i += params.cols;
        }
        ((uint4*)(out + params.out0))[part * params.cols + col] = words(sums);
    }
}
EXPORT(reduce)
