// Total variation denoising. With d = sum over axes of p[i - 1] - p[i], and g the differences of factor f + d to the next elements: a step q = (p - tau g) / (1 + tau |g|), or the result q = scale f + weight d.
// Grid: linear, one block per WG elements of a row; groups of elements are counted from the column ox on.
// Bindings: 0 f read; 1 p (axes, z, y, x) read; 2 q written: (axes, z, y, x), or the result; 3 energies (z, y, groups) written: sums of d d + |g| over groups; 4 params.
// Constants: WG; RESULT 1 for the result, 0 for a step; WIDE numbers are f64.
// Hardware: a thread computes d at its element and at the next one along each axis, since caches serve those reads: from memory, a
// step reads f and p and writes q, once each.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 RESULT = 0;
constexpr u32 WIDE = 0;

typedef RealOf<WIDE == 1>::Real real;

struct Place {
    u32 z;
    u32 y;
    u32 x;
};

DEVICE real image_at(const real* f, const Params& params, Place at) {
    return f[params.f0 + at.z * params.fz + at.y * params.fy + at.x * params.fx];
}

DEVICE real divergence_at(const real* p, const Params& params, Place at) {
    u32 row = params.nx;
    u32 plane = params.ny * row;
    u32 size = params.nz * plane;
    u32 i = at.z * plane + at.y * row + at.x;
    real sum = 0;
    if (params.axes > 2) {
        sum += (at.z > 0 ? p[i - plane] : (real)0) - p[i];
        i += size;
    }
    if (params.axes > 1) {
        sum += (at.y > 0 ? p[i - row] : (real)0) - p[i];
        i += size;
    }
    return sum + ((at.x > 0 ? p[i - 1] : (real)0) - p[i]);
}

DEVICE float root(float x) { return sqrtf(x); }
DEVICE double root(double x) { return sqrt(x); }

KERNEL(denoise_tv, WG)(const real* __restrict__ f, const real* __restrict__ p, real* __restrict__ q, real* __restrict__ energies, Params params) {
    SHARED(real, sums, WG);
    u32 block = linear_block();
    u32 row = params.row0 + block / params.groups;
    u32 group = block % params.groups;
    bool in_grid = block / params.groups < params.rows;
    u32 column = group * WG + threadIdx.x;
    if constexpr (RESULT == 1) {
        if (!in_grid || column >= params.mx) return;
        Place at = {row / params.my + params.oz, row % params.my + params.oy, column + params.ox};
        u32 place = params.q0 + row / params.my * params.qz + row % params.my * params.qy + column * params.qx;
        real scale = (real)params.scale + (real)params.scale_rest;
        real weight = (real)params.weight + (real)params.weight_rest;
        q[place] = scale * image_at(f, params, at) + weight * divergence_at(p, params, at);
        return;
    }
    // The first group ends at the column ox, or at a multiple of WG elements before it.
    u32 before = (params.ox + WG - 1) / WG * WG - params.ox;
    real energy = 0;
    if (in_grid && column >= before && column - before < params.nx) {
        Place at = {row / params.ny, row % params.ny, column - before};
        real value = image_at(f, params, at);
        real divergence = divergence_at(p, params, at);
        real factor = (real)params.factor + (real)params.factor_rest;
        real g[3] = {0, 0, 0};
        if (at.x + 1 < params.nx) {
            Place next = {at.z, at.y, at.x + 1};
            g[2] = factor * (image_at(f, params, next) - value) + (divergence_at(p, params, next) - divergence);
        }
        if (params.axes > 1 && at.y + 1 < params.ny) {
            Place next = {at.z, at.y + 1, at.x};
            g[1] = factor * (image_at(f, params, next) - value) + (divergence_at(p, params, next) - divergence);
        }
        if (params.axes > 2 && at.z + 1 < params.nz) {
            Place next = {at.z + 1, at.y, at.x};
            g[0] = factor * (image_at(f, params, next) - value) + (divergence_at(p, params, next) - divergence);
        }
        real tau = (real)1 / (real)(2 * params.axes);
        real length = root(g[2] * g[2] + g[1] * g[1] + g[0] * g[0]);
        real divisor = (real)1 + tau * length;
        energy = divergence * divergence + length;
        u32 size = params.nz * params.ny * params.nx;
        u32 i = row * params.nx + at.x;
#pragma unroll
        for (u32 axis = 0; axis < 3; axis++) {
            if (axis + params.axes < 3) continue;
            q[i] = (p[i] - tau * g[axis]) / divisor;
            i += size;
        }
    }
    if (params.energies == 0) return;
    sums[threadIdx.x] = energy;
    __syncthreads();
    for (u32 half = WG / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (in_grid && threadIdx.x == 0) energies[row * params.groups + group] = sums[0];
}
EXPORT(denoise_tv)
