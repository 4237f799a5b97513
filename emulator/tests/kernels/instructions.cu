// Functions that wrap an instruction, on the values of one warp.
// Grid: one block of 32 threads.

// out[i] = in[i ^ mask]
EMULATOR_KERNEL(shuffle, 32)(const unsigned* in, unsigned* out, unsigned mask) {
    out[threadIdx.x] = __shfl_xor_sync(~0u, in[threadIdx.x], mask);
}
EMULATOR_EXPORT(shuffle)

// out[0] = the sum of all `in`; out[1 + i] = whether any of them is `value`.
EMULATOR_KERNEL(together, 32)(const unsigned* in, unsigned long long* out, unsigned value) {
    unsigned own = in[threadIdx.x];
    if (threadIdx.x == 0) out[0] = 0;
    __syncthreads();
    atomicAdd(out, (unsigned long long)own << 8);
    out[1 + threadIdx.x] = __any_sync(~0u, own == value);
}
EMULATOR_EXPORT(together)

// out[i] = a[i] b[i]
EMULATOR_KERNEL(float_products, 32)(const float* a, const float* b, float* out) {
    out[threadIdx.x] = __fmul_rn(a[threadIdx.x], b[threadIdx.x]);
}
EMULATOR_EXPORT(float_products)

// Nine results of each thread's pair of words.
EMULATOR_KERNEL(words, 32)(const unsigned* a, const unsigned* b, unsigned* out) {
    unsigned x = a[threadIdx.x], y = b[threadIdx.x];
    unsigned* own = out + 9 * threadIdx.x;
    own[0] = __popc(x);
    own[1] = __byte_perm(x, y, 0x7531);
    own[2] = __byte_perm(x, y, 0xfa60);
    own[3] = (unsigned)__dp4a((int)x, (int)y, 5);
    own[4] = __umulhi(x, y);
    own[5] = __float_as_uint(ptx_cvt_f32_f16(x & 0xffff));
    own[6] = __float_as_uint(ptx_cvt_f32_f16(x >> 16));
    own[7] = __float_as_uint(__uint_as_float(y));
    own[8] = __dp4a(x, y, 5u);
}
EMULATOR_EXPORT(words)

// d (16, 8) = a (16, 32) b, where b's columns (8, 32) stand as rows; with_signs: a is signed.
template <class T, bool with_signs> static __device__ void bytes_product(const T* a, const signed char* b, int* d) {
    EMULATOR_SHARED(unsigned char, tile, 16 * 32);
    for (unsigned i = threadIdx.x; i < 16 * 32; i += 32) tile[i] = (unsigned char)a[i];
    __syncthreads();
    unsigned lane = threadIdx.x, row = lane / 4, place = lane % 4;
    unsigned of_a[4];
    // The matrices: rows 0.., rows 8.., then the same of the last 16 bytes.
    ptx_ldmatrix_x4(of_a, &tile[(lane % 16) * 32 + lane / 16 * 16]);
    const unsigned* words = (const unsigned*)b;
    unsigned of_b[2] = {words[row * 8 + place], words[row * 8 + place + 4]};
    int sums[4] = {};
    if constexpr (with_signs) ptx_mma_s8_s8(sums, of_a, of_b);
    else ptx_mma_u8_s8(sums, of_a, of_b);
    for (unsigned i = 0; i < 4; i++) d[(row + i / 2 * 8) * 8 + 2 * place + i % 2] = sums[i];
}

EMULATOR_KERNEL(signed_product, 32)(const signed char* a, const signed char* b, int* d) {
    bytes_product<signed char, true>(a, b, d);
}
EMULATOR_EXPORT(signed_product)

EMULATOR_KERNEL(unsigned_product, 32)(const unsigned char* a, const signed char* b, int* d) {
    bytes_product<unsigned char, false>(a, b, d);
}
EMULATOR_EXPORT(unsigned_product)

// d (16, 16) = a (16, 16) b (16, 16), all by rows; a and b are f16.
EMULATOR_KERNEL(half_product, 32)(const unsigned short* a, const unsigned short* b, float* d) {
    EMULATOR_SHARED(unsigned short, tile_a, 16 * 16);
    EMULATOR_SHARED(unsigned short, tile_b, 16 * 16);
    unsigned lane = threadIdx.x;
    // 32 threads, 16 bytes each.
    ptx_cp_async16(&tile_a[8 * lane], &a[8 * lane], 16);
    ptx_cp_async16(&tile_b[8 * lane], &b[8 * lane], 16);
    ptx_cp_async_commit_group();
    ptx_cp_async_wait_group<0>();
    __syncthreads();
    unsigned of_a[4], of_b[4];
    ptx_ldmatrix_x4(of_a, &tile_a[(lane % 16) * 16 + lane / 16 * 8]);
    // Rows 0.. and 8.. of the first 8 columns, then of the last: two pairs of registers.
    ptx_ldmatrix_x4_trans(of_b, &tile_b[(lane % 16) * 16 + lane / 16 * 8]);
    for (unsigned half = 0; half < 2; half++) {
        unsigned pair[2] = {of_b[2 * half], of_b[2 * half + 1]};
        float sums[4] = {};
        ptx_mma_f16(sums, of_a, pair);
        for (unsigned i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 16 + 8 * half + 2 * (lane % 4) + i % 2] = sums[i];
    }
}
EMULATOR_EXPORT(half_product)
