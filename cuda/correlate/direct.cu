// Sums along y from memory, if a block has no room for the elements that sums need.

// An axis in global memory. Its elements are `stride` apart, and `base` is the first that is available.
struct Axis {
    const void* x;
    u32 base;
    u32 stride;
    i32 n;
    i32 first;
    u32 edge;
    real constant;
};

DEVICE real tap_of(u32 type, const Axis& axis, i32 coordinate) {
    i32 place = source(axis.edge, coordinate, axis.n);
    real value = axis.constant;
    if (place >= 0) BY_TYPE(type, TYPE, value = (load_real<TYPE, real>(axis.x, axis.base + (u32)(place - axis.first) * axis.stride)));
    return value;
}

// Computes the output of a thread.
DEVICE void make_directly(const Params& p, const void* x, const real* numbers, void* out) {
    u32 line = p.nx * p.step;
    u32 i = linear_block() * WG + threadIdx.x;
    u32 row = i / line;
    u32 array = row / p.my;
    if (array >= p.outer) return;
    Axis axis = {x, p.x0 + array * p.count * line + i - row * line, line, (i32)p.ny, (i32)p.first, edge_of(p, 1), numbers[1]};
    i32 start = (i32)(row - array * p.my + p.oy) - (i32)(p.wy / 2);
    auto tap = [&](u32 t) { return tap_of(p.x_type, axis, start + (i32)t); };
    real sums[1];
    sums_of(numbers + 3, p.wy, kind_of(p, 1), tap, sums);
    real value = combined(p, out, p.out0 + i, truncated(whole_of(p), sums[0]));
    BY_TYPE(p.out_type, TYPE, store_real<TYPE>(out, p.out0 + i, value));
}
