// Each instruction that cuda/dev.cuh wraps, on the values of one warp.
// Grid: one block of 32 threads.
// Bindings: those of each kernel.
// Constants: none.

#include "dev.cuh"

// out[i] = in[i ^ mask]
KERNEL(shuffle, 32)(const u32* in, u32* out, u32 mask) { out[threadIdx.x] = shuffle_xor(in[threadIdx.x], mask); }
EXPORT(shuffle)

// out[0] = the sum of all `in`; out[1 + i] = whether any of them is `value`.
KERNEL(together, 32)(const u32* in, u64* out, u32 value) {
    u32 own = in[threadIdx.x];
    if (threadIdx.x == 0) out[0] = 0;
    __syncthreads();
    add_atomic(out, (u64)own << 8);
    out[1 + threadIdx.x] = warp_any(own == value);
}
EXPORT(together)

// out[i] = a[i] b[i]
KERNEL(float_products, 32)(const float* a, const float* b, float* out) {
    out[threadIdx.x] = rounded_product(a[threadIdx.x], b[threadIdx.x]);
}
EXPORT(float_products)

// Eight results of each thread's pair of words.
KERNEL(words, 32)(const u32* a, const u32* b, u32* out) {
    u32 x = a[threadIdx.x], y = b[threadIdx.x];
    u32* own = out + 8 * threadIdx.x;
    own[0] = popcount(x);
    own[1] = byte_permute(x, y, 0x7531);
    own[2] = byte_permute(x, y, 0xfa60);
    own[3] = (u32)dot4(x, y, 5);
    own[4] = multiply_high(x, y);
    own[5] = float_bits(half_float(x & 0xffff));
    own[6] = float_bits(half_float(x >> 16));
    own[7] = float_bits(bits_float(y));
}
EXPORT(words)

// d (16, 8) = a (16, 32) b, where b's columns (8, 32) stand as rows; with_signs: a is signed.
template <class T, bool with_signs> DEVICE void bytes_product(const T* a, const i8* b, i32* d) {
    SHARED(u8, tile, 16 * 32);
    for (u32 i = threadIdx.x; i < 16 * 32; i += 32) tile[i] = (u8)a[i];
    __syncthreads();
    u32 lane = threadIdx.x, row = lane / 4, place = lane % 4;
    u32 of_a[4];
    // The matrices: rows 0.., rows 8.., then the same of the last 16 bytes.
    load_matrix_x4(of_a, &tile[(lane % 16) * 32 + lane / 16 * 16]);
    const u32* words = (const u32*)b;
    u32 of_b[2] = {words[row * 8 + place], words[row * 8 + place + 4]};
    i32 sums[4] = {};
    if constexpr (with_signs) mma_s8s8(sums, of_a, of_b);
    else mma_u8s8(sums, of_a, of_b);
    for (u32 i = 0; i < 4; i++) d[(row + i / 2 * 8) * 8 + 2 * place + i % 2] = sums[i];
}

KERNEL(signed_product, 32)(const i8* a, const i8* b, i32* d) { bytes_product<i8, true>(a, b, d); }
EXPORT(signed_product)

KERNEL(unsigned_product, 32)(const u8* a, const i8* b, i32* d) { bytes_product<u8, false>(a, b, d); }
EXPORT(unsigned_product)

// d (16, 16) = a (16, 16) b (16, 16), all by rows; a and b are f16.
KERNEL(half_product, 32)(const u16* a, const u16* b, float* d) {
    SHARED(u16, tile_a, 16 * 16);
    SHARED(u16, tile_b, 16 * 16);
    u32 lane = threadIdx.x;
    // 32 threads, 16 bytes each.
    copy_async16(&tile_a[8 * lane], &a[8 * lane], 16);
    copy_async16(&tile_b[8 * lane], &b[8 * lane], 16);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    u32 of_a[4], of_b[4];
    load_matrix_x4(of_a, &tile_a[(lane % 16) * 16 + lane / 16 * 8]);
    // Rows 0.. and 8.. of the first 8 columns, then of the last: two pairs of registers.
    load_matrix_x4_trans(of_b, &tile_b[(lane % 16) * 16 + lane / 16 * 8]);
    for (u32 half = 0; half < 2; half++) {
        u32 pair[2] = {of_b[2 * half], of_b[2 * half + 1]};
        float sums[4] = {};
        mma_f16(sums, of_a, pair);
        for (u32 i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 16 + 8 * half + 2 * (lane % 4) + i % 2] = sums[i];
    }
}
EXPORT(half_product)
