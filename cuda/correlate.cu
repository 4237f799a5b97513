// Weighted sums of neighbours along y, along x, or along y and then x: out[i] = sum of weights[t] x[i + o + t - w / 2].
// Grid: linear. One block per strip of an array and `run` rows, which it computes `rows` at a time; with neither ALONG nor ACROSS, one thread per output along y, or, on devices that store only words, per word of outputs.
// Bindings: 0 x (outer, y, x, step) read; 1 numbers read: constants beyond the edges of z, y and x, then weights of y and x; 2 out read_write; 3 params.
// Constants: WG; ALONG 1 for sums along y of strips, ACROSS 1 for sums along x of strips; WIDE 1 for sums, and numbers, of f64; ROOM numbers that a block has room for.
// Hardware: a thread computes eight neighbours along the axis of its sums at once, and loads elements that they share once. A block keeps
// the rows that its sums along y need in a ring in shared memory, so that each row comes from memory once. Cells that are summed along x
// are stored there column by column.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 ALONG = 1;
constexpr u32 ACROSS = 1;
constexpr u32 WIDE = 0;
constexpr u32 ROOM = 8192;

// The number of blocks for which a multiprocessor has the registers.
constexpr u32 BLOCKS = WIDE == 1 ? 2 : ALONG + ACROSS == 2 ? 3 : 4;
// The number of outputs along an axis that a thread computes at once.
constexpr u32 MANY = 8;

typedef RealOf<WIDE == 1>::Real real;

// Returns x y + z. f32 is rounded once, f64 twice, as in scipy.
DEVICE float multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
DEVICE double multiply_add(double x, double y, double z) { return rounded_product(x, y) + z; }

// Returns the index of the element, of n, that is used at a coordinate, or a negative number for the constant. Slow remainders are only
// computed for coordinates at least as far beyond an edge as the edges are apart.
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

// The least and the largest element of the integer type to which sums are truncated, if they are.
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

// Returns the length of a vector. Its numbers are first multiplied by a power of two if squares may overflow or nearly vanish.
DEVICE real length(real x, real y) {
    const real large = (real)(WIDE == 1 ? 0x1p500 : 0x1p62);
    const real by = (real)(WIDE == 1 ? 0x1p600 : 0x1p100);
    real most = fabs(x) < fabs(y) ? fabs(y) : fabs(x);
    real scale = most > large ? 1 / by : most < 1 / large ? by : 1;
    x *= scale;
    y *= scale;
    return sqrt(x * x + y * y) / scale;
}

// Returns the new element i of the output: `sum`, or the old element combined with it.
DEVICE real combined(const Params& p, const void* out, u32 i, real sum) {
    if (p.combine == REPLACE) return sum;
    real old = ((const real*)out)[i];
    return p.combine == ADD ? old + sum : length(old, sum);
}
