// Matrix product in f64: c[m, n] (+)= op(a)[m, k] op(b)[k, n].
// Grid: one block per TILE x TILE block of c; x = blocks of columns, y = blocks of rows. A launch computes one product.
// Bindings: 0 a f64 read; 1 b f64 read; 2 c (rows of ldc) f64 read_write; 3 params, strides and starts in elements.
// Constants: TILE 64; TRANS_A a is (k, m); TRANS_B b is (n, k); NARROW is not used.
// Hardware: this plain kernel serves devices without cuBLAS. A thread computes 4 x 4 elements with 8 loads from shared memory for 16
// products. Consumer GPUs compute two products of f64 a cycle on each multiprocessor, so loads do not limit them.

#include "dev.cuh"

constexpr u32 TILE = 64;
constexpr u32 TRANS_A = 0;
constexpr u32 TRANS_B = 0;
constexpr u32 NARROW = 0;

// The number of threads along each side. Each thread computes 4 x 4 elements of c, which are SIDE apart.
constexpr u32 SIDE = TILE / 4;
constexpr u32 THREADS = SIDE * SIDE;
// The extent along k of the slices that a block holds at once.
constexpr u32 DEPTH = 16;
// One more than the elements of a depth, so that elements that are transposed are written to many banks.
constexpr u32 STRIDE = TILE + 1;

// Copies a slice [k][tile] of an operand whose rows are along k or along the tile. Elements beyond its ends are 0.
template <bool ALONG_K>
DEVICE void fetch(double* slice, const double* array, u32 stride, u32 first, u32 extent, u32 k0, u32 k) {
#pragma unroll
    for (u32 i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        u32 along = ALONG_K ? i / DEPTH : i % TILE;
        u32 depth = ALONG_K ? i % DEPTH : i / TILE;
        u32 place = ALONG_K ? (first + along) * stride + k0 + depth : (k0 + depth) * stride + first + along;
        slice[depth * STRIDE + along] = first + along < extent && k0 + depth < k ? array[place] : 0.0;
    }
}

KERNEL(matmul_f64, THREADS)(const double* __restrict__ a, const double* __restrict__ b, double* __restrict__ c, Params params) {
    SHARED(double, a_slice, DEPTH * STRIDE);
    SHARED(double, b_slice, DEPTH * STRIDE);
    u32 first_row = blockIdx.y * TILE;
    u32 first_col = blockIdx.x * TILE;
    if (params.lower == 1 && params.row0 + first_row + TILE <= params.col0 + first_col) return;
    u32 row = threadIdx.x / SIDE;
    u32 col = threadIdx.x % SIDE;
    double sums[4][4] = {};
    for (u32 k0 = 0; k0 < params.k; k0 += DEPTH) {
        __syncthreads();
        fetch<TRANS_A == 0>(a_slice, a + params.a0, params.lda, first_row, params.m, k0, params.k);
        fetch<TRANS_B == 1>(b_slice, b + params.b0, params.ldb, first_col, params.n, k0, params.k);
        __syncthreads();
#pragma unroll 4
        for (u32 depth = 0; depth < DEPTH; depth++) {
            double rows[4];
            double cols[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                rows[i] = a_slice[depth * STRIDE + row + i * SIDE];
                cols[i] = b_slice[depth * STRIDE + col + i * SIDE];
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) sums[i][j] += rows[i] * cols[j];
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 c_row = first_row + row + i * SIDE;
            u32 c_col = first_col + col + j * SIDE;
            if (c_row >= params.m || c_col >= params.n) continue;
            double* place = c + params.c0 + c_row * params.ldc + c_col;
            *place = (params.accumulate == 1 ? *place : 0.0) + sums[i][j];
        }
    }
}
EXPORT(matmul_f64)
