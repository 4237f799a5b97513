// The names that CUDA defines without a header, for a host C++ compiler, and the emulator's own names for kernels, shared arrays and PTX
// instructions. This file comes before each kernel source. It includes no standard header, which would take longer to compile than the
// kernel.

#pragma once

#include "abi.h"
#include "half.h"

#define __device__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)

// Defines a kernel of blocks of at most `threads` threads: EMULATOR_KERNEL(name, threads)(arguments) { ... }. Further arguments after
// `threads`, as in __launch_bounds__, are ignored.
template <class... Rest> constexpr unsigned emulator_first(unsigned first, Rest...) { return first; }
#define EMULATOR_KERNEL(name, ...) \
    enum : unsigned { name##_threads = emulator_first(__VA_ARGS__) }; \
    static void name
// Declares an array of `count` elements that the block shares. It is a reference to an array, so that it has an array's type, as in CUDA.
#define EMULATOR_SHARED(type, name, count) \
    static char name##_tag; \
    type (&name)[count] = *(type (*)[count])emulator_shared(&name##_tag, #name, sizeof(type) * (count))
// Makes a kernel known to cuModuleGetFunction. Comes after the kernel.
#define EMULATOR_EXPORT(name) \
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

// Finds the types of a kernel's arguments from the kernel's type.
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
// Here and below, `line` is the line of the caller.
static inline void __syncthreads(unsigned line = __builtin_LINE()) { emulator_barrier(line); }

// The vector types, aligned as in CUDA.
#define EMULATOR_VECTOR(scalar, name) \
    struct alignas(2 * sizeof(scalar)) name##2 { scalar x, y; }; \
    struct alignas(4 * sizeof(scalar)) name##4 { scalar x, y, z, w; }; \
    static inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; } \
    static inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(unsigned int, uint)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(unsigned short, ushort)
EMULATOR_VECTOR(signed char, char)
EMULATOR_VECTOR(unsigned char, uchar)
#undef EMULATOR_VECTOR

#define EMULATOR_ORDER(type) \
    static inline type min(type a, type b) { return b < a ? b : a; } \
    static inline type max(type a, type b) { return a < b ? b : a; }
EMULATOR_ORDER(int)
EMULATOR_ORDER(unsigned int)
EMULATOR_ORDER(long long)
EMULATOR_ORDER(unsigned long long)
#undef EMULATOR_ORDER

// Math functions of one argument. CUDA also has the names without `f` for float.
#define EMULATOR_MATH(name) \
    static inline float name##f(float x) { return __builtin_##name##f(x); } \
    static inline float name(float x) { return __builtin_##name##f(x); } \
    static inline double name(double x) { return __builtin_##name(x); }
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
static inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
static inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
static inline float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
static inline double fmax(double a, double b) { return __builtin_fmax(a, b); }
static inline float min(float a, float b) { return __builtin_fminf(a, b); }
static inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
static inline float powf(float x, float y) { return __builtin_powf(x, y); }
static inline float pow(float x, float y) { return __builtin_powf(x, y); }
static inline double pow(double x, double y) { return __builtin_pow(x, y); }
static inline float ldexpf(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
static inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline int abs(int x) { return x < 0 ? -x : x; }

static inline float __fdividef(float a, float b) { return a / b; }
static inline unsigned __float_as_uint(float value) { return emulator_float_bits(value); }
static inline float __uint_as_float(unsigned bits) { return emulator_bits_float(bits); }
static inline double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned __popc(unsigned bits) { return (unsigned)__builtin_popcount(bits); }
// Atomic operations return nothing, since a block cannot know what other blocks have written.
static inline void atomicAdd(unsigned* place, unsigned value) { emulator_atomic(EMULATOR_ADD, place, value); }
static inline void atomicAdd(unsigned long long* place, unsigned long long value) {
    emulator_atomic(EMULATOR_ADD_LONG, place, value);
}
static inline void atomicMax(unsigned* place, unsigned value) { emulator_atomic(EMULATOR_MAX, place, value); }

static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    unsigned long long bytes = low | (unsigned long long)high << 32;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned choice = selector >> (4 * i) & 15;
        unsigned byte = (unsigned)(bytes >> (8 * (choice & 7))) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

static inline int __dp4a(int a, int b, int sum) {
    for (unsigned i = 0; i < 4; i++) sum += (signed char)(a >> (8 * i)) * (signed char)(b >> (8 * i));
    return sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (unsigned i = 0; i < 4; i++) sum += (a >> (8 * i) & 0xff) * (b >> (8 * i) & 0xff);
    return sum;
}

// These functions need all threads of a warp.
template <class T>
static inline T __shfl_xor_sync(unsigned threads, T value, unsigned mask, int width = 32, unsigned line = __builtin_LINE()) {
    if (threads != ~0u || width != 32) __builtin_trap();
    const unsigned char* all = emulator_exchange(&value, sizeof value, line, nullptr);
    T other;
    __builtin_memcpy(&other, all + 32 * ((emulator_thread()->number ^ mask) & 31), sizeof other);
    return other;
}

static inline int __any_sync(unsigned threads, bool holds, unsigned line = __builtin_LINE()) {
    if (threads != ~0u) __builtin_trap();
    const unsigned char* all = emulator_exchange(&holds, 1, line, nullptr);
    int any = 0;
    for (unsigned i = 0; i < 32; i++) any |= all[32 * i];
    return any;
}

// Hides from the compiler that the result is a product. The compiler would fuse it with the next addition.
template <class T> static inline T emulator_product(T a, T b) {
    T product = a * b;
#if defined(__x86_64__)
    asm("" : "+x"(product));
#else
    asm("" : "+w"(product));
#endif
    return product;
}

static inline float __fmul_rn(float a, float b) { return emulator_product(a, b); }
static inline double __dmul_rn(double a, double b) { return emulator_product(a, b); }


// PTX instructions. cvt.f32.f16 and cvt.rn.f16.f32 convert from and to the bits of a half.
static inline float ptx_cvt_f32_f16(unsigned bits) { return emulator_half_float(bits); }
static inline unsigned ptx_cvt_rn_f16_f32(float value) { return emulator_float_half(value); }
// cp.async copies 16 or 4 bytes to shared memory: the first `bytes` bytes are copied, the others are 0.
static inline void ptx_cp_async16(void* shared, const void* global, unsigned bytes) {
    emulator_copy_async(shared, global, 16, bytes);
}
static inline void ptx_cp_async4(void* shared, const void* global, unsigned bytes) {
    emulator_copy_async(shared, global, 4, bytes);
}
static inline void ptx_cp_async_commit_group() { emulator_copy_commit(); }
template <int N> static inline void ptx_cp_async_wait_group() { emulator_copy_wait(N); }
// prefetch.global.L2 faults here if the address may not be read.
static inline void ptx_prefetch(const void* global) { (void)*(const volatile unsigned char*)global; }

// ldmatrix.x4 loads 16-bit elements. Thread 8 m + r gives the address of row r of matrix m. The result is element (lane / 4, 2 (lane % 4)
// + h), or if `transposed` element (2 (lane % 4) + h, lane / 4).
static inline void emulator_load_matrix(unsigned (&values)[4], const void* row, bool transposed, unsigned line) {
    emulator_check_row(row);
    unsigned char eight[16];
    __builtin_memcpy(eight, row, 16);
    const unsigned char* places = emulator_exchange(eight, 16, line, nullptr);
    unsigned lane = emulator_thread()->number & 31;
    for (unsigned m = 0; m < 4; m++) {
        values[m] = 0;
        for (unsigned h = 0; h < 2; h++) {
            unsigned r = transposed ? 2 * (lane & 3) + h : lane >> 2;
            unsigned c = transposed ? lane >> 2 : 2 * (lane & 3) + h;
            unsigned short element;
            __builtin_memcpy(&element, places + 32 * (8 * m + r) + 2 * c, 2);
            values[m] |= (unsigned)element << (16 * h);
        }
    }
}
static inline void ptx_ldmatrix_x4(unsigned (&values)[4], const void* row, unsigned line = __builtin_LINE()) {
    emulator_load_matrix(values, row, false, line);
}
static inline void ptx_ldmatrix_x4_trans(unsigned (&values)[4], const void* row, unsigned line = __builtin_LINE()) {
    emulator_load_matrix(values, row, true, line);
}

// mma.m16n8k32 of bytes and mma.m16n8k16 of halves: d += a b. Thread `w % 4` of a group of four has word w of a row of A or a column of
// B, in half `w / 4` of its registers. The last thread to arrive computes all sums of the warp, eight columns of a row at once. Each
// thread then takes its four sums. `Dot` has the type of sums, and the COUNT terms of a word of A and a word of B.
template <class Dot> static void emulator_multiply(unsigned char* all) {
    typedef typename Dot::Sum Sum;
    typedef Sum Row __attribute__((vector_size(8 * sizeof(Sum))));
    constexpr unsigned TERMS = 8 * Dot::COUNT;
    Sum a[16][TERMS];
    union { Row row; Sum each[8]; } b[TERMS], sums[16];
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned own[6];
        __builtin_memcpy(own, all + 32 * lane, sizeof own);
        for (unsigned half = 0; half < 2; half++) {
            for (unsigned i = 0; i < Dot::COUNT; i++) {
                unsigned term = (4 * half + lane % 4) * Dot::COUNT + i;
                a[lane / 4][term] = Dot::of_a(own[2 * half], i);
                a[lane / 4 + 8][term] = Dot::of_a(own[2 * half + 1], i);
                b[term].each[lane / 4] = Dot::of_b(own[4 + half], i);
            }
        }
    }
    for (unsigned row = 0; row < 16; row += 4) {
        Row four[4] = {};
        for (unsigned term = 0; term < TERMS; term++) {
            four[0] += a[row][term] * b[term].row;
            four[1] += a[row + 1][term] * b[term].row;
            four[2] += a[row + 2][term] * b[term].row;
            four[3] += a[row + 3][term] * b[term].row;
        }
        for (unsigned i = 0; i < 4; i++) sums[row + i].row = four[i];
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        __builtin_memcpy(all + 32 * lane, &sums[lane / 4].each[2 * (lane % 4)], 2 * sizeof(Sum));
        __builtin_memcpy(all + 32 * lane + 2 * sizeof(Sum), &sums[lane / 4 + 8].each[2 * (lane % 4)], 2 * sizeof(Sum));
    }
}
template <class Dot, class D>
static inline void emulator_mma(D (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], unsigned line) {
    unsigned own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const unsigned char* all = emulator_exchange(own, sizeof own, line, emulator_multiply<Dot>);
    typename Dot::Sum sums[4];
    __builtin_memcpy(sums, all + 32 * (emulator_thread()->number & 31), sizeof sums);
    for (unsigned i = 0; i < 4; i++) d[i] = (D)(d[i] + sums[i]);
}
struct EmulatorS8S8 {
    typedef int Sum;
    static constexpr unsigned COUNT = 4;
    static int of_a(unsigned word, unsigned i) { return (signed char)(word >> (8 * i)); }
    static int of_b(unsigned word, unsigned i) { return (signed char)(word >> (8 * i)); }
};
struct EmulatorU8S8 : EmulatorS8S8 {
    static int of_a(unsigned word, unsigned i) { return (unsigned char)(word >> (8 * i)); }
};
// Hardware adds with a few more bits than f32 and its own rounding. Sums in f64, rounded once, are a good stand-in.
struct EmulatorF16 {
    typedef double Sum;
    static constexpr unsigned COUNT = 2;
    static double of_a(unsigned word, unsigned i) { return emulator_half_float(word >> (16 * i) & 0xffff); }
    static double of_b(unsigned word, unsigned i) { return of_a(word, i); }
};
static inline void ptx_mma_s8_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], unsigned line = __builtin_LINE()) {
    emulator_mma<EmulatorS8S8>(d, a, b, line);
}
static inline void ptx_mma_u8_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], unsigned line = __builtin_LINE()) {
    emulator_mma<EmulatorU8S8>(d, a, b, line);
}
static inline void ptx_mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], unsigned line = __builtin_LINE()) {
    emulator_mma<EmulatorF16>(d, a, b, line);
}
