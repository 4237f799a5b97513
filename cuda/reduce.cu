// Sum, sum of squares, count of valid and of bad elements, over blocks of BLOCK elements of a row or of a column.
// Grid: linear. By row, one block per BLOCK elements; by column, one thread per column of each block of BLOCK rows.
// Bindings: 0 x (rows, cols) read; 1 out [.., 4] f32 (i32 for i8 by row, f64 if WIDE) write; 2 params, starts in elements.
// Constants: WG; BLOCK; BY_ROW; NARROW x is of the type in params, else f32; EXACT x is i8, by row; WIDE sums are in f64; MISSING negative is missing (and if EXACT below -1 is bad).
// Hardware: neighbours load neighbouring elements at any alignment, 16 in flight for each thread. Bytes are added four at a time by dot
// products of words, since one at a time their arithmetic would take longer than their loads. One warp adds them, since with 16 bytes a
// thread, the sum over the threads would take longer than the bytes.

#include "dev.cuh"

constexpr u32 WG = 64;
constexpr u32 BLOCK = 1024;
constexpr u32 BY_ROW = 1;
constexpr u32 NARROW = 0;
// Bytes are added as integers. The sum is exact, and cannot overflow in one block.
constexpr u32 EXACT = 0;
constexpr u32 WIDE = 0;
constexpr u32 MISSING = 0;

constexpr u32 THREADS = EXACT == 1 ? WARP : WG;
// The number of elements of a thread whose loads are in flight at once.
constexpr u32 RUN = BLOCK / WG;

// The type of elements as they are added, except for exact sums.
typedef RealOf<WIDE == 1>::Real real;

// `Value` is real, or i32 for exact sums.
template <class Value> struct Sums {
    Value sum;
    Value squares;
    // The number of valid elements is in the low half, and of bad ones in the high half. A block has too few to overflow.
    u32 counts;
};

constexpr u32 BAD = 1 << 16;

DEVICE void add(Sums<real>& sums, real value) {
    bool finite = is_finite(value);
    bool valid = finite && !(MISSING == 1 && value < 0);
    real term = valid ? value : 0;
    sums.sum += term;
    sums.squares += term * term;
    sums.counts += valid ? 1 : finite ? 0 : BAD;
}

// Adds four bytes; `inside` is 0xff in each byte that belongs to the block.
DEVICE void add_bytes(Sums<i32>& sums, u32 word, u32 inside) {
    // The highest bit of each byte.
    constexpr u32 HIGH = 0x80808080u;
    u32 counted = inside;
    if (MISSING == 1) {
        u32 missing = word & inside & HIGH;
        // A byte below -1 has a zero among its lower bits.
        sums.counts += BAD * popcount(((~word & ~HIGH) + ~HIGH) & missing);
        counted &= ~((missing >> 7) * 0xff);
    }
    word &= counted;
    sums.sum = dot4(word, 0x01010101u, sums.sum);
    sums.squares = dot4(word, word, sums.squares);
    sums.counts += popcount(counted & HIGH);
}

template <class Value> DEVICE Sums<Value> operator+(Sums<Value> a, Sums<Value> b) {
    return {a.sum + b.sum, a.squares + b.squares, a.counts + b.counts};
}

// Adds the sums over the block, always in the same order; the first thread has them.
template <class Value> DEVICE Sums<Value> sum_block(Sums<Value> sums) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        sums = sums + Sums<Value>{shuffle_xor(sums.sum, mask), shuffle_xor(sums.squares, mask), shuffle_xor(sums.counts, mask)};
    }
    if constexpr (THREADS > WARP) {
        SHARED(Sums<Value>, partial, THREADS / WARP);
        if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = sums;
        __syncthreads();
        sums = partial[0];
        for (u32 warp = 1; warp < THREADS / WARP; warp++) sums = sums + partial[warp];
    }
    return sums;
}

// The sums of a block, as they are stored.
template <class Value> struct alignas(16) Stored {
    Value sum;
    Value squares;
    Value valid;
    Value bad;
};

template <class Value> DEVICE void store(u32* out, u32 place, Sums<Value> sums) {
    ((Stored<Value>*)out)[place] = {sums.sum, sums.squares, (Value)(sums.counts % BAD), (Value)(sums.counts / BAD)};
}

// Loads `count` elements, at least one, `step` apart, and then the last again, so that no load waits for a test.
template <u32 TYPE> DEVICE void load_run(const void* x, u32 first, u32 step, u32 count, real (&values)[RUN]) {
    const void* own = element<TYPE>(x, first);
#pragma unroll
    for (u32 i = 0; i < RUN; i++) values[i] = load_real<TYPE, real>(own, min(i, count - 1) * step);
}

DEVICE void add_run(Sums<real>& sums, const void* x, u32 type, u32 first, u32 step, u32 count) {
    real values[RUN];
    BY_TYPE(type, TYPE, load_run<TYPE>(x, first, step, count, values));
#pragma unroll
    for (u32 i = 0; i < RUN; i++) {
        if (i < count) add(sums, values[i]);
    }
}

// Returns the sums of `count` elements, `step` apart.
DEVICE Sums<real> sum_floats(const void* x, u32 type, u32 first, u32 step, u32 count) {
    Sums<real> sums = {};
    // Whole runs need no tests.
    for (; NARROW == 0 && count >= RUN; count -= RUN, first += RUN * step) add_run(sums, x, type, first, step, RUN);
    while (count > 0) {
        u32 run = min(count, RUN);
        add_run(sums, x, type, first, step, run);
        count -= run;
        first += run * step;
    }
    return sums;
}

// Returns the sums of this thread's share of bytes `first` to `end`, in aligned words: one more than BLOCK / 4 if they start within a word.
DEVICE Sums<i32> sum_bytes(const void* x, u32 first, u32 end) {
    Sums<i32> sums = {};
    const u32* array = (const u32*)x;
    u32 place = first / 4 + threadIdx.x;
    if (end - first == BLOCK && first % 4 == 0) {
#pragma unroll
        for (u32 i = 0; i < BLOCK / 4; i += THREADS) add_bytes(sums, array[place + i], 0xffffffffu);
        return sums;
    }
    // All loads come before the first use, as above.
    constexpr u32 WORDS = BLOCK / 4 / THREADS + 1;
    u32 loaded[WORDS];
    // The number of words from the thread's first one on.
    u32 count = place < div_ceil(end, 4) ? div_ceil(end, 4) - place : 0;
#pragma unroll
    for (u32 i = 0; i < WORDS; i++) loaded[i] = i * THREADS < count ? array[place + i * THREADS] : 0;
    // The number of bits of the first word before the first byte.
    u32 before = threadIdx.x == 0 ? 8 * (first % 4) : 0;
#pragma unroll
    for (u32 i = 0; i < WORDS; i++) {
        if (i * THREADS < count) {
            u32 after = 8 * (4 - min(end - 4 * (place + i * THREADS), 4u));
            add_bytes(sums, loaded[i], 0xffffffffu << before & 0xffffffffu >> after);
        }
        before = 0;
    }
    return sums;
}

KERNEL(reduce, THREADS)(const void* __restrict__ x, u32* __restrict__ out, Params params) {
    u32 block = linear_block();
    u32 type = NARROW == 1 ? params.x_type : F32;
    if constexpr (BY_ROW == 1) {
        u32 parts = div_ceil(params.cols, BLOCK);
        u32 row = block / parts;
        if (row >= params.rows) return;
        u32 col = (block - row * parts) * BLOCK;
        u32 first = params.x0 + row * params.cols + col;
        u32 count = min(params.cols - col, BLOCK);
        // Sums have four values, so out0 is a multiple of their size.
        if constexpr (EXACT == 1) {
            Sums<i32> sums = sum_block(sum_bytes(x, first, first + count));
            if (threadIdx.x == 0) store(out + params.out0, block, sums);
        } else {
            u32 own = count > threadIdx.x ? div_ceil(count - threadIdx.x, THREADS) : 0;
            Sums<real> sums = sum_block(sum_floats(x, type, first + threadIdx.x, THREADS, own));
            if (threadIdx.x == 0) store(out + params.out0, block, sums);
        }
    } else {
        u32 across = div_ceil(params.cols, WG);
        u32 part = block / across;
        u32 col = (block - part * across) * WG + threadIdx.x;
        u32 first = part * BLOCK;
        // `first` is not compared, since it overflows in the last blocks of a folded grid.
        if (part > (params.rows - 1) / BLOCK || col >= params.cols) return;
        u32 rows = min(params.rows - first, BLOCK);
        Sums<real> sums = sum_floats(x, type, params.x0 + first * params.cols + col, params.cols, rows);
        store(out + params.out0, part * params.cols + col, sums);
    }
}
EXPORT(reduce)
