// Matrix product: c[m, n] (+)= op(a)[m, k] op(b)[k, n] in f32, decoded as it is loaded.
// Grid: one block per TILE x TILE block of c; x = blocks of columns, y = blocks of rows.
// Bindings: 0 a read; 1 b read; 2 c (rows of ldc) f32 read_write; 3 params, strides and starts in elements.
// Constants: TILE 64 or 128; TRANS_A a is (k, m); TRANS_B b is (n, k); A_TYPE, B_TYPE; LOWER leaves out blocks above the diagonal.

#include "dev.cuh"

struct Params {
    u32 m;
    u32 n;
    u32 k;
    u32 lda;
    u32 ldb;
    u32 ldc;
    u32 a0;
    u32 b0;
    u32 c0;
    u32 accumulate;
    u32 row0;
    u32 col0;
};

constexpr u32 TILE = 64;
constexpr u32 TRANS_A = 0;
constexpr u32 TRANS_B = 0;
constexpr u32 A_TYPE = 0;
constexpr u32 B_TYPE = 0;
constexpr u32 LOWER = 0;

// Threads along each side. Each makes 8 x 8 elements of c, as four blocks of 4 x 4 that lie half a tile apart.
constexpr u32 SIDE = TILE / 8;
constexpr u32 THREADS = SIDE * SIDE;
// Extent along k of what a block holds at once.
constexpr u32 DEPTH = 16;
// Elements from one depth of a slice to the next.
constexpr u32 STRIDE = TILE + 4;
constexpr u32 SLICE = DEPTH * STRIDE;

// One thread's share of the slices of an operand: [k][tile] in shared memory, of an array whose rows lie along k or along
// the tile. What lies beyond the tile's end repeats its last element, since it reaches only elements of c that are not
// stored; what lies beyond k is zero.
template <u32 TYPE, bool ALONG_K> struct Operand {
    static constexpr u32 COPIES = TILE * DEPTH / THREADS;
    const void* array;
    u32 stride;
    // Where the tile's row of the array starts, for each of the thread's places along the tile.
    u32 starts[ALONG_K ? COPIES / 2 : 1];
    // Whether rows are aligned to 16 bytes, and then this thread's four elements and bytes of those inside the tile.
    bool quads;
    u32 quad_start;
    u32 quad_bytes;
    // Narrow elements on their way.
    u32 bits[TYPE == F32 ? 1 : COPIES];
};

// The thread's i-th place in a slice. Along k, 8 threads share a row, so that 32 of them write to 32 banks.
template <bool ALONG_K> DEVICE u32 place_depth(u32 i) {
    return ALONG_K ? threadIdx.x % 8 + 8 * (i % 2) : threadIdx.x / TILE + THREADS / TILE * i;
}
template <bool ALONG_K> DEVICE u32 place_along(u32 i) {
    return ALONG_K ? threadIdx.x / 8 + THREADS / 8 * (i / 2) : threadIdx.x % TILE;
}

template <u32 TYPE, bool ALONG_K>
DEVICE Operand<TYPE, ALONG_K> operand(const void* array, u32 start, u32 stride, u32 first, u32 extent) {
    Operand<TYPE, ALONG_K> operand;
    operand.array = array;
    operand.stride = stride;
    if constexpr (ALONG_K) {
#pragma unroll
        for (u32 i = 0; i < operand.COPIES / 2; i++) {
            operand.starts[i] = start + min(first + place_along<true>(2 * i), extent - 1) * stride;
        }
    } else {
        operand.starts[0] = start + min(first + place_along<false>(0), extent - 1);
        u32 along = first + 4 * (threadIdx.x % (TILE / 4));
        operand.quads = TYPE == F32 && ((start | stride) & 3) == 0;
        operand.quad_start = start + (along < extent ? along : 0);
        operand.quad_bytes = along < extent ? 4 * min(extent - along, 4u) : 0;
    }
    return operand;
}

// Starts to load the slice at k0, of which `left` elements lie along k: f32 straight to its place.
template <bool WHOLE, u32 TYPE, bool ALONG_K>
DEVICE void fetch(Operand<TYPE, ALONG_K>& operand, float* slice, u32 k0, u32 left) {
    const float* floats = (const float*)operand.array;
    if constexpr (TYPE == F32 && !ALONG_K) {
        if (operand.quads) {
            u32 depth = threadIdx.x / (TILE / 4);
            u32 place = depth * STRIDE + 4 * (threadIdx.x % (TILE / 4));
#pragma unroll
            for (u32 i = 0; i < operand.COPIES / 4; i++) {
                bool inside = WHOLE || depth < left;
                u32 index = operand.quad_start + (k0 + depth) * operand.stride;
                copy_async16(slice + place, floats + (inside ? index : 0), inside ? operand.quad_bytes : 0);
                depth += 4 * THREADS / TILE;
                place += 4 * THREADS / TILE * STRIDE;
            }
            return;
        }
    }
#pragma unroll
    for (u32 i = 0; i < operand.COPIES; i++) {
        u32 depth = place_depth<ALONG_K>(i);
        bool inside = WHOLE || depth < left;
        u32 index = ALONG_K ? operand.starts[i / 2] + k0 + depth : operand.starts[0] + (k0 + depth) * operand.stride;
        if constexpr (TYPE == F32) {
            copy_async4(slice + depth * STRIDE + place_along<ALONG_K>(i), floats + (inside ? index : 0), inside ? 4 : 0);
        } else {
            operand.bits[i] = inside ? stored<TYPE>(operand.array, index) : 0;
        }
    }
}

// Decodes what `fetch` has on its way into the slice.
template <u32 TYPE, bool ALONG_K> DEVICE void put(const Operand<TYPE, ALONG_K>& operand, float* slice) {
    if constexpr (TYPE != F32) {
#pragma unroll
        for (u32 i = 0; i < operand.COPIES; i++) {
            slice[place_depth<ALONG_K>(i) * STRIDE + place_along<ALONG_K>(i)] = decode<TYPE>(operand.bits[i]);
        }
    }
}

DEVICE void load_fragment(const float* place, float* values) {
    float4 quad = *(const float4*)place;
    values[0] = quad.x;
    values[1] = quad.y;
    values[2] = quad.z;
    values[3] = quad.w;
}

// Adds the products of a slice of each operand, from this thread's first row and column on. Unless WIDE, the right half of
// the tile lies beyond n.
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

// Four elements of a row of c.
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
    if (LOWER == 1 && params.row0 + first_row + TILE <= params.col0 + first_col) return;
    // Of 32 threads, 4 x 8 neighbours: bits 0 and 4 of the number are the row's, so that threads whose numbers differ in
    // bit 0 read the same four columns, and in bit 1 the same four rows: hardware serves such pairs at once.
    constexpr u32 PATCH = 4 * 8;
    u32 lane = threadIdx.x % PATCH;
    u32 patch = threadIdx.x / PATCH;
    u32 row = 4 * (4 * (patch / (SIDE / 8)) + lane % 2 + lane / 16 * 2);
    u32 col = 4 * (8 * (patch % (SIDE / 8)) + lane / 2 % 8);

    auto a_operand = operand<A_TYPE, TRANS_A == 0>(a, params.a0, params.lda, first_row, params.m);
    auto b_operand = operand<B_TYPE, TRANS_B == 1>(b, params.b0, params.ldb, first_col, params.n);
    float sums[8][8] = {};
    bool wide = params.n - first_col > TILE / 2;
    u32 slices = div_ceil(params.k, DEPTH);
    for (u32 slice = 0; slice <= slices; slice++) {
        // The slice before is in its place; the other place is free, since all have read it.
        copy_wait<0>();
        __syncthreads();
        u32 next = slice % 2 * SLICE;
        if (slice < slices) {
            u32 k0 = slice * DEPTH;
            u32 left = params.k - k0;
            if (left >= DEPTH) {
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
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 c_row = first_row + row + (i < 4 ? i : TILE / 2 + i - 4);
        store(c, params, c_row, first_col + col, sums[i]);
        store(c, params, c_row, first_col + col + TILE / 2, sums[i] + 4);
    }
}
EXPORT(matmul)
