// Non-reference alleles of each call: out[i] = number of calls[i, ..] > 0, or the smallest allele where one is negative.
// Grid: linear, one thread per four calls, which are one word of out.
// Bindings: 0 calls (len, ploidy) i8 read; 1 out (len) i8 write; 2 params { len, ploidy }.
// Constants: WG.
// Hardware: four diploid calls are one load of 8 bytes and one store of 4, so that 2,048 threads keep 16 KiB in flight on
// each multiprocessor, which is what hides the latency of memory at full bandwidth.

#include "dev.cuh"

struct Params {
    u32 len;
    u32 ploidy;
};

constexpr u32 WG = 256;

DEVICE u32 diploid(u32 call) {
    i32 first = (i8)call;
    i32 second = (i8)(call >> 8);
    i32 lowest = min(first, second);
    return (u32)(lowest < 0 ? lowest : (first > 0) + (second > 0)) & 0xff;
}

DEVICE u32 polyploid(const i8* call, u32 ploidy) {
    i32 lowest = 0;
    i32 count = 0;
    for (u32 i = 0; i < ploidy; i++) {
        i32 allele = call[i];
        lowest = min(lowest, allele);
        count += allele > 0;
    }
    return (u32)(lowest < 0 ? lowest : count) & 0xff;
}

KERNEL(dosage, WG)(const i8* __restrict__ calls, u32* __restrict__ out, Params params) {
    u32 place = linear_block() * WG + threadIdx.x;
    // Not by the number of the call, which past the last block of a folded grid may be above 32 bits.
    if (place >= div_ceil(params.len, 4)) return;
    u32 first = 4 * place;
    u32 count = min(params.len - first, 4u);
    u32 word = 0;
    if (params.ploidy == 2 && count == 4) {
        uint2 pairs = ((const uint2*)calls)[place];
        word = diploid(pairs.x) | diploid(pairs.x >> 16) << 8 | diploid(pairs.y) << 16 | diploid(pairs.y >> 16) << 24;
    } else {
        for (u32 i = 0; i < count; i++) {
            word |= polyploid(calls + (first + i) * params.ploidy, params.ploidy) << (8 * i);
        }
    }
    out[place] = word;
}
EXPORT(dosage)
