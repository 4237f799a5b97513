// Weighted sums of neighbours along one axis, or along up to three: out[i] = sum of weights[t] x[i + o + t - w / 2] along y, or along z, y and x.
// Grid: linear. One thread per element of a line and `run` outputs along y, or where these are narrower than a word per word of the output; where TILED one block per 16 x 32 outputs of `run` planes.
// Bindings: 0 x (outer, z, y, x, step) read; 1 numbers read: constants beyond the edges of z, y and x, then weights of z, y and x; 2 out read_write; 3 params.
// Constants: WG; TILED sums are along z, y and x, else along y; WIDE sums are of f64, and so are the numbers.
// Hardware: a thread makes four neighbours along the axis of its sums at once, and so loads what two of them share once.
// Runs are long: what they see again is in a cache then, and each element comes from memory about once.
// A tile goes along z. Each thread holds what the sums across z need of its cells, nine planes, in registers, and loads the next plane while
// the block sums along y. Sums along y stand in shared memory by columns, of one more than there are rows, so that no access meets a bank twice.

#include "dev.cuh"

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

typedef RealOf<WIDE == 1>::Real real;

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
