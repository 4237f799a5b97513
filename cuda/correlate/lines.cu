// Sums along y alone.

// The axis y of an array, at an element of its lines.
DEVICE Axis axis_of(const Params& p, const void* x, const real* numbers, u32 array, u32 element) {
    u32 line = p.nx * p.step;
    return {x, p.x0 + array * p.count * line + element, line, (i32)p.ny, (i32)p.first, edge_of(p, 1), numbers[1]};
}

// N outputs along y from `y` on, at an element of the lines of an array.
template <u32 N> DEVICE void make_along(const Params& p, const Whole& whole, const void* x, const real* numbers, void* out, u32 array, u32 y, u32 element) {
    Axis axis = axis_of(p, x, numbers, array, element);
    u32 first = p.out0 + (array * p.my + y) * axis.stride + element;
    real sums[N] = {};
    BY_TYPE(p.x_type, TYPE, (sums_at<TYPE>(axis, numbers + 3, p.wy, kind_of(p, 1), (i32)(y + p.oy), sums)));
    auto tap = [&](u32 t) {
        real value = 0;
        BY_TYPE(p.x_type, TYPE, value = (at<TYPE>(axis, (i32)(y + p.oy + t) - (i32)(p.wy / 2))));
        return value;
    };
    make_finite(numbers + 3, p.wy, kind_of(p, 1), tap, sums);
    for (u32 k = 0; k < N; k++) sums[k] = combined(p, out, first + k * axis.stride, truncated(whole, sums[k]));
    BY_TYPE(p.out_type, TYPE, for (u32 k = 0; k < N; k++) store_real<TYPE>(out, first + k * axis.stride, sums[k]));
}

// The outputs of a thread: those of a run along y, or where they are narrower than a word those of a word.
DEVICE void make_lines(const Params& p, const void* x, const real* numbers, void* out) {
    Whole whole = whole_of(p);
    u32 line = p.nx * p.step;
    u32 item = linear_block() * WG + threadIdx.x;
    u32 each = 4 / size_of(p.out_type);
    u32 part = item / line;
    u32 runs = div_ceil(p.my, p.run);
    u32 array = part / runs;
    u32 element = item - part * line;
    u32 i = (part - array * runs) * p.run;
    u32 end = array < p.outer ? min(p.my, i + p.run) : 0;
    if (each > 1) {
        item += p.out0 / each;
        i = max(item * each, p.out0) - p.out0;
        end = min(item * each + each - p.out0, p.outer * p.my * line);
    }
#pragma unroll 1
    while (i < end) {
        u32 y = i;
        if (each > 1) {
            u32 row = i / line;
            array = row / p.my;
            y = row - array * p.my;
            element = i - row * line;
        }
        if (each <= 1 && i + MANY <= end) {
            make_along<MANY>(p, whole, x, numbers, out, array, y, element);
            i += MANY;
        } else {
            make_along<1>(p, whole, x, numbers, out, array, y, element);
            i++;
        }
    }
}
