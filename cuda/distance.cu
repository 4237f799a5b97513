// Sums over features for pairs of observations: sums[i, j] (+)= sum of term(x[i, f], y[j, f]), or the largest.
// Grid: one block per TILE x TILE pairs; x = blocks of y's observations, y = blocks of x's.
// Bindings: 0 x read; 1 y read; 2 x_table, 3 y_table (observations, 3) of shift, its rest, scale f32 read; 4 sums (pairs, 2) f32 read_write; 5 params.
// Constants: TILE 64; TERM the term, or 0 for that in params; MASKED missing elements count nothing; WIDE the tables, the terms and the sums (pairs) are f64.
// Hardware: a thread computes 4 x 4 pairs with 2 loads of 16 bytes from shared memory for 16 terms of two or more instructions each, so
// that arithmetic takes longer than loads. The next slice is loaded into registers while one is added up. If the term is not a constant,
// its choice is one jump for each slice, the same for all threads.

#include "dev.cuh"

constexpr u32 TILE = 64;
constexpr u32 TERM = 0;
constexpr u32 MASKED = 0;
constexpr u32 WIDE = 0;

// The number of threads along each side. Each thread computes 4 x 4 pairs.
constexpr u32 SIDE = TILE / 4;
constexpr u32 THREADS = SIDE * SIDE;
// The number of features of a slice, and of the features whose terms are added up before they are folded into the sums.
constexpr u32 DEPTH = 16;
constexpr u32 BLOCK = 256;
// The number of elements from one feature of a slice to the next. Rows of four more than the tile are written to all banks at once.
constexpr u32 STRIDE = TILE + 4;
// The number of elements of a slice that a thread loads.
constexpr u32 LOADS = TILE * DEPTH / THREADS;
// The number of blocks for which a multiprocessor has the registers.
constexpr u32 BLOCKS = WIDE == 1 ? 1 : 2;

// A missing element is NaN.
constexpr u32 MISSING = 0x7fc00000u;

// The arithmetic in which terms are computed.
template <bool> struct Arithmetic {
    typedef float Real;
    typedef u32 Bits;
    typedef float4 Four;

    DEVICE bool is_missing(float value) { return (float_bits(value) & 0x7fffffffu) > 0x7f800000u; }

    // Returns the quotient within two units in the last place, or 0 for two zeros. Exact division is a call, around which registers are saved.
    DEVICE float quotient(float part, float whole) {
        float scale = whole > 0x1p64f ? 0x1p-64f : whole < 0x1p-64f ? 0x1p64f : 1.0f;
        return whole > 0.0f ? fast_quotient(part * scale, whole * scale) : 0.0f;
    }

    // Returns the term Divergence for t below a half: half of `whole` times the series of t^2n / (n (2 n - 1)), which has no cancellation.
    DEVICE float near_divergence(float whole, float t) {
        float square = t * t;
        float sum = 0;
#pragma unroll
        for (u32 n = 10; n > 0; n--) sum = (sum + 1.0f / (float)(n * (2 * n - 1))) * square;
        return 0.5f * whole * sum;
    }

    // Returns x log(x / y) for t = (x - y) / (x + y) below a half: 2 x artanh t, by its series, which has no cancellation.
    DEVICE float near_relative(float x, float t) {
        float square = t * t;
        float sum = 0;
#pragma unroll
        for (i32 n = 10; n >= 0; n--) sum = sum * square + 1.0f / (float)(2 * n + 1);
        return 2.0f * x * t * sum;
    }

    // Adds a value to a pair, a sum and its rounding error, or keeps the largest. Sums are not fused with products: that would change the error.
    DEVICE void fold(const Params& p, float* sums, u64 place, float value, bool first) {
        float* pair = sums + 2 * place;
        if (first && p.accumulate == 0) {
            pair[0] = value;
            pair[1] = 0.0f;
        } else if (p.term == LARGEST) {
            pair[0] = fmaxf(pair[0], value);
        } else {
            // This is Knuth's two-sum. The error stays below half a unit of the sum, and is 0 for an infinite sum.
            float sum = pair[0];
            float total = sum + value;
            float part = total - sum;
            float rest = pair[1] + ((sum - (total - part)) + (value - part));
            float all = total + rest;
            pair[0] = is_finite(total) ? all : total;
            pair[1] = is_finite(pair[0]) ? rest - (all - total) : 0.0f;
        }
    }
};

// The arithmetic in f64, in which a sum is one number.
template <> struct Arithmetic<true> {
    typedef double Real;
    typedef u64 Bits;
    struct alignas(16) Four {
        double x, y, z, w;
    };

    DEVICE bool is_missing(double value) { return value != value; }
    DEVICE double quotient(double part, double whole) { return whole > 0 ? part / whole : 0; }
    DEVICE double near_divergence(double whole, double t) { return 0.5 * whole * (log1p(-t * t) + 2 * t * atanh(t)); }
    DEVICE double near_relative(double x, double t) { return 2 * x * atanh(t); }
    DEVICE void fold(const Params& p, double* sums, u64 place, double value, bool first) {
        double sum = first && p.accumulate == 0 ? 0 : sums[place];
        sums[place] = p.term == LARGEST ? fmax(sum, value) : sum + value;
    }
};

typedef Arithmetic<WIDE == 1> In;
typedef In::Real real;
typedef In::Bits Bits;

// `stored_bits` returns the bits of an element of type `T`, of f64 as a number of the terms' type; `decode_bits` returns their number.
template <u32 T> DEVICE Bits stored_bits(const void* array, u32 i) {
    if constexpr (WIDE == 1 && T == F64) return *(const u64*)element<T>(array, i);
    else return stored<T>(element<T>(array, i));
}
template <u32 T> DEVICE real decode_bits(Bits bits) {
    if constexpr (WIDE == 1 && T == F64) return bits_double(bits);
    else if constexpr (WIDE == 1 && T == U32) return (u32)bits;
    else if constexpr (WIDE == 1 && T == I32) return (i32)bits;
    else return decode<T>((u32)bits);
}

// An operand, and the stored elements of its next slice that a thread loads.
struct Operand {
    const void* array;
    u32 type;
    // The place of the thread's first element of the first slice, and the distances between its elements and between features.
    u32 start;
    u32 apart;
    u32 step;
    // A bit for each element whose observation exists.
    u32 inside;
    // The entries of the table for the observations of the block.
    In::Four* table;
    Bits bits[LOADS];
};

// Returns the feature of element i, and sets its observation. Neighbours load along the direction in which the operands are contiguous.
DEVICE u32 place_of(const Params& p, u32 i, u32* observation) {
    u32 at = threadIdx.x + THREADS * i;
    *observation = p.by_column == 1 ? at % TILE : at / DEPTH;
    return p.by_column == 1 ? at / TILE : at % DEPTH;
}

// Sets up an operand for the observations from `first` on, of `count`.
DEVICE void open(Operand& x, const Params& p, const real* table, u32 stride, u32 start, u32 first, u32 count) {
    x.step = p.by_column == 1 ? stride : 1;
    u32 observation;
    u32 feature = place_of(p, 0, &observation);
    x.start = start + feature * x.step + (first + observation) * (p.by_column == 1 ? 1 : stride);
    x.apart = p.by_column == 1 ? THREADS / TILE * stride : THREADS / DEPTH * stride;
    x.inside = 0;
#pragma unroll
    for (u32 i = 0; i < LOADS; i++) {
        place_of(p, i, &observation);
        if (first + observation < count) x.inside |= 1u << i;
    }
    for (u32 i = threadIdx.x; i < TILE && first + i < count; i += THREADS) {
        const real* entry = table + 3 * (first + i);
        x.table[i] = {entry[0], entry[1], entry[2], 0};
    }
}

// Loads stored elements, all before any is needed: one switch over their size, and no computation.
template <u32 T> DEVICE void fetch_as(Operand& x, const Params& p, u32 k) {
#pragma unroll
    for (u32 i = 0; i < LOADS; i++) {
        u32 observation;
        bool is_inside = (x.inside >> i & 1) && k + place_of(p, i, &observation) < p.k;
        if (is_inside) x.bits[i] = stored_bits<T>(x.array, x.start + i * x.apart + k * x.step);
    }
}

DEVICE void fetch(Operand& x, const Params& p, u32 k) {
    u32 size = size_of(x.type);
    if (size == 1) fetch_as<U8>(x, p, k);
    else if (size == 2) fetch_as<U16>(x, p, k);
    else if (size == 4) fetch_as<U32>(x, p, k);
    else fetch_as<F64>(x, p, k);
}

// Writes elements into the slice at k. Beyond the ends, elements are zeros, which add nothing, or missing if elements may be missing.
DEVICE void put(const Operand& x, const Params& p, u32 k, real* slice) {
    real values[LOADS];
    BY_TYPE(x.type, T, for (u32 i = 0; i < LOADS; i++) values[i] = decode_bits<T>(x.bits[i]));
#pragma unroll
    for (u32 i = 0; i < LOADS; i++) {
        u32 observation;
        u32 feature = place_of(p, i, &observation);
        bool is_absent = !(x.inside >> i & 1) || k + feature >= p.k;
        if (MASKED == 1) is_absent = is_absent || In::is_missing(values[i]) || (p.negative == 1 && values[i] < 0);
        In::Four entry = x.table[observation];
        real value = (values[i] - entry.x - entry.y) * entry.z;
        slice[feature * STRIDE + observation] = is_absent ? bits_float(MASKED == 1 ? MISSING : 0) : value;
    }
}

DEVICE real part_log(real part) { return part > 0 ? part * log(part) : 0; }

// Returns the term Divergence: with t = (x - y) / (x + y), (x + y) / 2 times (1 + t) log(1 + t) + (1 - t) log(1 - t).
DEVICE real divergence(real x, real y) {
    real whole = x + y;
    real t = In::quotient(x - y, whole);
    if (t * t >= (real)0.25) return (real)0.5 * whole * (part_log(1 + t) + part_log(1 - t));
    return In::near_divergence(whole, t);
}

DEVICE real relative(real x, real y) {
    if (x <= 0 || y <= 0) return x > 0 ? x * log(x) : 0;
    real t = In::quotient(x - y, x + y);
    if (t * t >= (real)0.25) return x * (log(x) - log(y));
    return In::near_relative(x, t);
}

template <u32 T> DEVICE real term_of(real x, real y, real power) {
    if constexpr (T == SQUARE) return (x - y) * (x - y);
    else if constexpr (T == ABSOLUTE || T == LARGEST) return fabs(x - y);
    else if constexpr (T == POWER) return pow(fabs(x - y), power);
    else if constexpr (T == CANBERRA) return In::quotient(fabs(x - y), fabs(x) + fabs(y));
    else if constexpr (T == SUM) return fabs(x + y);
    else if constexpr (T == UNEQUAL) return x != y ? (real)1 : (real)0;
    else if constexpr (T == BOTH) return x != 0 && y != 0 ? (real)1 : (real)0;
    else if constexpr (T == ONE) return (x != 0) != (y != 0) ? (real)1 : (real)0;
    else if constexpr (T == COUNT) return 1;
    else if constexpr (T == X) return x;
    else if constexpr (T == Y) return y;
    else if constexpr (T == X_SQUARE) return x * x;
    else if constexpr (T == Y_SQUARE) return y * y;
    else if constexpr (T == ROOT) return sqrt(x) * sqrt(y);
    else if constexpr (T == RELATIVE) return relative(x, y);
    else if constexpr (T == DIVERGENCE) return divergence(x, y);
    else return x * y;
}

// Returns a sum plus the term of two observations at one feature, or for LARGEST the larger of both.
template <u32 T> DEVICE real added(real sum, real x, real y, real power) {
    real value = term_of<T>(x, y, power);
    if (MASKED == 1 && (In::is_missing(x) || In::is_missing(y))) value = 0;
    return T == LARGEST ? fmax(sum, value) : sum + value;
}

// Adds the terms of a slice.
template <u32 T> DEVICE void add_slice(const real* x_slice, const real* y_slice, real power, real (&values)[4][4]) {
    x_slice += 4 * (threadIdx.x / SIDE);
    y_slice += 4 * (threadIdx.x % SIDE);
    if constexpr (T == POWER || T == CANBERRA || T == ROOT || T == RELATIVE || T == DIVERGENCE) {
        // Pairs are computed one after the other, since the terms of 16 at once would fill the registers.
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
#pragma unroll 1
                for (u32 at = 0; at < DEPTH * STRIDE; at += STRIDE) {
                    values[i][j] = added<T>(values[i][j], x_slice[at + i], y_slice[at + j], power);
                }
            }
        }
    } else {
#pragma unroll 2
        for (u32 at = 0; at < DEPTH * STRIDE; at += STRIDE) {
            In::Four x = *(const In::Four*)(x_slice + at);
            In::Four y = *(const In::Four*)(y_slice + at);
            real left[4] = {x.x, x.y, x.z, x.w};
            real right[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) values[i][j] = added<T>(values[i][j], left[i], right[j], power);
            }
        }
    }
}

DEVICE void add_any(u32 term, const real* x, const real* y, real power, real (&values)[4][4]) {
    switch (term) {
        case SQUARE: add_slice<SQUARE>(x, y, power, values); break;
        case ABSOLUTE: add_slice<ABSOLUTE>(x, y, power, values); break;
        case LARGEST: add_slice<LARGEST>(x, y, power, values); break;
        case POWER: add_slice<POWER>(x, y, power, values); break;
        case CANBERRA: add_slice<CANBERRA>(x, y, power, values); break;
        case SUM: add_slice<SUM>(x, y, power, values); break;
        case UNEQUAL: add_slice<UNEQUAL>(x, y, power, values); break;
        case BOTH: add_slice<BOTH>(x, y, power, values); break;
        case ONE: add_slice<ONE>(x, y, power, values); break;
        case COUNT: add_slice<COUNT>(x, y, power, values); break;
        case X: add_slice<X>(x, y, power, values); break;
        case Y: add_slice<Y>(x, y, power, values); break;
        case X_SQUARE: add_slice<X_SQUARE>(x, y, power, values); break;
        case Y_SQUARE: add_slice<Y_SQUARE>(x, y, power, values); break;
        case ROOT: add_slice<ROOT>(x, y, power, values); break;
        case RELATIVE: add_slice<RELATIVE>(x, y, power, values); break;
        case DIVERGENCE: add_slice<DIVERGENCE>(x, y, power, values); break;
        default: add_slice<PRODUCT>(x, y, power, values);
    }
}

KERNEL(distance, THREADS, BLOCKS)(const void* __restrict__ x, const void* __restrict__ y, const real* __restrict__ x_table, const real* __restrict__ y_table, real* __restrict__ sums, Params params) {
    SHARED(real, x_slice, DEPTH * STRIDE);
    SHARED(real, y_slice, DEPTH * STRIDE);
    u32 first_row = blockIdx.y * TILE;
    u32 first_col = blockIdx.x * TILE;
    if (params.lower == 1 && params.row0 + first_row + TILE <= params.col0 + first_col) return;
    SHARED(In::Four, tables, 2 * TILE);
    Operand left, right;
    left.table = tables;
    right.table = tables + TILE;
    left.array = x;
    left.type = params.x_type;
    right.array = y;
    right.type = params.y_type;
    open(left, params, x_table + params.x_table0, params.ldx, params.x0, first_row, params.m);
    // With a step, the observations of y are those for this row of tiles.
    u32 skipped = blockIdx.y * params.y_step;
    u32 y0 = params.y0 + skipped * (params.by_column == 1 ? 1 : params.ldy);
    open(right, params, y_table + params.y_table0 + 3 * skipped, params.ldy, y0, first_col, params.n);
    u32 row = first_row + 4 * (threadIdx.x / SIDE);
    u32 col = first_col + 4 * (threadIdx.x % SIDE);
    real power = params.power;
    if constexpr (WIDE == 1) power = bits_double(join(params.power_low, params.power_high));
    fetch(left, params, 0);
    fetch(right, params, 0);
    __syncthreads();
    for (u32 k0 = 0; k0 == 0 || k0 < params.k; k0 += BLOCK) {
        real values[4][4] = {};
        u32 end = min(params.k, k0 + BLOCK);
        for (u32 k = k0; k < end; k += DEPTH) {
            put(left, params, k, x_slice);
            put(right, params, k, y_slice);
            __syncthreads();
            fetch(left, params, k + DEPTH);
            fetch(right, params, k + DEPTH);
            if constexpr (TERM != 0) add_slice<TERM>(x_slice, y_slice, power, values);
            else add_any(params.term, x_slice, y_slice, power, values);
            __syncthreads();
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            for (u32 j = 0; j < 4; j++) {
                if (row + i >= params.m || col + j >= params.n) continue;
                u64 pair = (u64)(row + i) * params.lds + col + j;
                In::fold(params, sums, params.sums0 + pair, values[i][j], k0 == 0);
            }
        }
    }
}
EXPORT(distance)
