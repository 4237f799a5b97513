// Weighted sums of neighbours along one axis, or along up to three: out[i] = sum of weights[t] x[i + o + t - w / 2] along y, or along z, y and x.
// Grid: linear. One thread per element of a line and `run` outputs along y, or where these are narrower than a word per word of the output; where TILED one block per 16 x 32 outputs of `run` planes.
// Bindings: 0 x (outer, z, y, x, step) read; 1 numbers read: constants beyond the edges of z, y and x, then weights of z, y and x; 2 out read_write; 3 params.
// Constants: WG; TILED sums are along z, y and x, else along y; WIDE sums are of f64, and so are the numbers.
// Hardware: a thread makes four neighbours along the axis of its sums at once, and so loads what two of them share once.
// Runs are long: what they see again is in a cache then, and each element comes from memory about once.
// A tile goes along z. Each thread holds what the sums across z need of its cells, nine planes, in registers, and loads the next plane while
// the block sums along y. Sums along y stand in shared memory by columns, of one more than there are rows, so that no access meets a bank twice.

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
    u32 run;
};

constexpr u32 WG = 256;
constexpr u32 TILED = 0;
constexpr u32 WIDE = 0;

// Blocks that a multiprocessor has the registers for.
constexpr u32 BLOCKS = WIDE == 1 ? 1 : 2;
// Outputs along an axis that a thread makes at once.
constexpr u32 MANY = 4;
// Outputs of a tile's plane, and numbers that a block has room for.
constexpr u32 TILE_Y = 16;
constexpr u32 TILE_X = 2 * TILE_Y;
constexpr u32 ROOM = 4000;
// The largest radius across z, and cells of a thread where there are sums across z.
constexpr u32 REACH = 4;
constexpr u32 CELLS = 4;
// From one column of sums along y to the next, and from one row of outputs.
constexpr u32 COLUMN = TILE_Y + 1;
constexpr u32 ROW = TILE_X + 1;

enum Edge : u32 { REFLECT, MIRROR, NEAREST, WRAP, CONSTANT };
enum Kind : u32 { EVEN = 1, ODD, ANY, PAIRED };
enum Combine : u32 { REPLACE, ADD, LENGTH };

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

// Which of n elements stands at a coordinate; below 0 where it is the constant. Remainders, which are slow, are for what is farther
// beyond an edge than the other edge.
DEVICE i32 source(u32 edge, i32 at, i32 n) {
    if (at >= 0 && at < n) return at;
    if (edge == CONSTANT) return -1;
    bool is_left = at < 0;
    if (edge == NEAREST) return is_left ? 0 : n - 1;
    i32 place = is_left ? -1 - at : at - n;
    if (edge == WRAP || edge == REFLECT) {
        i32 period = edge == WRAP ? n : 2 * n;
        if (place >= period) place %= period;
        if (edge == REFLECT) place = min(place, 2 * n - 1 - place);
        return is_left == (edge == REFLECT) ? place : n - 1 - place;
    }
    i32 period = max(2 * n - 2, 1);
    place = is_left ? -at : at;
    if (place >= period) place %= period;
    return min(place, period - place);
}

DEVICE u32 edge_of(const Params& p, u32 axis) { return p.edges >> (4 * axis) & 15; }
DEVICE u32 kind_of(const Params& p, u32 axis) { return p.kinds >> (4 * axis) & 15; }

// Makes a sum that is not finite again, of elements divided by a power of two: none of those is beyond the type unless the result is. Where
// elements are infinite, their differences are no numbers, and the sum is that of elements and weights. Numbers of EVEN: on the left, sums
// of weights; in the middle, that of all; on the right, weights.
template <class At> DEVICE real sum_again(const real* weights, u32 count, u32 kind, At at) {
    const real scale = (real)4294967296.0;
    u32 end = count - 1, radius = count / 2;
    bool apart = kind == EVEN;
    real sum = 0, steps = 0, last = 0, centre = 0;
#pragma unroll 1
    for (u32 t = 0; t < count; t++) {
        real value = at(t) / scale;
        if (value != value) return value;
        real weight = weights[t < radius && kind != ANY ? end - t : t];
        if (kind == ODD && t < radius) weight = -weight;
        if (apart && t == radius) weight -= weights[radius - 1] + weights[radius - 1];
        sum = multiply_add(value, weight, sum);
        if (apart && t > 0) steps = multiply_add(t <= radius ? last - value : value - last, weights[t <= radius ? t - 1 : end - t], steps);
        if (t == radius) centre = value;
        last = value;
    }
    if (apart) steps = multiply_add(centre, weights[radius], steps);
    return (apart && is_finite(steps) ? steps : sum) * scale;
}

// Makes those of the sums of N neighbours again that are not finite.
template <u32 N, class At> DEVICE void make_finite(const real* weights, u32 count, u32 kind, At at, real (&sums)[N]) {
    u32 again = 0;
    for (u32 k = 0; k < N; k++) again |= is_finite(sums[k]) ? 0 : 1u << k;
#pragma unroll 1
    for (u32 k = 0; again >> k; k++) {
        if (!(again >> k & 1)) continue;
        real sum = sum_again(weights, count, kind, [&](u32 t) { return at(k + t); });
        for (u32 i = 0; i < N; i++) sums[i] = i == k ? sum : sums[i];
    }
}

// The sums of taps of N neighbours, where `at(k + t)` is tap t of neighbour k: from the centre, then from the outermost to the
// innermost, those as far from the centre together; of weights without symmetry from the last, then from the first. EVEN: of each tap less
// that next to it towards the centre, and the centre at the end.
template <u32 N, int UNROLL, class At> DEVICE void sum_taps(const real* weights, u32 count, u32 kind, At at, real (&sums)[N]) {
    u32 end = count - 1;
    u32 first = kind == ANY ? end : count / 2;
    bool apart = kind == EVEN;
    u32 one = apart;
    auto other = [&](real value) { return kind == ODD ? -value : kind == ANY ? 0 : value; };
    // Values of N neighbours go on by one at a time, in registers.
    real before[N] = {}, after[N] = {};
    auto forward = [](real (&values)[N], real next) {
        for (u32 k = 0; k + 1 < N; k++) values[k] = values[k + 1];
        values[N - 1] = next;
    };
    real left = at(0), right = at(end - one);
#pragma unroll UNROLL
    for (u32 k = 0; k < N; k++) {
        real next = at(k + one), last = at(end + k);
        forward(before, apart ? left - next : next);
        forward(after, other(apart ? last - right : last));
        forward(sums, apart ? 0 : at(first + k) * weights[first]);
        left = next;
        right = last;
    }
    right = at(end - one);
#pragma unroll UNROLL
    for (u32 t = 0; t < first; t++) {
        real weight = weights[t];
        for (u32 k = 0; k < N; k++) sums[k] = multiply_add(before[k] + after[k], weight, sums[k]);
        real next = at(t + N + one), last = at(end - 1 - t - one);
        forward(before, apart ? left - next : next);
        for (u32 k = N - 1; k > 0; k--) after[k] = after[k - 1];
        after[0] = other(apart ? right - last : last);
        left = next;
        right = last;
    }
    if (apart) {
        for (u32 k = 0; k < N; k++) sums[k] = multiply_add(at(first + k), weights[first], sums[k]);
    }
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

// The sums of neighbours, of which the centre of the first is at a coordinate.
template <u32 TYPE, u32 N> DEVICE void sums_at(const Axis& axis, const real* weights, u32 count, u32 kind, i32 centre, real (&sums)[N]) {
    i32 start = centre - (i32)(count / 2);
    if (start >= 0 && start + (i32)(count + N - 1) <= axis.n) {
        u32 from = axis.base + (u32)(start - axis.first) * axis.stride;
        sum_taps<N, 4>(weights, count, kind, [&](u32 t) { return load_real<TYPE, real>(axis.x, from + t * axis.stride); }, sums);
    } else {
        sum_taps<N, 1>(weights, count, kind, [&](u32 t) { return at<TYPE>(axis, start + (i32)t); }, sums);
    }
}

// What sums are made of: the largest and the least element of the type of integers that they are truncated to, if they are.
struct Whole {
    bool is;
    double least;
    double most;
};

DEVICE Whole whole_of(const Params& p) {
    Whole whole = {false, 0, 0};
    if (p.truncate > 0) BY_TYPE(p.truncate - 1, TYPE, (whole = {IS_INTEGER<TYPE>, LEAST<TYPE>, MOST<TYPE>}));
    return whole;
}

DEVICE real truncated(const Whole& whole, real value) {
    if (!whole.is) return value;
    return value != value ? 0 : (real)trunc(value <= whole.least ? whole.least : value >= whole.most ? whole.most : value);
}

// The length of a vector: where squares may be beyond the type, or nearly 0, that of numbers times a power of two.
DEVICE real length(real x, real y) {
    const real large = (real)(WIDE == 1 ? 0x1p500 : 0x1p62);
    const real by = (real)(WIDE == 1 ? 0x1p600 : 0x1p100);
    real most = fabs(x) < fabs(y) ? fabs(y) : fabs(x);
    real scale = most > large ? 1 / by : most < 1 / large ? by : 1;
    x *= scale;
    y *= scale;
    return sqrt(x * x + y * y) / scale;
}

// What element i of the output becomes.
DEVICE real combined(const Params& p, const void* out, u32 i, real sum) {
    if (p.combine == REPLACE) return sum;
    real old = ((const real*)out)[i];
    return p.combine == ADD ? old + sum : length(old, sum);
}

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

// In place of where in a plane an element stands: it is beyond an edge of y, or no sum that becomes an output sees it.
constexpr u32 BEYOND = 0xfffffffe;
constexpr u32 UNSEEN = 0xffffffff;

// A plane of a tile: its first output, and what its sums along y see.
struct Tile {
    u32 array;
    u32 first_y;
    u32 first_x;
    u32 size_x;
    u32 reach_y;
    u32 reach_x;
    u32 width;
    u32 seen;
};

// Where in its plane, or without sums across z in its array, an element stands that sums along y see.
DEVICE u32 place_of(const Params& p, const Tile& tile, u32 row, u32 column) {
    if (row >= min(TILE_Y, p.my - tile.first_y) + tile.reach_y) return UNSEEN;
    u32 element = tile.first_x + column;
    u32 place = element / p.step;
    i32 at_y = source(edge_of(p, 1), (i32)(tile.first_y + row + p.oy) - (i32)(tile.reach_y / 2), (i32)p.ny);
    i32 at_x = source(edge_of(p, 2), (i32)(place + p.ox) - (i32)(tile.reach_x / 2), (i32)p.nx);
    if (at_x < 0) return UNSEEN;
    if (at_y < 0) return BEYOND;
    u32 first = p.wz == 0 ? p.first : 0;
    return (((u32)at_y - first) * p.nx + (u32)at_x) * p.step + (element - place * p.step);
}

// What a cell is of which the element, or the sum across z, is `value`.
DEVICE real cell(const real* numbers, u32 place, real value) { return place == UNSEEN ? 0 : place == BEYOND ? numbers[1] : value; }

// Does `act(i, place)` for each cell of this thread. The loop is not unrolled: compilers make hundreds of copies of place_of.
template <class Act> DEVICE void for_each_cell(const Params& p, const Tile& tile, Act act) {
    u32 row = threadIdx.x / tile.width;
    u32 column = threadIdx.x - row * tile.width;
    u32 rows = WG / tile.width;
    u32 columns = WG - rows * tile.width;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < tile.seen; i += WG) {
        act(i, place_of(p, tile, row, column));
        row += rows;
        column += columns;
        if (column >= tile.width) {
            row++;
            column -= tile.width;
        }
    }
}

// True where every cell has an element: those of whole tiles away from the edges.
DEVICE bool is_interior(const Params& p, const Tile& tile) {
    i32 first_y = (i32)(tile.first_y + p.oy) - (i32)(tile.reach_y / 2);
    i32 first_x = (i32)(tile.first_x / p.step + p.ox) - (i32)(tile.reach_x / 2);
    i32 rows = (i32)(TILE_Y + tile.reach_y), columns = (i32)(div_ceil(tile.first_x + tile.width, p.step) - tile.first_x / p.step);
    bool is_whole = tile.first_y + TILE_Y <= p.my && first_y >= 0 && first_y + rows <= (i32)p.ny;
    return is_whole && first_x >= 0 && first_x + columns <= (i32)p.nx;
}

// Cells of an interior tile, of which the first has element `first`, and rows are `line` apart: some are loaded before the first is stored.
template <u32 TYPE> DEVICE void fill_interior(const Tile& tile, const void* x, u32 first, u32 line, real* cells) {
    u32 row = threadIdx.x / tile.width;
    u32 column = threadIdx.x - row * tile.width;
    u32 rows = WG / tile.width;
    u32 columns = WG - rows * tile.width;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < tile.seen; i += CELLS * WG) {
        real values[CELLS];
#pragma unroll
        for (u32 c = 0; c < CELLS; c++) {
            if (i + c * WG < tile.seen) values[c] = load_real<TYPE, real>(x, first + row * line + column);
            row += rows;
            column += columns;
            if (column >= tile.width) {
                row++;
                column -= tile.width;
            }
        }
#pragma unroll
        for (u32 c = 0; c < CELLS; c++) {
            if (i + c * WG < tile.seen) cells[i + c * WG] = values[c];
        }
    }
}

// Cells without sums across z.
DEVICE void fill_plain(const Params& p, const Tile& tile, const void* x, const real* numbers, real* cells) {
    u32 line = p.nx * p.step;
    u32 base = p.x0 + tile.array * p.count * line;
    if (is_interior(p, tile)) {
        u32 first = base + (tile.first_y + p.oy - tile.reach_y / 2 - p.first) * line + tile.first_x + (p.ox - tile.reach_x / 2) * p.step;
        BY_TYPE(p.x_type, TYPE, fill_interior<TYPE>(tile, x, first, line, cells));
        return;
    }
    for_each_cell(p, tile, [&](u32 i, u32 place) {
        real value = 0;
        if (place < BEYOND) BY_TYPE(p.x_type, TYPE, value = (load_real<TYPE, real>(x, base + place)));
        cells[i] = cell(numbers, place, value);
    });
}

// A thread's cells, of which it holds the planes from REACH before to REACH behind that of its sums.
struct Ring {
    u32 places[CELLS];
    real planes[CELLS][2 * REACH + 1];
};

template <u32 TYPE> DEVICE void load_cells(const void* x, u32 base, const u32 (&places)[CELLS], real (&values)[CELLS]) {
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) {
        if (places[c] < BEYOND) values[c] = load_real<TYPE, real>(x, base + places[c]);
    }
}

// Goes on by a plane: the last is then that at a coordinate of the output, if some sum up to the plane `end` sees it.
DEVICE void advance(const Params& p, const Tile& tile, const void* x, const real* numbers, Ring& ring, i32 z, u32 end) {
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) {
#pragma unroll
        for (u32 d = 0; d < 2 * REACH; d++) ring.planes[c][d] = ring.planes[c][d + 1];
    }
    if (z >= (i32)(end + p.wz / 2)) return;
    i32 at_z = source(edge_of(p, 0), z + (i32)p.oz, (i32)p.nz);
    u32 base = p.x0 + (tile.array * p.count + (u32)at_z - p.first) * p.ny * p.nx * p.step;
    real values[CELLS];
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) values[c] = numbers[0];
    if (at_z >= 0) {
        BY_TYPE(p.x_type, TYPE, load_cells<TYPE>(x, base, ring.places, values));
    }
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) ring.planes[c][2 * REACH] = values[c];
}

// The sum across z of a cell, in the order of sum_taps. Indices are constants, so that the planes stay in registers.
DEVICE real sum_across(const real (&planes)[2 * REACH + 1], const real* weights, u32 radius, u32 kind) {
    real sum = 0;
    if (kind == ANY) {
#pragma unroll
        for (u32 d = 0; d <= REACH; d++) {
            if (d == radius) sum = planes[REACH + d] * weights[2 * radius];
        }
#pragma unroll
        for (u32 d = 0; d < 2 * REACH; d++) {
            if (d + radius >= REACH && d < REACH + radius) sum = multiply_add(planes[d], weights[d + radius - REACH], sum);
        }
    } else if (kind != EVEN) {
        sum = planes[REACH] * weights[radius];
    }
#pragma unroll
    for (u32 d = REACH; d > 0; d--) {
        if (d > radius || kind == ANY) continue;
        real before = planes[REACH - d], after = planes[REACH + d];
        if (kind == EVEN) {
            before -= planes[REACH - d + 1];
            after -= planes[REACH + d - 1];
        }
        sum = multiply_add(kind == ODD ? before - after : before + after, weights[radius - d], sum);
    }
    if (kind == EVEN) sum = multiply_add(planes[REACH], weights[radius], sum);
    if (is_finite(sum)) return sum;
    return sum_again(weights, 2 * radius + 1, kind, [&](u32 t) {
        real value = 0;
#pragma unroll
        for (u32 d = 0; d <= 2 * REACH; d++) value = d + radius == t + REACH ? planes[d] : value;
        return value;
    });
}

DEVICE void fill_across(const Params& p, const Tile& tile, const Whole& whole, const real* numbers, const Ring& ring, real* cells) {
#pragma unroll
    for (u32 c = 0; c < CELLS; c++) {
        u32 i = threadIdx.x + c * WG;
        real value = truncated(whole, sum_across(ring.planes[c], numbers + 3, p.wz / 2, kind_of(p, 0)));
        if (i < tile.seen) cells[i] = cell(numbers, ring.places[c], value);
    }
}

// The sums of neighbours in shared memory, whose taps are `stride` apart.
DEVICE void sums_in_cells(const real* weights, u32 count, u32 kind, const real* taps, u32 stride, real (&sums)[MANY]) {
    auto tap = [&](u32 t) { return taps[t * stride]; };
    sum_taps<MANY, 4>(weights, count, kind, tap, sums);
    make_finite(weights, count, kind, tap, sums);
}

// Sums along y, by columns.
DEVICE void sum_columns(const Params& p, const Tile& tile, const Whole& whole, const real* numbers, const real* cells, real* columns) {
#pragma unroll 1
    for (u32 q = threadIdx.x; q < TILE_Y / MANY * tile.width; q += WG) {
        u32 group = q / tile.width;
        u32 column = q - group * tile.width;
        const real* taps = cells + group * MANY * tile.width + column;
        real sums[MANY];
        for (u32 k = 0; k < MANY; k++) sums[k] = taps[k * tile.width];
        if (p.wy > 0) sums_in_cells(numbers + 3 + p.wz, p.wy, kind_of(p, 1), taps, tile.width, sums);
        i32 place = (i32)((tile.first_x + column) / p.step + p.ox) - (i32)(tile.reach_x / 2);
        bool is_beyond = p.wx > 0 && source(edge_of(p, 2), place, (i32)p.nx) < 0;
        for (u32 k = 0; k < MANY; k++) {
            real value = p.wy > 0 ? truncated(whole, sums[k]) : sums[k];
            columns[column * COLUMN + group * MANY + k] = is_beyond ? numbers[2] : value;
        }
    }
}

// Sums along x, by rows. The halves of a warp are half a tile apart: a column of 17 numbers for each of 16 elements.
DEVICE void sum_rows(const Params& p, const Tile& tile, const real* numbers, const real* columns, real* rows) {
    u32 groups = tile.size_x / MANY;
#pragma unroll 1
    for (u32 q = threadIdx.x; q < TILE_Y * groups; q += WG) {
        u32 row = q % TILE_Y;
        u32 nth = q / TILE_Y;
        u32 group = nth % 2 * div_ceil(groups, 2) + nth / 2;
        u32 block = group / p.step;
        u32 element = block * MANY * p.step + (group - block * p.step);
        const real* taps = columns + element * COLUMN + row;
        u32 stride = p.step * COLUMN;
        real sums[MANY];
        for (u32 k = 0; k < MANY; k++) sums[k] = taps[k * stride];
        if (p.wx > 0) sums_in_cells(numbers + 3 + p.wz + p.wy, p.wx, kind_of(p, 2), taps, stride, sums);
        for (u32 k = 0; k < MANY; k++) rows[row * ROW + element + k * p.step] = sums[k];
    }
}

DEVICE void make_tile(const Params& p, const void* x, const real* numbers, void* out, real* cells) {
    Whole whole = whole_of(p);
    Tile tile;
    u32 line = p.mx * p.step;
    tile.size_x = TILE_X / (MANY * p.step) * (MANY * p.step);
    u32 across = div_ceil(line, tile.size_x);
    u32 down = div_ceil(p.my, TILE_Y);
    u32 runs = div_ceil(p.mz, p.run);
    u32 tile_row = linear_block() / across;
    u32 nth = tile_row / down;
    tile.array = nth / runs;
    if (tile.array >= p.outer) return;
    tile.first_x = (linear_block() - tile_row * across) * tile.size_x;
    tile.first_y = (tile_row - nth * down) * TILE_Y;
    tile.reach_y = max(p.wy, 1u) - 1;
    tile.reach_x = max(p.wx, 1u) - 1;
    tile.width = tile.size_x + tile.reach_x * p.step;
    tile.seen = (TILE_Y + tile.reach_y) * tile.width;
    u32 first = (nth - tile.array * runs) * p.run;
    u32 end = min(p.mz, first + p.run);
    Ring ring;
    if (p.wz > 0) {
        // By way of the shared memory, so that places stand in registers that are known.
        u32* places = (u32*)cells;
        for_each_cell(p, tile, [&](u32 i, u32 place) { places[i] = place; });
#pragma unroll
        for (u32 c = 0; c < CELLS; c++) {
            u32 i = threadIdx.x + c * WG;
            ring.places[c] = i < tile.seen ? places[i] : UNSEEN;
#pragma unroll
            for (u32 d = 0; d <= 2 * REACH; d++) ring.planes[c][d] = 0;
        }
        // Other threads' cells stand where this one's places did.
        __syncthreads();
        i32 last = (i32)(first + REACH);
#pragma unroll 1
        for (i32 z = (i32)first - (i32)(p.wz / 2); z <= last; z++) advance(p, tile, x, numbers, ring, z, end);
    }
    real* columns = cells + tile.seen;
    real* rows = columns + tile.width * COLUMN;
#pragma unroll 1
    for (u32 z = first; z < end; z++) {
        if (p.wz > 0) fill_across(p, tile, whole, numbers, ring, cells);
        else fill_plain(p, tile, x, numbers, cells);
        __syncthreads();
        if (p.wz > 0) advance(p, tile, x, numbers, ring, (i32)(z + 1 + REACH), end);
        sum_columns(p, tile, whole, numbers, cells, columns);
        __syncthreads();
        sum_rows(p, tile, numbers, columns, rows);
        __syncthreads();
#pragma unroll 1
        for (u32 i = threadIdx.x; i < TILE_Y * TILE_X; i += WG) {
            u32 row = i / TILE_X;
            u32 element = i % TILE_X;
            if (element >= tile.size_x || tile.first_y + row >= p.my || tile.first_x + element >= line) continue;
            u32 place = ((tile.array * p.mz + z) * p.my + tile.first_y + row) * line + tile.first_x + element;
            real value = combined(p, out, p.out0 + place, truncated(whole, rows[row * ROW + element]));
            BY_TYPE(p.out_type, TYPE, store_real<TYPE>(out, p.out0 + place, value));
        }
    }
}

KERNEL(correlate, WG, BLOCKS)(const void* __restrict__ x, const real* __restrict__ numbers, void* __restrict__ out, Params params) {
    SHARED(real, cells, TILED == 1 ? ROOM : 1);
    if constexpr (TILED == 1) make_tile(params, x, numbers, out, cells);
    else make_lines(params, x, numbers, out);
}
EXPORT(correlate)
