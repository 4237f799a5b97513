// Non-reference alleles of each call: out[i] = number of calls[i, ..] > 0, or the smallest allele where one is negative.
// Grid: linear, one thread per four calls, which are one word of out.
// Bindings: 0 calls (len, ploidy) i8 read; 1 out (len) i8 write; 2 params { len, ploidy }.
// Constants: WG.

#include "dev.cuh"

struct Params {
    u32 len;
    u32 ploidy;
};

constexpr u32 WG = 256;

KERNEL(dosage, WG)(const i8* __restrict__ calls, u32* __restrict__ out, Params params) {
    u32 place = linear_block() * WG + threadIdx.x;
    u32 first = 4 * place;
    if (first >= params.len) return;
    u32 word = 0;
    for (u32 i = 0; i < 4 && first + i < params.len; i++) {
        i32 lowest = 0;
        i32 count = 0;
        for (u32 j = 0; j < params.ploidy; j++) {
            i32 allele = calls[(first + i) * params.ploidy + j];
            lowest = min(lowest, allele);
            count += allele > 0;
        }
        u32 dosage = (u32)(lowest < 0 ? lowest : count);
        word |= (dosage & 0xff) << (8 * i);
    }
    out[place] = word;
}
EXPORT(dosage)
