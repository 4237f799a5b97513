// The names of cuda/dev.cuh for a host C++ compiler, and what CUDA has in scope by itself. Each kernel is compiled with
// this into a shared object that the emulator's libcuda loads. It includes no standard header: that would take longer
// to compile than the kernel.

#pragma once

#include "abi.h"

#define DEVICE static inline
template <class... Rest> constexpr u32 emulator_first(u32 first, Rest...) { return first; }
#define KERNEL(name, ...) \
    enum : u32 { name##_threads = emulator_first(__VA_ARGS__) }; \
    static void name
// Bound by reference, so that it is an array as in CUDA.
#define SHARED(type, name, count) \
    static char name##_tag; \
    type (&name)[count] = *(type (*)[count])emulator_shared(&name##_tag, #name, sizeof(type) * (count))
#define EXPORT(name) \
    extern "C" __attribute__((visibility("default"))) const EmulatorKernel name##_emulator = { \
        #name, \
        name##_threads, \
        EmulatorEntry<decltype(&name)>::count, \
        EmulatorEntry<decltype(&name)>::sizes, \
        EmulatorEntry<decltype(&name)>::pointers, \
        EmulatorEntry<decltype(&name)>::written, \
        EmulatorEntry<decltype(&name)>::run<&name>, \
    };

template <class T> struct EmulatorPointer { static constexpr bool is = false, is_written = false; };
template <class T> struct EmulatorPointer<T*> { static constexpr bool is = true, is_written = true; };
template <class T> struct EmulatorPointer<const T*> { static constexpr bool is = true, is_written = false; };
template <class T> struct EmulatorPointer<T* __restrict__> : EmulatorPointer<T*> {};
template <unsigned... I> struct EmulatorIndices {};
template <unsigned N, unsigned... I> struct EmulatorCount : EmulatorCount<N - 1, N - 1, I...> {};
template <unsigned... I> struct EmulatorCount<0, I...> { typedef EmulatorIndices<I...> type; };

// A kernel's arguments by its own type.
template <class F> struct EmulatorEntry;
template <class... A> struct EmulatorEntry<void (*)(A...)> {
    static constexpr unsigned count = sizeof...(A);
    static constexpr unsigned sizes[] = {sizeof(A)...};
    static constexpr bool pointers[] = {EmulatorPointer<A>::is...};
    static constexpr bool written[] = {EmulatorPointer<A>::is_written...};

    template <void (*kernel)(A...), unsigned... I> static void unpack(void** arguments, EmulatorIndices<I...>) {
        kernel(*(A*)arguments[I]...);
    }
    template <void (*kernel)(A...)> static void run(void** arguments) {
        unpack<kernel>(arguments, typename EmulatorCount<count>::type());
    }
};

#define threadIdx (emulator_thread()->index)
#define blockIdx (emulator_thread()->block->index)
#define blockDim (emulator_thread()->block->threads)
#define gridDim (emulator_thread()->block->grid)
// Here and below, `line` is the caller's.
static inline void __syncthreads(unsigned line = __builtin_LINE()) { emulator_barrier(line); }

// Vectors, aligned as CUDA's.
#define EMULATOR_VECTOR(scalar, name) \
    struct alignas(2 * sizeof(scalar)) name##2 { scalar x, y; }; \
    struct alignas(4 * sizeof(scalar)) name##4 { scalar x, y, z, w; }; \
    DEVICE name##2 make_##name##2(scalar x, scalar y) { return {x, y}; } \
    DEVICE name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(unsigned int, uint)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(unsigned short, ushort)
EMULATOR_VECTOR(signed char, char)
EMULATOR_VECTOR(unsigned char, uchar)
#undef EMULATOR_VECTOR

#define EMULATOR_ORDER(type) \
    DEVICE type min(type a, type b) { return b < a ? b : a; } \
    DEVICE type max(type a, type b) { return a < b ? b : a; }
EMULATOR_ORDER(int)
EMULATOR_ORDER(unsigned int)
EMULATOR_ORDER(long long)
EMULATOR_ORDER(unsigned long long)
#undef EMULATOR_ORDER

// Functions of one number; CUDA has the ones without `f` for float too.
#define EMULATOR_MATH(name) \
    DEVICE float name##f(float x) { return __builtin_##name##f(x); } \
    DEVICE float name(float x) { return __builtin_##name##f(x); } \
    DEVICE double name(double x) { return __builtin_##name(x); }
EMULATOR_MATH(sqrt)
EMULATOR_MATH(fabs)
EMULATOR_MATH(floor)
EMULATOR_MATH(ceil)
EMULATOR_MATH(rint)
EMULATOR_MATH(round)
EMULATOR_MATH(trunc)
EMULATOR_MATH(exp)
EMULATOR_MATH(exp2)
EMULATOR_MATH(log)
EMULATOR_MATH(log2)
EMULATOR_MATH(log1p)
EMULATOR_MATH(atanh)
EMULATOR_MATH(sin)
EMULATOR_MATH(cos)
#undef EMULATOR_MATH
DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float fminf(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE double fmax(double a, double b) { return __builtin_fmax(a, b); }
DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float powf(float x, float y) { return __builtin_powf(x, y); }
DEVICE float pow(float x, float y) { return __builtin_powf(x, y); }
DEVICE double pow(double x, double y) { return __builtin_pow(x, y); }
DEVICE float ldexpf(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
DEVICE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
DEVICE int abs(int x) { return x < 0 ? -x : x; }

DEVICE float fast_quotient(float a, float b) { return a / b; }

DEVICE u32 float_bits(float value) { return __builtin_bit_cast(u32, value); }
DEVICE float bits_float(u32 bits) { return __builtin_bit_cast(float, bits); }
DEVICE double bits_double(u64 bits) { return __builtin_bit_cast(double, bits); }
DEVICE u32 multiply_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
DEVICE void atomic_add(u32* place, u32 value) { emulator_atomic(EMULATOR_ADD, place, value); }
DEVICE void atomic_max(u32* place, u32 value) { emulator_atomic(EMULATOR_MAX, place, value); }
DEVICE void add_atomic(u64* place, u64 value) { emulator_atomic(EMULATOR_ADD_LONG, place, value); }
DEVICE u32 popcount(u32 bits) { return (u32)__builtin_popcount(bits); }

DEVICE float half_float(u32 bits) {
    u32 sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    // A subnormal half is its fraction times 2^-24, exactly.
    if (exponent == 0) return bits_float(sign | float_bits((float)fraction * 0x1p-24f));
    return bits_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}

DEVICE u32 float_half(float value) {
    u32 bits = float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7e00;
    // From halfway between the largest half and the next power of two on.
    if (size >= 0x477ff000) return sign | 0x7c00;
    // A subnormal half is a multiple of 2^-24: a sum with 0.5 rounds to these.
    if (size < 0x38800000) return sign | (float_bits(bits_float(size) + 0.5f) - 0x3f000000);
    return sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
}

DEVICE u32 byte_permute(u32 low, u32 high, u32 selector) {
    u64 bytes = low | (u64)high << 32;
    u32 result = 0;
    for (u32 i = 0; i < 4; i++) {
        u32 choice = selector >> (4 * i) & 15;
        u32 byte = (u32)(bytes >> (8 * (choice & 7))) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

DEVICE i32 dot4(u32 a, u32 b, i32 sum) {
    for (u32 i = 0; i < 4; i++) sum += (i32)(i8)(a >> (8 * i)) * (i32)(i8)(b >> (8 * i));
    return sum;
}

template <class T> DEVICE T shuffle_xor(T value, u32 mask, u32 line = __builtin_LINE()) {
    const u8* all = emulator_exchange(&value, sizeof value, line, nullptr);
    T other;
    __builtin_memcpy(&other, all + 32 * ((emulator_thread()->number ^ mask) & 31), sizeof other);
    return other;
}

DEVICE bool warp_any(bool holds, u32 line = __builtin_LINE()) {
    const u8* all = emulator_exchange(&holds, 1, line, nullptr);
    u32 any = 0;
    for (u32 i = 0; i < 32; i++) any |= all[32 * i];
    return any != 0;
}

// Where the compiler does not see that it is a product, which it would fuse with what follows.
template <class T> DEVICE T rounded_product(T a, T b) {
    T product = a * b;
#if defined(__x86_64__)
    asm("" : "+x"(product));
#else
    asm("" : "+w"(product));
#endif
    return product;
}

DEVICE void copy_async16(void* shared, const void* global, u32 bytes) { emulator_copy_async(shared, global, 16, bytes); }
DEVICE void copy_async4(void* shared, const void* global, u32 bytes) { emulator_copy_async(shared, global, 4, bytes); }
DEVICE void copy_commit() { emulator_copy_commit(); }
template <int N> DEVICE void copy_wait() { emulator_copy_wait(N); }
// Only what may be read may be fetched.
DEVICE void fetch_ahead(const void* global) { (void)*(const volatile u8*)global; }

// ldmatrix: thread 8 m + r names row r of matrix m. `transposed`: element (2 (lane % 4) + h, lane / 4) instead of
// (lane / 4, 2 (lane % 4) + h).
DEVICE void emulator_load_matrix(u32 (&values)[4], const void* row, bool transposed, u32 line) {
    emulator_check_row(row);
    u8 eight[16];
    __builtin_memcpy(eight, row, 16);
    const u8* places = emulator_exchange(eight, 16, line, nullptr);
    u32 lane = emulator_thread()->number & 31;
    for (u32 m = 0; m < 4; m++) {
        values[m] = 0;
        for (u32 h = 0; h < 2; h++) {
            u32 r = transposed ? 2 * (lane & 3) + h : lane >> 2;
            u32 c = transposed ? lane >> 2 : 2 * (lane & 3) + h;
            u16 element;
            __builtin_memcpy(&element, places + 32 * (8 * m + r) + 2 * c, 2);
            values[m] |= (u32)element << (16 * h);
        }
    }
}
DEVICE void load_matrix_x4(u32 (&values)[4], const void* row, u32 line = __builtin_LINE()) {
    emulator_load_matrix(values, row, false, line);
}
DEVICE void load_matrix_x4_trans(u32 (&values)[4], const void* row, u32 line = __builtin_LINE()) {
    emulator_load_matrix(values, row, true, line);
}

// mma.m16n8: word w of a row of A or a column of B stands with thread `w % 4` of its group of four, in the half `w / 4`
// of its registers. The thread that comes last makes all sums of the warp, rows of eight columns at once, and leaves each
// thread its own four. `Dot`: the type of sums, and terms i of COUNT in a word of A and of B.
template <class Dot> static void emulator_multiply(u8* all) {
    typedef typename Dot::Sum Sum;
    typedef Sum Row __attribute__((vector_size(8 * sizeof(Sum))));
    constexpr u32 TERMS = 8 * Dot::COUNT;
    Sum a[16][TERMS];
    union { Row row; Sum each[8]; } b[TERMS], sums[16];
    for (u32 lane = 0; lane < 32; lane++) {
        u32 own[6];
        __builtin_memcpy(own, all + 32 * lane, sizeof own);
        for (u32 half = 0; half < 2; half++) {
            for (u32 i = 0; i < Dot::COUNT; i++) {
                u32 term = (4 * half + lane % 4) * Dot::COUNT + i;
                a[lane / 4][term] = Dot::of_a(own[2 * half], i);
                a[lane / 4 + 8][term] = Dot::of_a(own[2 * half + 1], i);
                b[term].each[lane / 4] = Dot::of_b(own[4 + half], i);
            }
        }
    }
    for (u32 row = 0; row < 16; row += 4) {
        Row four[4] = {};
        for (u32 term = 0; term < TERMS; term++) {
            four[0] += a[row][term] * b[term].row;
            four[1] += a[row + 1][term] * b[term].row;
            four[2] += a[row + 2][term] * b[term].row;
            four[3] += a[row + 3][term] * b[term].row;
        }
        for (u32 i = 0; i < 4; i++) sums[row + i].row = four[i];
    }
    for (u32 lane = 0; lane < 32; lane++) {
        __builtin_memcpy(all + 32 * lane, &sums[lane / 4].each[2 * (lane % 4)], 2 * sizeof(Sum));
        __builtin_memcpy(all + 32 * lane + 2 * sizeof(Sum), &sums[lane / 4 + 8].each[2 * (lane % 4)], 2 * sizeof(Sum));
    }
}
template <class Dot, class D> DEVICE void emulator_mma(D (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 line) {
    u32 own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const u8* all = emulator_exchange(own, sizeof own, line, emulator_multiply<Dot>);
    typename Dot::Sum sums[4];
    __builtin_memcpy(sums, all + 32 * (emulator_thread()->number & 31), sizeof sums);
    for (u32 i = 0; i < 4; i++) d[i] = (D)(d[i] + sums[i]);
}
struct EmulatorS8S8 {
    typedef i32 Sum;
    static constexpr u32 COUNT = 4;
    static i32 of_a(u32 word, u32 i) { return (i8)(word >> (8 * i)); }
    static i32 of_b(u32 word, u32 i) { return (i8)(word >> (8 * i)); }
};
struct EmulatorU8S8 : EmulatorS8S8 {
    static i32 of_a(u32 word, u32 i) { return (u8)(word >> (8 * i)); }
};
// Hardware adds with some more bits than f32 and rounds in its own way; f64, rounded once, is between all of those.
struct EmulatorF16 {
    typedef double Sum;
    static constexpr u32 COUNT = 2;
    static double of_a(u32 word, u32 i) { return half_float(word >> (16 * i) & 0xffff); }
    static double of_b(u32 word, u32 i) { return of_a(word, i); }
};
DEVICE void mma_s8s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 line = __builtin_LINE()) {
    emulator_mma<EmulatorS8S8>(d, a, b, line);
}
DEVICE void mma_u8s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 line = __builtin_LINE()) {
    emulator_mma<EmulatorU8S8>(d, a, b, line);
}
DEVICE void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 line = __builtin_LINE()) {
    emulator_mma<EmulatorF16>(d, a, b, line);
}
