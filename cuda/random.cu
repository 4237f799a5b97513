// Philox4x32-10: word i of out is word i % 4 of the block with counter first + i / 4, under the seed as key; or an f32 or 16 codes made from such words.
// Grid: linear, one thread per block of four words.
// Bindings: 0 out (n) u32 or f32 write; 1 params { n, seed, first block, each 64-bit number as low and high word; start; words, columns of a row of codes }.
// Constants: WG; KIND 0 words, 1 uniform f32, one from each word, 2 standard normal f32, two from two words, 3 codes, which are digits to the base 3.
// Hardware: the four words are one store. The compiler may fuse arithmetic of f32, which is as accurate.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 KIND = 0;

// Returns the upper 24 bits of a word as a fraction, exactly, as the bits of an f32.
DEVICE u32 uniform_bits(u32 word) { return float_bits((float)(word >> 8) * 0x1p-24f); }

// Returns the bits of two standard normal numbers by the transform of Box and Muller. src/kernels/random.rs has the reasons and the errors.
DEVICE uint2 normal_bits(u32 first, u32 second) {
    // u is (first + 1/2) / 2^32; `part` is u, or 1 - u if that is smaller.
    u32 least = min(first, ~first);
    float part = (float)(2 * least + 1) * 0x1p-33f;
    bool mirrored = first != least;
    // u = 2^exponent (1 + rest), with 1 + rest from sqrt(1/2) to sqrt(2).
    u32 bits = float_bits(mirrored ? 1 - part : part) - 0x3f3504f3u;
    i32 exponent = (i32)bits >> 23;
    float rest = bits_float((bits & 0x7fffffu) + 0x3f3504f3u) - 1;
    if (mirrored && exponent == 0) rest = -part;
    // -2 ln(1 + rest) = rest (rest log_rest - 2).
    float log_rest = -0.17959288f * rest + 0.28854007f;
    log_rest = log_rest * rest - 0.2976738f;
    log_rest = log_rest * rest + 0.33103532f;
    log_rest = log_rest * rest - 0.3992695f;
    log_rest = log_rest * rest + 0.5000517f;
    log_rest = log_rest * rest - 0.66667867f;
    log_rest = log_rest * rest + 0.99999964f;
    float radius = sqrtf((float)exponent * -1.3862944f + rest * (rest * log_rest - 2));
    // `quarter` is the nearest quarter of a turn, and x is the remainder in eighths.
    u32 turned = second + 0x20000000u;
    u32 quarter = turned >> 30;
    float x = (float)((i32)(turned & 0x3fffffffu) - 0x20000000) * 0x1p-29f;
    float z = x * x;
    float sine = x * (((-3.6116762e-5f * z + 0.0024903086f) * z - 0.0807456f) * z + 0.7853982f);
    float cosine = (((3.531385e-6f * z - 0.00032594256f) * z + 0.015854329f) * z - 0.30842513f) * z + 1;
    bool odd = (quarter & 1) == 1;
    u32 across = float_bits(radius * (odd ? sine : cosine));
    u32 up = float_bits(radius * (odd ? cosine : sine));
    return {across ^ (((quarter + 1) & 2) << 30), up ^ ((quarter & 2) << 30)};
}

// Returns the first `count` digits after the point of rest / 2^32 to the base 3, at most 16, two bits each.
DEVICE u32 codes(u32 rest, u32 count) {
    u32 packed = 0;
#pragma unroll
    for (u32 j = 0; j < 16; j++) {
        // The constants are 2^32 / 3 and 2^33 / 3, rounded up.
        u32 digit = (rest >= 0x55555556u) + (rest >= 0xaaaaaaabu);
        if (j < count) packed |= digit << (2 * j);
        rest *= 3;
    }
    return packed;
}

KERNEL(random, WG)(u32* __restrict__ out, Params params) {
    u32 block = linear_block() * WG + threadIdx.x;
    u32 first = 4 * block;
    if (first >= params.n) return;
    u32 low = params.block_low + block;
    uint4 words = {low, params.block_high + (low < block), 0, 0};
    u32 key0 = params.seed_low;
    u32 key1 = params.seed_high;
#pragma unroll
    for (u32 round = 0; round < 10; round++) {
        u32 high0 = multiply_high(words.x, 0xd2511f53u);
        u32 high1 = multiply_high(words.z, 0xcd9e8d57u);
        words = {high1 ^ words.y ^ key0, words.z * 0xcd9e8d57u, high0 ^ words.w ^ key1, words.x * 0xd2511f53u};
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    if constexpr (KIND == UNIFORM) {
        words = {uniform_bits(words.x), uniform_bits(words.y), uniform_bits(words.z), uniform_bits(words.w)};
    } else if constexpr (KIND == NORMAL) {
        uint2 low = normal_bits(words.x, words.y);
        uint2 high = normal_bits(words.z, words.w);
        words = {low.x, low.y, high.x, high.y};
    } else if constexpr (KIND == CODES) {
        u32 column = 16 * (first % params.words);
        u32 count = params.columns - min(params.columns, column);
        words.x = codes(words.x, count);
        words.y = codes(words.y, count - min(count, 16u));
        words.z = codes(words.z, count - min(count, 2 * 16u));
        words.w = codes(words.w, count - min(count, 3 * 16u));
    }
    out += params.out0;
    if (params.n - first >= 4) {
        ((uint4*)out)[block] = words;
    } else {
        out[first] = words.x;
        if (params.n - first > 1) out[first + 1] = words.y;
        if (params.n - first > 2) out[first + 2] = words.z;
    }
}
EXPORT(random)
