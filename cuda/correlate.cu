// Weighted sums of neighbours along one axis, or along up to three: out[i] = sum of weights[t] x[i + o + t - w / 2] along y, or along z, y and x.
// Grid: linear, one block per WG words of the output (of f64, elements), or where TILED per 16 x 32 outputs of one z.
// Bindings: 0 x (outer, z, y, x, step) read; 1 numbers read: constants beyond the edges of z, y and x, then weights of z, y and x; 2 out read_write; 3 params.
// Constants: WG; TILED sums are along z, y and x, else along y; WIDE sums are of f64, and so are the numbers.
// Hardware: neighbours take neighbouring words, so that each tap is one load of a warp, from the first cache for all taps but one.
// Tiles hold what sums along y see in shared memory, where sums across z end, and these sums; each is stored once.

#include "dev.cuh"

struct Params {
    u32 x0;
    u32 out0;
    u32 x_type;
    u32 out_type;
    u32 outer;
    u32 nz;
    u32 ny;
    u32 nx;
    u32 mz;
    u32 my;
    u32 mx;
    u32 oz;
    u32 oy;
    u32 ox;
    u32 wz;
    u32 wy;
    u32 wx;
    u32 first;
    u32 count;
    u32 step;
    u32 edges;
    u32 kinds;
    u32 combine;
    u32 truncate;
};

constexpr u32 WG = 256;
constexpr u32 TILED = 0;
constexpr u32 WIDE = 0;

// Outputs of a tile, and numbers that it has room for.
constexpr u32 TILE_Y = 16;
constexpr u32 TILE_X = 2 * TILE_Y;
constexpr u32 ROOM = 4000;

enum Edge : u32 { REFLECT, MIRROR, NEAREST, WRAP, CONSTANT };
enum Kind : u32 { EVEN = 1, ODD, ANY };
enum Combine : u32 { REPLACE, ADD, ADD_SQUARE, ROOT };

template <bool> struct Arithmetic {
    typedef float Real;
};
template <> struct Arithmetic<true> {
    typedef double Real;
};
typedef Arithmetic<WIDE == 1>::Real real;

// x y + z: f32 is rounded once, f64 twice, as scipy's.
DEVICE float multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
DEVICE double multiply_add(double x, double y, double z) { return rounded_product(x, y) + z; }

// Which of n elements stands at a coordinate; below 0 where it is the constant.
DEVICE i32 source(u32 edge, i32 at, i32 n) {
    if (at >= 0 && at < n) return at;
    if (edge == CONSTANT) return -1;
    if (edge == NEAREST) return at < 0 ? 0 : n - 1;
    bool is_left = at < 0;
    if (edge == WRAP) return is_left ? n - 1 - (-1 - at) % n : at % n;
    if (edge == REFLECT) {
        i32 place = (is_left ? -1 - at : at) % (2 * n);
        return min(place, 2 * n - 1 - place);
    }
    i32 period = max(2 * n - 2, 1);
    i32 place = (is_left ? -at : at) % period;
    return min(place, period - place);
}

DEVICE u32 edge_of(const Params& p, u32 axis) { return p.edges >> (4 * axis) & 15; }
DEVICE u32 kind_of(const Params& p, u32 axis) { return p.kinds >> (4 * axis) & 15; }

// The sum of taps, of which `at(t)` is one: from the centre, then from the outermost to the innermost, those as far from the
// centre together; of weights without symmetry from the last, then from the first.
template <class At> DEVICE real sum_taps(const real* weights, u32 count, u32 kind, At at) {
    u32 end = count - 1;
    if (kind == ANY) {
        real sum = at(end) * weights[end];
        for (u32 t = 0; t < end; t++) sum = multiply_add(at(t), weights[t], sum);
        return sum;
    }
    u32 radius = count / 2;
    real sum = at(radius) * weights[radius];
    if (kind == EVEN) {
        for (u32 t = 0; t < radius; t++) sum = multiply_add(at(t) + at(end - t), weights[t], sum);
    } else {
        for (u32 t = 0; t < radius; t++) sum = multiply_add(at(t) - at(end - t), weights[t], sum);
    }
    return sum;
}

// An axis in global memory, of which element `base` is the first at hand, and the others are `stride` apart.
struct Axis {
    const void* x;
    u32 base;
    u32 stride;
    i32 n;
    i32 first;
    u32 edge;
    real constant;
};

template <u32 TYPE> DEVICE real at(const Axis& axis, i32 coordinate) {
    i32 place = source(axis.edge, coordinate, axis.n);
    return place < 0 ? axis.constant : load_real<TYPE, real>(axis.x, axis.base + (u32)(place - axis.first) * axis.stride);
}

// The sum whose centre is at a coordinate.
template <u32 TYPE> DEVICE real sum_at(const Axis& axis, const real* weights, u32 count, u32 kind, i32 centre) {
    i32 start = centre - (i32)(count / 2);
    if (start >= 0 && start + (i32)count <= axis.n) {
        u32 from = axis.base + (u32)(start - axis.first) * axis.stride;
        return sum_taps(weights, count, kind, [&](u32 t) { return load_real<TYPE, real>(axis.x, from + t * axis.stride); });
    }
    return sum_taps(weights, count, kind, [&](u32 t) { return at<TYPE>(axis, start + (i32)t); });
}

DEVICE real truncated(const Params& p, real value) {
    if (p.truncate == 0) return value;
    BY_TYPE(p.truncate - 1, TYPE, value = truncate_to<TYPE>(value));
    return value;
}

DEVICE void put(const Params& p, const real* numbers, void* out, u32 i, real value) {
    value = truncated(p, value);
    if (p.combine != REPLACE) {
        real old = ((const real*)out)[i];
        value = p.combine == ADD ? old + value : old + value * value;
        if (p.combine == ROOT) value = sqrt(value);
    }
    BY_TYPE(p.out_type, TYPE, store_real<TYPE>(out, i, value));
}

// One of the outputs along y.
template <u32 TYPE> DEVICE real sum_along(const Params& p, const void* x, const real* numbers, u32 i) {
    u32 line = p.nx * p.step;
    u32 row = i / line;
    u32 array = row / p.my;
    u32 y = row - array * p.my;
    u32 base = p.x0 + array * p.count * line + (i - row * line);
    Axis axis = {x, base, line, (i32)p.ny, (i32)p.first, edge_of(p, 1), numbers[1]};
    return sum_at<TYPE>(axis, numbers + 3, p.wy, kind_of(p, 1), (i32)(y + p.oy));
}

// What a sum along y sees at an element of a row: the sum across z, or where there is none the element.
template <u32 TYPE> DEVICE real sum_across(const Params& p, const void* x, const real* numbers, u32 array, u32 z, u32 row, u32 element) {
    u32 line = p.nx * p.step;
    if (p.wz == 0) return load_real<TYPE, real>(x, p.x0 + (array * p.count + row - p.first) * line + element);
    u32 base = p.x0 + (array * p.count * p.ny + row) * line + element;
    Axis axis = {x, base, p.ny * line, (i32)p.nz, (i32)p.first, edge_of(p, 0), numbers[0]};
    return truncated(p, sum_at<TYPE>(axis, numbers + 3, p.wz, kind_of(p, 0), (i32)(z + p.oz)));
}

DEVICE void make_tile(const Params& p, const void* x, const real* numbers, void* out, real* cells) {
    u32 line = p.mx * p.step;
    u32 across = div_ceil(line, TILE_X);
    u32 down = div_ceil(p.my, TILE_Y);
    u32 tile = linear_block();
    u32 tile_row = tile / across;
    u32 plane = tile_row / down;
    if (plane >= p.outer * p.mz) return;
    u32 first_x = (tile - tile_row * across) * TILE_X;
    u32 first_y = (tile_row - plane * down) * TILE_Y;
    u32 array = plane / p.mz;
    u32 z = plane - array * p.mz;
    u32 y_end = p.wy == 0 ? 0 : p.wy - 1;
    u32 x_end = p.wx == 0 ? 0 : p.wx - 1;
    u32 width = TILE_X + x_end * p.step;
    u32 rows = min(TILE_Y, p.my - first_y) + y_end;
    const real* y_weights = numbers + 3 + p.wz;
    for (u32 i = threadIdx.x; i < (TILE_Y + y_end) * width; i += WG) {
        u32 row = i / width;
        u32 element = first_x + i - row * width;
        u32 column = element / p.step;
        i32 at_y = source(edge_of(p, 1), (i32)(first_y + row + p.oy) - (i32)(y_end / 2), (i32)p.ny);
        i32 at_x = source(edge_of(p, 2), (i32)(column + p.ox) - (i32)(x_end / 2), (i32)p.nx);
        real value = numbers[1];
        // Rows below the output see what is not at hand.
        if (at_x < 0 || row >= rows) {
            value = 0;
        } else if (at_y >= 0) {
            u32 place = (u32)at_x * p.step + (element - column * p.step);
            BY_TYPE(p.x_type, TYPE, value = sum_across<TYPE>(p, x, numbers, array, z, (u32)at_y, place));
        }
        cells[i] = value;
    }
    __syncthreads();
    real* lines = cells + (TILE_Y + y_end) * width;
    for (u32 i = threadIdx.x; i < TILE_Y * width; i += WG) {
        real value = cells[i];
        if (p.wy > 0) value = truncated(p, sum_taps(y_weights, p.wy, kind_of(p, 1), [&](u32 t) { return cells[i + t * width]; }));
        u32 column = (first_x + i % width) / p.step;
        if (p.wx > 0 && source(edge_of(p, 2), (i32)(column + p.ox) - (i32)(x_end / 2), (i32)p.nx) < 0) value = numbers[2];
        lines[i] = value;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < TILE_Y * TILE_X; i += WG) {
        u32 row = i / TILE_X;
        u32 element = i % TILE_X;
        if (first_y + row >= p.my || first_x + element >= line) continue;
        const real* taps = lines + row * width + element;
        real value = *taps;
        if (p.wx > 0) value = sum_taps(y_weights + p.wy, p.wx, kind_of(p, 2), [&](u32 t) { return taps[t * p.step]; });
        put(p, numbers, out, p.out0 + (plane * p.my + first_y + row) * line + first_x + element, value);
    }
}

KERNEL(correlate, WG, 1)(const void* __restrict__ x, const real* __restrict__ numbers, void* __restrict__ out, Params params) {
    SHARED(real, cells, TILED == 1 ? ROOM : 1);
    if constexpr (TILED == 1) {
        make_tile(params, x, numbers, out, cells);
        return;
    }
    // Elements of a word, and the first word.
    u32 each = max(4 / size_of(params.out_type), 1u);
    u32 item = params.out0 / each + linear_block() * WG + threadIdx.x;
    u32 end = params.out0 + params.outer * params.my * params.nx * params.step;
    for (u32 i = max(item * each, params.out0); i < min(item * each + each, end); i++) {
        real value = 0;
        BY_TYPE(params.x_type, TYPE, value = sum_along<TYPE>(params, x, numbers, i - params.out0));
        put(params, numbers, out, i, value);
    }
}
EXPORT(correlate)
