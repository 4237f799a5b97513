// Matrix product: c[m, n] (+)= op(a)[m, k] op(b)[k, n] in f32, decoded as it is loaded.
// Grid: one block per TILE x TILE block of c; x = blocks of columns, y = blocks of rows, z = products, of `depth` terms each.
// Bindings: 0 a read; 1 b read; 2 c (rows of ldc) f32 read_write; 3 params, strides and starts in elements.
// Constants: TILE 64 or 128; TRANS_A a is (k, m); TRANS_B b is (n, k); NARROW a and b are of the types in params, else both f32.
// Hardware: a thread computes 8 x 8 elements with 4 loads of 16 bytes from shared memory for 64 products; with 4 x 4 elements, loads would
// take as long as products. There are two slices of each operand (33 KiB at TILE 128), so that the next one is copied in the background
// while one is multiplied, with one barrier a slice. At TILE 128 the 256 threads have at most 128 registers, so that a multiprocessor has
// two blocks, and one multiplies while the other waits. Rows of a slice are 16 bytes longer than the tile, so that elements that are
// transposed are written to all banks at once. With few columns, half of each tile is left out.

#include "dev.cuh"

constexpr u32 TILE = 64;
constexpr u32 TRANS_A = 0;
constexpr u32 TRANS_B = 0;
constexpr u32 NARROW = 0;

// The number of threads along each side. Each thread computes 8 x 8 elements of c, as four blocks of 4 x 4 that are half a tile apart.
constexpr u32 SIDE = TILE / 8;
constexpr u32 THREADS = SIDE * SIDE;
// The extent along k of the slices that a block holds at once.
constexpr u32 DEPTH = 16;
// The number of elements from one depth of a slice to the next.
constexpr u32 STRIDE = TILE + 4;
constexpr u32 SLICE = DEPTH * STRIDE;

// One thread's share of the slices of an operand, as [k][tile] in shared memory. The rows of its array are along k or along the tile.
// Beyond the tile's end, the last element is repeated, since it reaches only elements of c that are not stored; beyond k, elements are
// zero.
template <bool ALONG_K> struct Operand {
    static constexpr u32 COPIES = TILE * DEPTH / THREADS;
    // The number of rows of the array that the thread reads along k, two elements of each; otherwise 1.
    static constexpr u32 ROWS = ALONG_K ? COPIES / 2 : 1;
    const void* array;
    u32 type;
    u32 stride;
    // The thread's first depth, and its place in a slice.
    u32 depth;
    u32 place;
    // The thread's first element of the array, in each row if rows are along k.
    u32 starts[ROWS];
    // True if rows along the tile are aligned to 16 bytes, so that the thread copies four f32 at once; and the bytes of these that exist.
    bool quads;
    u32 quad_bytes;
    // Elements that are loaded and not yet decoded.
    u32 bits[COPIES];
};

template <bool ALONG_K>
DEVICE Operand<ALONG_K> operand(const void* array, u32 type, u32 start, u32 stride, u32 first, u32 extent) {
    Operand<ALONG_K> x;
    x.array = array;
    x.type = NARROW == 1 ? type : F32;
    x.stride = stride;
    x.quads = x.type == F32 && !ALONG_K && ((start | stride) & 3) == 0;
    if constexpr (ALONG_K) {
        // 8 threads share a row, so that 32 threads write to 32 banks.
        u32 along = threadIdx.x / 8;
        x.depth = threadIdx.x % 8;
        x.place = x.depth * STRIDE + along;
#pragma unroll
        for (u32 row = 0; row < x.ROWS; row++) {
            x.starts[row] = start + min(first + along + THREADS / 8 * row, extent - 1) * stride + x.depth;
        }
    } else if (x.quads) {
        u32 along = 4 * (threadIdx.x % (TILE / 4));
        x.depth = threadIdx.x / (TILE / 4);
        x.place = x.depth * STRIDE + along;
        along += first;
        x.quad_bytes = along < extent ? 4 * min(extent - along, 4u) : 0;
        x.starts[0] = start + (along < extent ? along : 0) + x.depth * stride;
    } else {
        u32 along = threadIdx.x % TILE;
        x.depth = threadIdx.x / TILE;
        x.place = x.depth * STRIDE + along;
        x.starts[0] = start + min(first + along, extent - 1) + x.depth * stride;
    }
    return x;
}

// Starts to load element `i` of the thread's share from `from`. f32 goes straight to its place.
template <u32 TYPE, bool ALONG_K>
DEVICE void fetch_one(Operand<ALONG_K>& x, u32 i, float* to, const void* from, bool inside) {
    if constexpr (TYPE == F32) copy_async4(to, inside ? from : x.array, inside ? 4 : 0);
    else x.bits[i] = inside ? stored<TYPE>(from) : 0;
}

// Returns the place of element `i` of the thread's share.
template <bool ALONG_K> DEVICE constexpr u32 offset(u32 i) {
    return ALONG_K ? THREADS / 8 * (i / 2) + 8 * STRIDE * (i % 2) : THREADS / TILE * STRIDE * i;
}

// Starts to load the slice at k0, which has `left` elements along k, at least DEPTH if WHOLE. TYPE has the elements' size.
template <bool WHOLE, u32 TYPE, bool ALONG_K> DEVICE void fetch_as(Operand<ALONG_K>& x, float* slice, u32 k0, u32 left) {
    float* to = slice + x.place;
    if constexpr (ALONG_K) {
#pragma unroll
        for (u32 i = 0; i < x.COPIES; i++) {
            const void* from = element<TYPE>(element<TYPE>(x.array, x.starts[i / 2] + k0), 8 * (i % 2));
            fetch_one<TYPE>(x, i, to + offset<true>(i), from, WHOLE || x.depth + 8 * (i % 2) < left);
        }
        return;
    }
    u32 from = x.starts[0] + k0 * x.stride;
    if (TYPE == F32 && x.quads) {
        constexpr u32 DEPTHS = 4 * THREADS / TILE;
#pragma unroll
        for (u32 i = 0; i < x.COPIES / 4; i++) {
            bool inside = WHOLE || x.depth + DEPTHS * i < left;
            const void* place = element<TYPE>(x.array, from + DEPTHS * i * x.stride);
            copy_async16(to + DEPTHS * STRIDE * i, inside ? place : x.array, inside ? x.quad_bytes : 0);
        }
        return;
    }
    constexpr u32 DEPTHS = THREADS / TILE;
#pragma unroll
    for (u32 i = 0; i < x.COPIES; i++) {
        const void* place = element<TYPE>(x.array, from + DEPTHS * i * x.stride);
        fetch_one<TYPE>(x, i, to + offset<false>(i), place, WHOLE || x.depth + DEPTHS * i < left);
    }
}

template <bool WHOLE, bool ALONG_K> DEVICE void fetch(Operand<ALONG_K>& x, float* slice, u32 k0, u32 left) {
    if (x.type == F32) fetch_as<WHOLE, F32>(x, slice, k0, left);
    else if (size_of(x.type) == 1) fetch_as<WHOLE, U8>(x, slice, k0, left);
    else if (size_of(x.type) == 2) fetch_as<WHOLE, U16>(x, slice, k0, left);
    else if (x.type == F64) fetch_as<WHOLE, F64>(x, slice, k0, left);
    else fetch_as<WHOLE, U32>(x, slice, k0, left);
}

template <u32 TYPE, bool ALONG_K> DEVICE void put_as(const Operand<ALONG_K>& x, float* slice) {
    if constexpr (TYPE != F32) {
        float* to = slice + x.place;
#pragma unroll
        for (u32 i = 0; i < x.COPIES; i++) to[offset<ALONG_K>(i)] = decode<TYPE>(x.bits[i]);
    }
}

// Decodes the elements that `fetch` has loaded, into the slice.
template <bool ALONG_K> DEVICE void put(const Operand<ALONG_K>& x, float* slice) {
    BY_TYPE(x.type, TYPE, put_as<TYPE>(x, slice));
}

DEVICE void load_fragment(const float* place, float* values) {
    float4 quad = *(const float4*)place;
    values[0] = quad.x;
    values[1] = quad.y;
    values[2] = quad.z;
    values[3] = quad.w;
}

// Adds the products of a slice of each operand, from this thread's first row and column on. Unless WIDE, the right half of the tile is
// beyond n.
template <bool WIDE> DEVICE void multiply(float (&sums)[8][8], const float* a, const float* b) {
    constexpr u32 COLS = WIDE ? 8 : 4;
#pragma unroll 8
    for (u32 depth = 0; depth < DEPTH; depth++) {
        float rows[8];
        float cols[COLS];
        load_fragment(a + depth * STRIDE, rows);
        load_fragment(a + depth * STRIDE + TILE / 2, rows + 4);
        load_fragment(b + depth * STRIDE, cols);
        if constexpr (WIDE) load_fragment(b + depth * STRIDE + TILE / 2, cols + 4);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
#pragma unroll
            for (u32 j = 0; j < COLS; j++) sums[i][j] += rows[i] * cols[j];
        }
    }
}

// Stores four elements of a row of c, or adds to them.
DEVICE void store(float* c, const Params& params, u32 row, u32 col, const float* sums) {
    if (row >= params.m || col >= params.n) return;
    float* place = c + params.c0 + row * params.ldc + col;
    if (params.n - col >= 4 && ((params.c0 | params.ldc) & 3) == 0) {
        float4 quad = {0.0f, 0.0f, 0.0f, 0.0f};
        if (params.accumulate == 1) quad = *(const float4*)place;
        *(float4*)place = {quad.x + sums[0], quad.y + sums[1], quad.z + sums[2], quad.w + sums[3]};
        return;
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        if (j < params.n - col) place[j] = (params.accumulate == 1 ? place[j] : 0.0f) + sums[j];
    }
}

KERNEL(matmul, THREADS)(const void* __restrict__ a, const void* __restrict__ b, float* __restrict__ c, Params params) {
    SHARED(float, a_slices, 2 * SLICE);
    SHARED(float, b_slices, 2 * SLICE);
    u32 first_row = blockIdx.y * TILE;
    u32 first_col = blockIdx.x * TILE;
    if (params.lower == 1 && params.row0 + first_row + TILE <= params.col0 + first_col) return;
    // 32 threads are 4 x 8 neighbours. Bits 0 and 4 of a thread's number are the row's: threads whose numbers differ in bit 0 read the same
    // four columns, and in bit 1 the same four rows, and hardware serves such pairs at once.
    constexpr u32 PATCH = 4 * 8;
    u32 lane = threadIdx.x % PATCH;
    u32 patch = threadIdx.x / PATCH;
    u32 row = 4 * (4 * (patch / (SIDE / 8)) + lane % 2 + lane / 16 * 2);
    u32 col = 4 * (8 * (patch % (SIDE / 8)) + lane / 2 % 8);

    u32 first = blockIdx.z * params.depth;
    u32 terms = min(params.depth, params.k - first);
    u32 a0 = params.a0 + first * (TRANS_A == 1 ? params.lda : 1);
    u32 b0 = params.b0 + first * (TRANS_B == 1 ? 1 : params.ldb);
    auto a_operand = operand<TRANS_A == 0>(a, params.a_type, a0, params.lda, first_row, params.m);
    auto b_operand = operand<TRANS_B == 1>(b, params.b_type, b0, params.ldb, first_col, params.n);
    float sums[8][8] = {};
    bool wide = params.n - first_col > TILE / 2;
    u32 slices = div_ceil(terms, DEPTH);
    for (u32 slice = 0; slice <= slices; slice++) {
        // The previous slice is in its place. The other place is free, since all threads have read it.
        copy_wait<0>();
        __syncthreads();
        u32 next = slice % 2 * SLICE;
        if (slice < slices) {
            u32 k0 = slice * DEPTH;
            u32 left = terms - k0;
            // Narrow loads occur here once: the tests that a second copy would save are not worth its compilation.
            if (NARROW == 0 && left >= DEPTH) {
                fetch<true>(a_operand, a_slices + next, k0, left);
                fetch<true>(b_operand, b_slices + next, k0, left);
            } else {
                fetch<false>(a_operand, a_slices + next, k0, left);
                fetch<false>(b_operand, b_slices + next, k0, left);
            }
            copy_commit();
        }
        if (slice > 0) {
            const float* a_slice = a_slices + SLICE - next + row;
            const float* b_slice = b_slices + SLICE - next + col;
            if (wide) multiply<true>(sums, a_slice, b_slice);
            else multiply<false>(sums, a_slice, b_slice);
        }
        if (slice < slices) {
            put(a_operand, a_slices + next);
            put(b_operand, b_slices + next);
        }
    }
    // The step is whole rows, so it is aligned where rows are.
    c += blockIdx.z * params.c_step;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 c_row = first_row + row + (i < 4 ? i : TILE / 2 + i - 4);
        store(c, params, c_row, first_col + col, sums[i]);
        store(c, params, c_row, first_col + col + TILE / 2, sums[i] + 4);
    }
}
EXPORT(matmul)
