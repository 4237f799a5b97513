// Sums over features for pairs of observations: sums[i, j] (+)= sum of term(x[i, f], y[j, f]), or the largest.
// Grid: one workgroup per TILE x TILE pairs; x = blocks of y's observations, y = blocks of x's.
// Bindings: 0 x read; 1 y read; 2 x_table, 3 y_table (observations, 3) of shift, its rest, scale f32 read; 4 sums (pairs, 2) f32 read_write; 5 params.
// Constants: TILE 64; TERM the term, or 0 for that in params; MASKED missing elements count nothing; WIDE 0, since WGSL has no f64.

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> y: array<u32>;
@group(0) @binding(2) var<storage, read> x_table: array<f32>;
@group(0) @binding(3) var<storage, read> y_table: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

const TILE: u32 = 64u;
const TERM: u32 = 0u;
const MASKED: u32 = 0u;
const WIDE: u32 = 0u;

// The number of invocations along each side. Each invocation computes 4 x 4 pairs.
const SIDE: u32 = TILE / 4u;
// The number of features of a slice, and the number of slices whose terms are added up before they are folded into the sums: 256 features
// together.
const DEPTH: u32 = 16u;
const SLICES: u32 = 16u;

// A missing element is NaN. Bits are compared, since compilers may assume that no float is NaN.
const MISSING: u32 = 0x7fc00000u;

// [feature][4 observations], as bits.
var<workgroup> x_slice: array<vec4<u32>, DEPTH * SIDE>;
var<workgroup> y_slice: array<vec4<u32>, DEPTH * SIDE>;

fn shifted(bits: u32, shift: f32, rest: f32, scale: f32) -> u32 {
    if MASKED == 1u {
        // Numbers below zero, but not -0.0; and NaN of either sign.
        if (params.negative == 1u && bits > 0x80000000u) || (bits & 0x7fffffffu) > 0x7f800000u {
            return MISSING;
        }
    }
    return bitcast<u32>((bitcast<f32>(bits) - shift - rest) * scale);
}

// The element beyond the ends: zero, which adds nothing, or missing, if elements may be missing.
fn outside() -> u32 {
    return select(0u, MISSING, MASKED == 1u);
}

fn load_x(observation: u32, feature: u32) -> u32 {
    if observation >= params.m || feature >= params.k {
        return outside();
    }
    let i = params.x0 + select(observation * params.ldx + feature, feature * params.ldx + observation, params.by_column == 1u);
    let entry = params.x_table0 + 3u * observation;
    let bits = decode_bits(x[word_of(i, params.x_type)], x[high_word_of(i, params.x_type)], i, params.x_type);
    return shifted(bits, x_table[entry], x_table[entry + 1u], x_table[entry + 2u]);
}

// Loads an element of y. With a step, the observations of y are those for this row of tiles, before which `skipped` are.
fn load_y(column: u32, skipped: u32, feature: u32) -> u32 {
    if column >= params.n || feature >= params.k {
        return outside();
    }
    let observation = skipped + column;
    let i = params.y0 + select(observation * params.ldy + feature, feature * params.ldy + observation, params.by_column == 1u);
    let entry = params.y_table0 + 3u * observation;
    let bits = decode_bits(y[word_of(i, params.y_type)], y[high_word_of(i, params.y_type)], i, params.y_type);
    return shifted(bits, y_table[entry], y_table[entry + 1u], y_table[entry + 2u]);
}

// Loads slices of x and y. Each vec4 is stored whole, since a store to one component may change the others. Neighbours load along the
// direction in which the operands are contiguous.
fn load_slices(first_row: u32, first_col: u32, skipped: u32, k0: u32, lane: u32) {
    var place = vec2(lane % DEPTH, lane / DEPTH);
    if params.by_column == 1u {
        place = vec2(lane / SIDE, lane % SIDE);
    }
    let f = k0 + place.x;
    let row = first_row + 4u * place.y;
    let col = first_col + 4u * place.y;
    let at = place.x * SIDE + place.y;
    x_slice[at] = vec4(load_x(row, f), load_x(row + 1u, f), load_x(row + 2u, f), load_x(row + 3u, f));
    y_slice[at] = vec4(load_y(col, skipped, f), load_y(col + 1u, skipped, f), load_y(col + 2u, skipped, f), load_y(col + 3u, skipped, f));
}

fn quotient(part: vec4<f32>, whole: vec4<f32>) -> vec4<f32> {
    return select(vec4(0.0), part / max(whole, vec4(0x1p-126f)), whole > vec4(0.0));
}

fn part_log(part: vec4<f32>) -> vec4<f32> {
    return select(vec4(0.0), part * log(max(part, vec4(0x1p-126f))), part > vec4(0.0));
}

// Returns the term Divergence: with t = (x - y) / (x + y), (x + y) / 2 times (1 + t) log(1 + t) + (1 - t) log(1 - t). For small t, it adds
// the series of t^2n / (n (2 n - 1)), which has no cancellation.
fn divergence(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let whole = x + y;
    let t = quotient(x - y, whole);
    let square = t * t;
    // There is no loop: software Vulkan ends the loops of an invocation after 65,535 iterations in all.
    var sum = (1.0 / 190.0) * square;
    sum = (sum + 1.0 / 153.0) * square;
    sum = (sum + 1.0 / 120.0) * square;
    sum = (sum + 1.0 / 91.0) * square;
    sum = (sum + 1.0 / 66.0) * square;
    sum = (sum + 1.0 / 45.0) * square;
    sum = (sum + 1.0 / 28.0) * square;
    sum = (sum + 1.0 / 15.0) * square;
    sum = (sum + 1.0 / 6.0) * square;
    sum = (sum + 1.0 / 1.0) * square;
    let logs = part_log(1.0 + t) + part_log(1.0 - t);
    return 0.5 * whole * select(logs, sum, square < vec4(0.25));
}

// Returns the term Relative: with t = (x - y) / (x + y), log(x / y) is 2 artanh t. For small t, its series has no cancellation.
fn relative(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let t = quotient(x - y, x + y);
    let square = t * t;
    var sum = vec4(1.0 / 21.0);
    sum = sum * square + 1.0 / 19.0;
    sum = sum * square + 1.0 / 17.0;
    sum = sum * square + 1.0 / 15.0;
    sum = sum * square + 1.0 / 13.0;
    sum = sum * square + 1.0 / 11.0;
    sum = sum * square + 1.0 / 9.0;
    sum = sum * square + 1.0 / 7.0;
    sum = sum * square + 1.0 / 5.0;
    sum = sum * square + 1.0 / 3.0;
    sum = sum * square + 1.0 / 1.0;
    let log_x = log(max(x, vec4(0x1p-126f)));
    let far = select(log_x, log_x - log(max(y, vec4(0x1p-126f))), y > vec4(0.0));
    let near = (square < vec4(0.25)) & (y > vec4(0.0));
    return select(vec4(0.0), x * select(far, 2.0 * t * sum, near), x > vec4(0.0));
}

fn term_of(kind: u32, x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    switch kind {
        case SQUARE: { return (x - y) * (x - y); }
        case ABSOLUTE, LARGEST: { return abs(x - y); }
        case POWER: { return pow(abs(x - y), vec4(params.power)); }
        case CANBERRA: { return quotient(abs(x - y), abs(x) + abs(y)); }
        case SUM: { return abs(x + y); }
        case UNEQUAL: { return vec4<f32>(x != y); }
        case BOTH: { return vec4<f32>((x != vec4(0.0)) & (y != vec4(0.0))); }
        case ONE: { return vec4<f32>((x != vec4(0.0)) != (y != vec4(0.0))); }
        case COUNT: { return vec4(1.0); }
        case X: { return x; }
        case Y: { return y; }
        case X_SQUARE: { return x * x; }
        case Y_SQUARE: { return y * y; }
        case ROOT: { return sqrt(x) * sqrt(y); }
        case RELATIVE: { return relative(x, y); }
        case DIVERGENCE: { return divergence(x, y); }
        default: { return x * y; }
    }
}

fn is_missing(bits: vec4<u32>) -> vec4<bool> {
    return (bits & vec4(0x7fffffffu)) > vec4(0x7f800000u);
}

// Adds the terms of one observation of x and four of y.
fn added(kind: u32, sum: vec4<f32>, x_bits: u32, y_bits: vec4<u32>) -> vec4<f32> {
    var value = term_of(kind, vec4(bitcast<f32>(x_bits)), bitcast<vec4<f32>>(y_bits));
    if MASKED == 1u {
        value = select(value, vec4(0.0), is_missing(vec4(x_bits)) | is_missing(y_bits));
    }
    if kind == LARGEST {
        return max(sum, value);
    }
    return sum + value;
}

fn fold(row: u32, first_col: u32, values: vec4<f32>, first: bool) {
    if row >= params.m {
        return;
    }
    for (var j = 0u; j < 4u && first_col + j < params.n; j++) {
        let i = 2u * (params.sums0 + row * params.lds + first_col + j);
        let value = values[j];
        if first && params.accumulate == 0u {
            sums[i] = value;
            sums[i + 1u] = 0.0;
        } else if params.term == LARGEST {
            sums[i] = max(sums[i], value);
        } else {
            // `accumulate` is 0 or 1.
            let sum = two_sum(vec2(sums[i], sums[i + 1u]), value, params.accumulate >> 1u);
            sums[i] = sum.x;
            sums[i + 1u] = sum.y;
        }
    }
}

@compute @workgroup_size(SIDE * SIDE)
fn distance(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.y * TILE;
    let first_col = group.x * TILE;
    if params.lower == 1u && params.row0 + first_row + TILE <= params.col0 + first_col {
        return;
    }
    let kind = select(TERM, params.term, TERM == 0u);
    let row = lane / SIDE;
    let col = lane % SIDE;
    for (var k0 = 0u; k0 == 0u || k0 < params.k; k0 += DEPTH * SLICES) {
        var values: array<vec4<f32>, 4>;
        for (var k = k0; k < min(params.k, k0 + DEPTH * SLICES); k += DEPTH) {
            load_slices(first_row, first_col, group.y * params.y_step, k, lane);
            workgroupBarrier();
            for (var depth = 0u; depth < DEPTH; depth++) {
                let left = x_slice[depth * SIDE + row];
                let right = y_slice[depth * SIDE + col];
                values[0] = added(kind, values[0], left.x, right);
                values[1] = added(kind, values[1], left.y, right);
                values[2] = added(kind, values[2], left.z, right);
                values[3] = added(kind, values[3], left.w, right);
            }
            workgroupBarrier();
        }
        for (var i = 0u; i < 4u; i++) {
            fold(first_row + 4u * row + i, first_col + 4u * col, values[i], k0 == 0u);
        }
    }
}
