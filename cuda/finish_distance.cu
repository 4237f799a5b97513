// Distances from the sums of a metric's terms for pairs: out[i, j] = formula(sums[i, j]), in place or transposed, for all pairs or for a triangle.
// Grid: linear, one block per WG pairs.
// Bindings: 0 sums of the terms, `term_step` pairs apart, of two f32 or an f64 each, read; 1 undefined (observations,) u32 read; 2 out f32, or pairs of two f32 or an f64 each, read and written; 3 params, starts and steps in pairs and elements.
// Constants: WG; WIDE a sum is an f64. Distances are computed in f64, and rounded to f32 at the end; a pair is an f64.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 WIDE = 0;

// The relative size of rounding errors that may remain when terms cancel.
constexpr double NOISE = WIDE == 1 ? 0x1p-47 : 0x1p-20;

DEVICE double no_number() { return bits_double(join(0, 0x7ff80000u)); }

DEVICE double sum_at(const void* sums, u32 i) {
    if constexpr (WIDE == 1) return ((const double*)sums)[i];
    float2 pair = ((const float2*)sums)[i];
    return (double)pair.x + (double)pair.y;
}

// Returns the quotient, or NaN unless `whole` is above 0.
DEVICE double ratio(double part, double whole) { return whole > 0 ? part / whole : no_number(); }

// Returns the quotient, or 0 unless `whole` is above 0.
DEVICE double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Returns 1 minus a cosine, limited to 0 to 2, which rounding may exceed.
DEVICE double angle(double product, double squares) {
    double value = 1 - ratio(product, sqrt(squares));
    return value < 0 ? 0 : value > 2 ? 2 : value;
}

// Returns the variation of an observation's elements, or 0 for a mere rounding error. Products are rounded by themselves, as on other devices.
DEVICE double spread(double both, double squares, double sum) {
    double all = rounded_product(both, squares);
    double value = all - rounded_product(sum, sum);
    return value > all * NOISE ? value : 0;
}

// Returns the distance for the sums of up to six terms.
DEVICE double distance(const Params& p, const double (&sums)[6]) {
    double features = (double)p.features + (double)p.features_rest;
    double both = features;
    if (p.missing != PROPAGATE) {
        both = p.terms == 2 ? sums[1] : p.terms == 3 ? sums[2] : p.terms == 4 ? sums[3] : sums[5];
    }
    if (p.missing > IGNORE && both == 0) return p.missing == RESCALE ? no_number() : 0;
    double sum = sums[0];
    double scaled = p.missing > IGNORE ? sum * (features / both) : sum;
    double factor = bits_double(join(p.factor_low, p.factor_high));
    switch (p.formula) {
        case PLAIN: return scaled * factor;
        case ROOT: return sqrt(scaled) * factor;
        case LARGEST: return sum * factor;
        case POWER: return pow(scaled, 1 / bits_double(join(p.power_low, p.power_high))) * factor;
        case HALF_SQUARE: return sum / 2 > 2 ? 2 : sum / 2;
        case ANGLE: return angle(sum, rounded_product(sums[1], sums[2]));
        case CENTRED_ANGLE: {
            double product = rounded_product(both, sum) - rounded_product(sums[3], sums[4]);
            return angle(product, spread(both, sums[1], sums[3]) * spread(both, sums[2], sums[4]));
        }
        case RATIO: return ratio(sum, sums[1]);
        case SHARE: return share(sum, both);
        case SHARE_OF_ANY: return share(sum, sum + sums[1]);
        case RATIO_OF_BOTH: return ratio(sum, sum + 2 * sums[1]);
        case SHARE_OF_NONE: return share(both - sum, both);
        case HALF: return sum / 2;
        case ROOT_OF_HALF: return sqrt(sum > 0 ? sum / 2 : 0);
        default: return sqrt(sum < 1 ? 1 - sum : 0);
    }
}

KERNEL(finish_distance, WG)(const void* __restrict__ sums, const u32* __restrict__ undefined, void* __restrict__ out, Params params) {
    u32 item = linear_block() * WG + threadIdx.x;
    if (item >= params.rows * params.cols) return;
    u32 row = item / params.cols;
    u32 col = item - row * params.cols;
    if (params.lower == 1 && params.col0 + col > params.row0 + row) return;
    u32 place = params.sums0 + row * params.sums_step + col;
    double terms[6] = {};
    bool is_number = undefined[params.row_flag0 + row] == 0 && undefined[params.col_flag0 + col] == 0;
#pragma unroll
    for (u32 i = 0; i < 6; i++) {
        if (i < params.terms) terms[i] = sum_at(sums, place + i * params.term_step);
        is_number = is_number && terms[i] == terms[i];
    }
    double value = is_number ? distance(params, terms) : no_number();
    if (params.zero_diagonal == 1 && params.row0 + row == params.col0 + col && value == value) value = 0;
    u32 at = params.out0 + row * params.out_row_step + col * params.out_col_step;
    if (params.paired == 1) ((double*)out)[at] = value;
    else ((float*)out)[at] = (float)value;
}
EXPORT(finish_distance)
