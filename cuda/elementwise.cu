// A function of elements: out[i] = f(a[..], b[..], c[..]) for an output of three axes, along each of which an operand has a step or repeats.
// Grid: linear. One block per WG words of the output, which narrow elements share; for f64, per WG elements.
// Bindings: 0 a read; 1 b read; 2 c read; 3 out written; 4 params, starts and steps in elements.
// Constants: WG; NARROW elements are of the types in params, else f32; WIDE elements are of the types in params, and computed in f64.
// Hardware: WG / 4 threads with four words each, which are a row of threads apart, so that every access is of whole lines. 32 blocks then keep
// 32 KiB in flight on a multiprocessor; with a word a thread, its 2,048 threads would keep 8 KiB, too little to hide the latency of memory.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 NARROW = 0;
constexpr u32 WIDE = 0;

constexpr bool TYPED = NARROW == 1 || WIDE == 1;

typedef RealOf<WIDE == 1>::Real real;

// Returns a number of the parameters, from its words.
DEVICE real number(u32 low, u32 high) {
    if constexpr (WIDE == 1) return (real)bits_double(join(low, high));
    else return (real)bits_float(low);
}

DEVICE real fetch(const void* array, u32 type, u32 i) {
    if constexpr (!TYPED) return (real)((const float*)array)[i];
    real value;
    BY_TYPE(type, T, (value = load_real<T, real>(array, i)));
    return value;
}

DEVICE real least(real x, real y) { return x < y || x != x ? x : y; }
DEVICE real most(real x, real y) { return x > y || x != x ? x : y; }

DEVICE real apply(u32 function, real x, real y, real z) {
    switch (function) {
        case NEGATIVE: return -x;
        case ABSOLUTE: return fabs(x);
        case SQUARE_ROOT: return sqrt(x);
        case EXPONENTIAL: return exp(x);
        case LOGARITHM: return log(x);
        case ADD: return x + y;
        case SUBTRACT: return x - y;
        case MULTIPLY: return x * y;
        case DIVIDE: return x / y;
        case MINIMUM: return least(x, y);
        case MAXIMUM: return most(x, y);
        case LESS: return x < y ? 1 : 0;
        case LESS_EQUAL: return x <= y ? 1 : 0;
        case GREATER: return x > y ? 1 : 0;
        case GREATER_EQUAL: return x >= y ? 1 : 0;
        case EQUAL: return x == y ? 1 : 0;
        case NOT_EQUAL: return x != y ? 1 : 0;
        case CLAMP: return least(most(x, y), z);
        case SELECT: return x != 0 ? y : z;
        default: return x;
    }
}

// Returns the value of an element of the output. Operands without an array are numbers of the parameters.
DEVICE real value_of(const void* a, const void* b, const void* c, const Params& params, u32 item) {
    u32 place = params.first + item;
    u32 row = place / params.extent2;
    u32 column = place - row * params.extent2;
    u32 outer = row / params.extent1;
    u32 middle = row - outer * params.extent1;
    u32 a_place = params.a0 + outer * params.a_step0 + middle * params.a_step1 + column * params.a_step2;
    u32 b_place = params.b0 + outer * params.b_step0 + middle * params.b_step1 + column * params.b_step2;
    u32 c_place = params.c0 + outer * params.c_step0 + middle * params.c_step1 + column * params.c_step2;
    real x = fetch(a, params.a_type, a_place);
    real y = params.operands > 1 ? fetch(b, params.b_type, b_place) : number(params.b_low, params.b_high);
    real z = params.operands > 2 ? fetch(c, params.c_type, c_place) : number(params.c_low, params.c_high);
    return apply(params.function, x, y, z);
}

KERNEL(elementwise, WG / 4, 16)(const void* __restrict__ a, const void* __restrict__ b, const void* __restrict__ c, void* __restrict__ out, Params params) {
    u32 first = linear_block() * WG + threadIdx.x;
    if constexpr (TYPED) {
        u32 type = params.out_type;
        u32 each = size_of(type) < 4 ? 4 / size_of(type) : 1;
        for (u32 i = 0; i < 4; i++) {
            u32 start = (first + i * (WG / 4)) * each;
            for (u32 item = start; item < start + each && item < params.n; item++) {
                real value = value_of(a, b, c, params, item);
                if (params.function == TRUNCATE) BY_TYPE(type, T, value = truncate_to<T>(value));
                BY_TYPE(type, T, (store_real<T>(out, item, value)));
            }
        }
    } else {
        real values[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 item = first + i * (WG / 4);
            if (item < params.n) values[i] = value_of(a, b, c, params, item);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 item = first + i * (WG / 4);
            if (item < params.n) ((float*)out)[item] = (float)values[i];
        }
    }
}
EXPORT(elementwise)
