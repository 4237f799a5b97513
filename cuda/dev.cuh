// The hardware's operations that kernels use, with one wrapper for each PTX instruction; then the functions that kernels share. Kernels
// have no PTX and no number of threads in a warp, so that another vendor's header can replace this one.

#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static __device__ __forceinline__

// These are macros, so that the emulator sees the line of a call; an argument may have commas.
// shuffle_xor(value, mask): all 32 threads of a warp exchange their values, and each gets that of the thread `lane ^ mask`.
#define shuffle_xor(...) __shfl_xor_sync(0xffffffffu, __VA_ARGS__)
// warp_any(holds): true if it holds for any of the 32 threads of a warp.
#define warp_any(...) (__any_sync(0xffffffffu, (__VA_ARGS__)) != 0)

DEVICE void atomic_add(u32* place, u32 value) { atomicAdd(place, value); }
DEVICE void atomic_max(u32* place, u32 value) { atomicMax(place, value); }
// Adds to a place of global memory to which other threads also add.
DEVICE void add_atomic(u64* place, u64 value) { atomicAdd(place, value); }

// Returns a product that is rounded by itself, never as a part of a fused operation.
DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }

DEVICE double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// Returns a quotient within two units in the last place, for divisors from 2^-126 to 2^126.
DEVICE float fast_quotient(float a, float b) { return __fdividef(a, b); }

DEVICE u32 float_bits(float value) { return __float_as_uint(value); }
DEVICE float bits_float(u32 bits) { return __uint_as_float(bits); }
DEVICE double bits_double(u64 bits) { return __longlong_as_double((i64)bits); }
DEVICE u32 multiply_high(u32 a, u32 b) { return __umulhi(a, b); }
DEVICE u32 popcount(u32 bits) { return __popc(bits); }
// Returns four bytes: digit i of `selector` names byte i, one of `high:low`. A digit that is 8 larger spreads that byte's sign.
DEVICE u32 byte_permute(u32 low, u32 high, u32 selector) { return __byte_perm(low, high, selector); }

#ifdef CUDA_EMULATOR
// These names are the emulator's.
#define KERNEL EMULATOR_KERNEL
#define SHARED EMULATOR_SHARED
#define EXPORT EMULATOR_EXPORT
#define half_float ptx_cvt_f32_f16
#define float_half ptx_cvt_rn_f16_f32
#define copy_async16 ptx_cp_async16
#define copy_async4 ptx_cp_async4
#define copy_commit ptx_cp_async_commit_group
#define copy_wait ptx_cp_async_wait_group
#define fetch_ahead ptx_prefetch
#define dot4(a, b, sum) __dp4a((i32)(a), (i32)(b), sum)
#define load_matrix_x4_trans ptx_ldmatrix_x4_trans
#define mma_s8s8 ptx_mma_s8_s8
#else
// Declares an entry point of exactly `threads` threads a block: KERNEL(name, threads)(arguments) { ... }. With KERNEL(name, threads,
// blocks), it uses so few registers that a multiprocessor has `blocks` blocks.
#define KERNEL(name, ...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name
// Declares `count` uninitialised elements that the threads of a block share.
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
// Follows the last line of a kernel's file. The emulator makes its entry there.
#define EXPORT(name)

DEVICE float half_float(u32 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)bits));
    return value;
}

// Returns the nearest half; of two that are equally near, the even one.
DEVICE u32 float_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

DEVICE u32 shared_address(const void* place) { return (u32)__cvta_generic_to_shared(place); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Turing copies at once, since it has no copies in the background.
DEVICE void copy_async16(void* shared, const void* global, u32 bytes) {
    const u32* from = (const u32*)global;
    uint4 all = {0, 0, 0, 0};
    if (bytes == 16) all = *(const uint4*)global;
    else if (bytes > 0) {
        u32 words[3] = {};
        for (u32 i = 0; i < 3; i++) words[i] = bytes >= 4 * i + 4 ? from[i] : 0;
        all = {words[0], words[1], words[2], 0};
    }
    *(uint4*)shared = all;
}
DEVICE void copy_async4(void* shared, const void* global, u32 bytes) { *(u32*)shared = bytes == 0 ? 0 : *(const u32*)global; }
DEVICE void copy_commit() {}
template <int N> DEVICE void copy_wait() {}
#else
// Copies 16 bytes to shared memory in the background: the first `bytes` of them, then zeros. Both places are aligned.
DEVICE void copy_async16(void* shared, const void* global, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes));
}
// Copies 4 bytes to shared memory in the background: the first `bytes` of them, then zeros. Both places are aligned.
DEVICE void copy_async4(void* shared, const void* global, u32 bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes));
}
// Ends this thread's group of copies.
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;"); }
// Waits for all of this thread's groups but the last `N`; a barrier shows the bytes to the other threads.
template <int N> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#endif

// Loads the memory at a place into the L2 cache, in the background.
DEVICE void fetch_ahead(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global)); }

// Returns `sum` plus the products of the four signed bytes of `a` and `b`. (NVRTC before 12.3 declares __dp4a without a body.)
DEVICE i32 dot4(u32 a, u32 b, i32 sum) {
    i32 result;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory, transposed. Thread 8 m + r gives the aligned place of row r of matrix m.
// Thread 4 r + c gets elements (2 c, r) and (2 c + 1, r) of each matrix.
DEVICE void load_matrix_x4_trans(u32 (&values)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// d += a b by a warp. Thread 4 r + c holds, of d (16 x 8): (r, 2 c), (r, 2 c + 1), then the same of row r + 8. Of a (16
// rows of 8 words): word c of row r and of row r + 8, then word c + 4 of both. Of b (8 columns of 8 words): words c and
// c + 4 of column r. A word is four bytes along the sum, the first in the low bits.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Turing multiplies a quarter of the matrices at once.
DEVICE void mma_s8s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    for (u32 i = 0; i < 4; i++) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(d[2 * (i % 2)]), "+r"(d[2 * (i % 2) + 1])
            : "r"(a[i]), "r"(b[i / 2]));
    }
}
#else
DEVICE void mma_s8s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#endif

// The number of threads that run in step and can exchange values.
constexpr u32 WARP = 32;

// The type f64 if the argument is true, otherwise f32.
template <bool> struct RealOf {
    typedef float Real;
};
template <> struct RealOf<true> {
    typedef double Real;
};

// The codes of DType in src/dtype.rs.
enum DType : u32 { F32 = 0, F16 = 1, BF16 = 2, U8 = 3, I8 = 4, U16 = 5, I16 = 6, U32 = 7, I32 = 8, F64 = 9 };

// Returns the number of bytes of an element of a type.
DEVICE constexpr u32 size_of(u32 type) {
    return type == F64 ? 8 : type == U8 || type == I8 ? 1 : type == F16 || type == BF16 || type == U16 || type == I16 ? 2 : 4;
}
template <u32 T> constexpr u32 SIZE = size_of(T);

// Returns the place of element i of an array of type `T`.
template <u32 T> DEVICE const void* element(const void* array, u32 i) { return (const u8*)array + (u64)i * SIZE<T>; }

// Returns the bits of an element of type `T`, extended by its sign, which loads do for free; for f64, the bits of the nearest f32.
template <u32 T> DEVICE u32 stored(const void* place) {
    if constexpr (T == F64) return float_bits((float)*(const double*)place);
    else if constexpr (T == I8) return (u32)(i32)*(const i8*)place;
    else if constexpr (T == I16) return (u32)(i32)*(const i16*)place;
    else if constexpr (SIZE<T> == 1) return *(const u8*)place;
    else if constexpr (SIZE<T> == 2) return *(const u16*)place;
    else return *(const u32*)place;
}

// Returns the number that the stored bits of an element of type `T` stand for, exactly, except that 32-bit integers are rounded to nearest.
template <u32 T> DEVICE float decode(u32 bits) {
    if constexpr (T == F16) return half_float(bits);
    else if constexpr (T == BF16) return bits_float(bits << 16);
    else if constexpr (T == U8 || T == U16 || T == U32) return (float)bits;
    else if constexpr (T == I8) return (float)(i8)bits;
    else if constexpr (T == I16) return (float)(i16)bits;
    else if constexpr (T == I32) return (float)(i32)bits;
    else return bits_float(bits);
}

// Runs `action`, in which T is the type as a constant, for a type that is known at run time. All threads of a block have the same type, so
// this is one jump, or none if the compiler knows the type.
#define BY_TYPE(type, T, action) \
    switch (type) { \
        case F16: { constexpr u32 T = F16; action; break; } \
        case BF16: { constexpr u32 T = BF16; action; break; } \
        case U8: { constexpr u32 T = U8; action; break; } \
        case I8: { constexpr u32 T = I8; action; break; } \
        case U16: { constexpr u32 T = U16; action; break; } \
        case I16: { constexpr u32 T = I16; action; break; } \
        case U32: { constexpr u32 T = U32; action; break; } \
        case I32: { constexpr u32 T = I32; action; break; } \
        case F64: { constexpr u32 T = F64; action; break; } \
        default: { constexpr u32 T = F32; action; } \
    }

// Returns element i of an array of type `T` as f32.
template <u32 T> DEVICE float load(const void* array, u32 i) { return decode<T>(stored<T>(element<T>(array, i))); }

// Returns element i of an array of type `T` as f32 or f64. It is exact, except for 32-bit integers and f64 as f32.
template <u32 T, class REAL> DEVICE REAL load_real(const void* array, u32 i) {
    if constexpr (sizeof(REAL) == 4) return load<T>(array, i);
    else if constexpr (T == F64) return ((const double*)array)[i];
    else if constexpr (T == U32) return ((const u32*)array)[i];
    else if constexpr (T == I32) return ((const i32*)array)[i];
    else return load<T>(array, i);
}

// The bounds of integers of type `T`.
template <u32 T> constexpr double LEAST = T == I8 ? -128.0 : T == I16 ? -32768.0 : T == I32 ? -2147483648.0 : 0.0;
template <u32 T> constexpr double MOST = T == U8 ? 255.0 : T == I8 ? 127.0 : T == U16 ? 65535.0 : T == I16 ? 32767.0 : T == U32 ? 4294967295.0 : 2147483647.0;

template <u32 T> constexpr bool IS_INTEGER = T != F32 && T != F16 && T != BF16 && T != F64;

// Returns a number limited to the range of the integer type `T`; NaN becomes 0.
template <u32 T, class REAL> DEVICE double bounded(REAL value) {
    if (value != value) return 0;
    return value <= LEAST<T> ? LEAST<T> : value >= MOST<T> ? MOST<T> : value;
}

// Returns a number rounded towards 0 to an element of type `T`, or unchanged if that is not an integer type.
template <u32 T, class REAL> DEVICE REAL truncate_to(REAL value) {
    if constexpr (IS_INTEGER<T>) return (REAL)trunc(bounded<T>(value));
    else return value;
}

// Stores the nearest element of type `T` as element i of an array; of two that are equally near, the even one.
template <u32 T, class REAL> DEVICE void store_real(void* array, u32 i, REAL value) {
    if constexpr (T == F64) ((double*)array)[i] = value;
    else if constexpr (T == F32) ((float*)array)[i] = (float)value;
    else if constexpr (T == F16) ((u16*)array)[i] = (u16)float_half((float)value);
    else if constexpr (T == BF16) {
        u32 bits = float_bits((float)value);
        bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
        ((u16*)array)[i] = (u16)((is_nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    } else {
        double whole = rint(bounded<T>(value));
        if constexpr (T == U8) ((u8*)array)[i] = (u8)whole;
        else if constexpr (T == I8) ((i8*)array)[i] = (i8)whole;
        else if constexpr (T == U16) ((u16*)array)[i] = (u16)whole;
        else if constexpr (T == I16) ((i16*)array)[i] = (i16)whole;
        else if constexpr (T == U32) ((u32*)array)[i] = (u32)whole;
        else ((i32*)array)[i] = (i32)whole;
    }
}

// Loads elements i to i + 3 as f32, by one instruction, or by four for f64. i is a multiple of 4, and the array is aligned to 16 bytes.
template <u32 T> DEVICE void load_quad(const void* array, u32 i, float (&values)[4]) {
    if constexpr (SIZE<T> == 1) {
        u32 word = ((const u32*)array)[i / 4];
        for (u32 j = 0; j < 4; j++) values[j] = decode<T>(word >> (8 * j) & 0xff);
    } else if constexpr (SIZE<T> == 2) {
        uint2 words = ((const uint2*)array)[i / 4];
        values[0] = decode<T>(words.x & 0xffff);
        values[1] = decode<T>(words.x >> 16);
        values[2] = decode<T>(words.y & 0xffff);
        values[3] = decode<T>(words.y >> 16);
    } else if constexpr (SIZE<T> == 8) {
        for (u32 j = 0; j < 4; j++) values[j] = load<T>(array, i + j);
    } else {
        uint4 words = ((const uint4*)array)[i / 4];
        values[0] = decode<T>(words.x);
        values[1] = decode<T>(words.y);
        values[2] = decode<T>(words.z);
        values[3] = decode<T>(words.w);
    }
}

// Returns two words as one number.
DEVICE u64 join(u32 low, u32 high) { return low | (u64)high << 32; }
DEVICE u32 high_word(u64 bits) { return (u32)(bits >> 32); }
// Returns a number whose lowest `count` bits are set, up to 64.
DEVICE u64 low_bits(u32 count) { return count < 64 ? ((u64)1 << count) - 1 : ~(u64)0; }

// Loads bytes `start` to `start + 4 W - 1` of an array: the first `count`, at least one, then zeros. Reads only words that hold one of the
// first `count` bytes.
template <u32 W> DEVICE void load_bytes(const u32* array, u32 start, u32 count, u32 (&words)[W]) {
    if constexpr (W % 4 == 0) {
        if ((start & 15) == 0 && count == 4 * W) {
#pragma unroll
            for (u32 i = 0; i < W; i += 4) {
                uint4 quad = ((const uint4*)array)[(start + 4 * i) / 16];
                words[i] = quad.x;
                words[i + 1] = quad.y;
                words[i + 2] = quad.z;
                words[i + 3] = quad.w;
            }
            return;
        }
    }
    u32 shift = 8 * (start & 3);
    u32 at = start / 4;
    u32 last = (start + count - 1) / 4;
    u32 low = array[at];
#pragma unroll
    for (u32 i = 0; i < W; i++) {
        u32 high = at + i < last ? array[at + i + 1] : 0;
        u32 left = count > 4 * i ? min(count - 4 * i, 4u) : 0;
        words[i] = (u32)(join(low, high) >> shift) & (u32)low_bits(8 * left);
        low = high;
    }
}

// Stores bytes `from` to `to - 1` of an array. `bits` has the array's bytes from `first`, a multiple of `COUNT`, on.
template <u32 COUNT> DEVICE void store_bytes(u32* array, u32 first, u32 from, u32 to, u64 bits) {
    if (to - from == COUNT) {
        if constexpr (COUNT == 8) ((uint2*)array)[first / 8] = {(u32)bits, high_word(bits)};
        else array[first / 4] = (u32)bits;
        return;
    }
    for (u32 i = from; i < to; i++) ((u8*)array)[i] = (u8)(bits >> (8 * (i - first)));
}

DEVICE u32 div_ceil(u32 a, u32 b) { return a / b + (a % b > 0); }

DEVICE bool is_finite(float value) { return (float_bits(value) & 0x7f800000u) != 0x7f800000u; }
DEVICE bool is_finite(double value) { return value - value == 0; }

// Returns the number of a block in a grid that Grid::linear folded.
DEVICE u32 linear_block() { return blockIdx.y * gridDim.x + blockIdx.x; }

// The maximum number of limbs that a product of packed codes and limbs takes at once.
constexpr u32 TILE_LIMBS = 64;

// The columns of one pass of a product of packed codes and limbs. Limb t of column `first` + c is limb t `width` + c of the pass. A pass
// has all columns if their limbs are few enough, and then keeps the stored order; otherwise, passes are equally wide.
struct LimbColumns {
    u32 first;
    u32 count;
    u32 width;
    // The number of columns of all passes.
    u32 all;
};

// Returns the pass from column `first` on, over the columns `start` to `end` of `all`.
template <u32 LIMBS = 3> DEVICE LimbColumns limb_columns(u32 start, u32 end, u32 all, u32 first) {
    u32 columns = end - start;
    u32 width = div_ceil(columns, div_ceil(columns, TILE_LIMBS / LIMBS));
    return {first, min(end - first, width), width, all};
}

// Returns the number of tiles of 16 limbs that hold the limbs of a pass.
template <u32 LIMBS = 3> DEVICE u32 limb_tiles(const LimbColumns& columns) { return div_ceil(LIMBS * columns.width, 16); }

// The number of words of a tile of ROWS rows with TILE_LIMBS limbs each. After each SPAN of rows there are 8 more words, so that the
// threads of a warp, which read from the rows of four spans at once, use all banks.
template <u32 ROWS, u32 SPAN> constexpr u32 LIMB_TILE = ROWS * TILE_LIMBS + ROWS / SPAN * 8;

// Returns the place of row `row` in a tile of limbs.
template <u32 SPAN> DEVICE u32 limb_row(u32 row) { return row * TILE_LIMBS + row / SPAN * 8; }

// Starts one thread's share of the copies of `rows` rows of limbs, `stride` words apart, to a tile of at most ROWS. Words that are not
// copied meet only zeros, or sums that are not stored.
template <u32 THREADS, u32 ROWS, u32 SPAN, u32 LIMBS = 3>
DEVICE void fetch_limbs(u32* tile, const u32* limbs, u32 stride, u32 rows, const LimbColumns& columns) {
    bool whole = columns.width == columns.all;
    // Four limbs are adjacent if all columns are in the pass, or if columns come in fours.
    if (whole || (columns.width | columns.all) % 4 == 0) {
        constexpr u32 ACROSS = TILE_LIMBS / 4;
        u32 row_limb = 4 * (threadIdx.x % ACROSS);
        u32 limb = whole || LIMBS == 1 ? 0 : row_limb / columns.width;
        u32 column = row_limb - limb * columns.width;
        if (limb >= LIMBS || column >= (whole ? LIMBS * columns.all : columns.count)) return;
        limbs += limb * columns.all + columns.first + column;
#pragma unroll 4
        for (u32 i = 0; i < ROWS * ACROSS; i += THREADS) {
            u32 row = (i + threadIdx.x) / ACROSS;
            if (row >= rows) break;
            copy_async16(tile + limb_row<SPAN>(row) + row_limb, limbs + row * stride, 16);
        }
        return;
    }
    for (u32 i = threadIdx.x; i < ROWS * TILE_LIMBS; i += THREADS) {
        u32 row = i / TILE_LIMBS;
        u32 row_limb = i % TILE_LIMBS;
        u32 limb = row_limb / columns.width;
        u32 column = row_limb - limb * columns.width;
        if (row >= rows || limb >= LIMBS || column >= columns.count) continue;
        const u32* from = limbs + row * stride + limb * columns.all + columns.first + column;
        copy_async4(tile + limb_row<SPAN>(row) + row_limb, from, 4);
    }
}

// Loads words of 16 limbs of two rows of their tile as the first operand of a product. Thread 4 r + c has limbs 2 r and 2 r + 1 of its own
// two rows. In that order of limbs, two loads of 8 bytes give all words in their places.
DEVICE void load_limbs(u32 (&limbs)[4], const u32* first, const u32* second) {
    uint2 low = *(const uint2*)first;
    uint2 high = *(const uint2*)second;
    limbs[0] = low.x;
    limbs[1] = low.y;
    limbs[2] = high.x;
    limbs[3] = high.y;
}

// Stores a warp's sums of products of such limbs and 8 columns at `place`, as [8 columns][64 limbs].
DEVICE void store_sums(u32* place, const i32 (&sums)[TILE_LIMBS / 16][4]) {
    u32 lane = threadIdx.x % WARP;
    place += lane % 4 * 2 * TILE_LIMBS + lane / 4 * 2;
#pragma unroll
    for (u32 p = 0; p < TILE_LIMBS / 16; p++) {
        *(int2*)(place + 16 * p) = {sums[p][0], sums[p][2]};
        *(int2*)(place + TILE_LIMBS + 16 * p) = {sums[p][1], sums[p][3]};
    }
}
