// Sums, or extremes and their indices, along the middle axis of an array of three: of each BLOCK elements, or of as many totals of an earlier launch.
// Grid: linear. By row, one block per BLOCK elements; else one thread per column of each BLOCK elements along the axis.
// Bindings: 0 x (outer, len, inner) read; 1 out (outer, parts, inner) totals of four words, or results, read_write; 2 params, starts of x in elements or totals and of out in words.
// Constants: WG; BLOCK; BY_ROW inner is 1; PARTIAL x has totals of an earlier launch; NARROW x is of the type in params, else f32.
// Hardware: neighbours load neighbouring elements, RUN in flight for each thread. Sums are in f64, and so are extremes of types that f32
// does not hold. Other extremes are in f32, where comparing takes less time than loading.

#include "dev.cuh"

constexpr u32 WG = 64;
constexpr u32 BLOCK = 1024;
constexpr u32 BY_ROW = 1;
constexpr u32 PARTIAL = 0;
constexpr u32 NARROW = 0;

// The number of elements of a thread whose loads are in flight at once.
constexpr u32 RUN = 8;
// The index that means no element.
constexpr u32 NOWHERE = 0xffffffffu;
// The bits of -infinity.
constexpr u32 LOWEST = 0xff800000u;

// A sum, or the greatest number and its index along the axis.
struct alignas(16) Total {
    double value;
    u32 index;
    u32 unused;
};

// The elements of one thread: the first, the distance from one to the next, their number, the first index along the axis, and the distance
// from one index to the next.
struct Line {
    u32 first;
    u32 step;
    u32 count;
    u32 index;
    u32 stride;
};

DEVICE bool adds(u32 op) { return op <= MEAN; }

// Returns true if the first number is greater. NaN is the greatest, and of equal numbers the earlier one.
template <class REAL> DEVICE bool precedes(REAL a, u32 a_index, REAL b, u32 b_index) {
    bool a_is_nan = a != a;
    bool b_is_nan = b != b;
    if (a_is_nan != b_is_nan) return a_is_nan;
    return a > b || (a_index < b_index && (a == b || a_is_nan));
}

DEVICE Total joined(Total a, Total b, u32 op) {
    if (adds(op)) return Total{a.value + b.value, NOWHERE, 0};
    return precedes(b.value, b.index, a.value, a.index) ? b : a;
}

// Returns the number of which the kernel seeks the maximum.
template <class REAL> DEVICE REAL mapped(REAL value, u32 op) {
    if (op == ANY) return value != 0 ? (REAL)1 : (REAL)0;
    return op == MIN ? -value : value;
}

// True if f32 does not hold every element of type `T`.
template <u32 T> constexpr bool IS_WIDE = T == F64 || T == U32 || T == I32;

// Loads `count` elements, at least one, `step` apart, and then the last again, so that no load waits for a test.
template <u32 T, class REAL> DEVICE void load_run(const void* x, u32 first, u32 step, u32 count, REAL (&values)[RUN]) {
    const void* own = element<T>(x, first);
#pragma unroll
    for (u32 i = 0; i < RUN; i++) values[i] = load_real<T, REAL>(own, min(i, count - 1) * step);
}

template <u32 T> DEVICE void add(const void* x, Line line, Total& total) {
    while (line.count > 0) {
        u32 run = min(line.count, RUN);
        double values[RUN];
        load_run<T>(x, line.first, line.step, run, values);
#pragma unroll
        for (u32 i = 0; i < RUN; i++) {
            if (i < run) total.value += values[i];
        }
        line.count -= run;
        line.first += run * line.step;
    }
}

template <u32 T> DEVICE void find(const void* x, Line line, u32 op, Total& total) {
    typedef typename RealOf<IS_WIDE<T>>::Real Real;
    Real best = bits_float(LOWEST);
    u32 place = NOWHERE;
    while (line.count > 0) {
        u32 run = min(line.count, RUN);
        Real values[RUN];
        load_run<T>(x, line.first, line.step, run, values);
#pragma unroll
        for (u32 i = 0; i < RUN; i++) {
            Real value = mapped(values[i], op);
            u32 index = line.index + i * line.stride;
            if (i < run && precedes(value, index, best, place)) {
                best = value;
                place = index;
            }
        }
        line.count -= run;
        line.first += run * line.step;
        line.index += run * line.stride;
    }
    total.value = best;
    total.index = place;
}

DEVICE Total total_of(const void* x, Line line, const Params& params) {
    Total total = {adds(params.op) ? 0.0 : (double)bits_float(LOWEST), NOWHERE, 0};
    if constexpr (PARTIAL == 1) {
        const Total* totals = (const Total*)x + line.first;
        for (u32 i = 0; i < line.count; i++) total = joined(total, totals[i * line.step], params.op);
    } else {
        u32 type = NARROW == 1 ? params.x_type : F32;
        if (adds(params.op)) {
            BY_TYPE(type, TYPE, add<TYPE>(x, line, total));
        } else {
            BY_TYPE(type, TYPE, find<TYPE>(x, line, params.op, total));
        }
    }
    return total;
}

// Joins the totals of the block, always in the same order; the first thread has the result.
DEVICE Total join_block(Total total, u32 op) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        Total other = {shuffle_xor(total.value, mask), shuffle_xor(total.index, mask), 0};
        total = joined(total, other, op);
    }
    SHARED(Total, partial, WG / WARP);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = total;
    __syncthreads();
    total = partial[0];
    for (u32 warp = 1; warp < WG / WARP; warp++) total = joined(total, partial[warp], op);
    return total;
}

DEVICE void store(u32* out, u32 place, Total total, const Params& params) {
    out += params.out0;
    if (params.stored == TOTAL) {
        // Totals are whole quads of words, so out0 is a multiple of 4.
        Total* own = (Total*)out + place;
        *own = params.accumulate == 1 ? joined(*own, total, params.op) : total;
        return;
    }
    double value = total.value;
    if (params.op == MIN) value = -value;
    if (params.op == MEAN) value /= (double)params.count + (double)params.count_rest;
    if (params.stored == ONE) out[place] = float_bits((float)value);
    else if (params.stored == TWO) ((double*)out)[place] = value;
    else out[place] = total.index;
}

KERNEL(reduce_axis, WG)(const void* __restrict__ x, u32* __restrict__ out, Params params) {
    u32 block = linear_block();
    u32 parts = div_ceil(params.len, BLOCK);
    if constexpr (BY_ROW == 1) {
        u32 row = block / parts;
        if (row >= params.outer) return;
        u32 start = (block - row * parts) * BLOCK;
        u32 count = min(params.len - start, BLOCK);
        u32 own = count > threadIdx.x ? div_ceil(count - threadIdx.x, WG) : 0;
        u32 at = start + threadIdx.x;
        Line line = {params.x0 + row * params.len + at, WG, own, params.first + at, WG};
        Total total = join_block(total_of(x, line, params), params.op);
        if (threadIdx.x == 0) store(out, block, total, params);
    } else {
        u32 item = block * WG + threadIdx.x;
        u32 part = item / params.inner;
        u32 outer = part / parts;
        if (outer >= params.outer) return;
        u32 start = (part - outer * parts) * BLOCK;
        u32 first = params.x0 + (outer * params.len + start) * params.pitch + item - part * params.inner;
        Line line = {first, params.pitch, min(params.len - start, BLOCK), params.first + start, 1};
        store(out, item, total_of(x, line, params), params);
    }
}
EXPORT(reduce_axis)
