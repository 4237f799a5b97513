// Weighted sums of neighbours along y, along x, or along y and then x: out[i] = sum of weights[t] x[i + o + t - w / 2].
// Grid: linear. One workgroup per strip of an array and `run` rows, which it computes `rows` at a time; with neither ALONG nor ACROSS, one invocation per output along y, or, on devices that store only words, per word of outputs.
// Bindings: 0 x (outer, y, x, step) read; 1 numbers read: constants beyond the edges of z, y and x, then weights of y and x; 2 out read_write; 3 params.
// Constants: WG; ALONG 1 for sums along y of strips, ACROSS 1 for sums along x of strips; WIDE 0, since WGSL has no f64; ROOM numbers that a workgroup has room for.

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> numbers: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const ALONG: u32 = 1u;
const ACROSS: u32 = 1u;
const WIDE: u32 = 0u;
const ROOM: u32 = 8192u;

// The number of outputs along an axis that an invocation computes at once: two vectors.
const MANY: u32 = 8u;

var<workgroup> cells: array<f32, select(1u, ROOM, ALONG + ACROSS > 0u)>;

// Returns the index of the element, of n, that is used at a coordinate, or a negative number for the constant. Slow remainders are only
// computed for coordinates that are further beyond an edge than the axis is long.
fn source_of(edge: u32, at: i32, n: i32) -> i32 {
    if at >= 0 && at < n {
        return at;
    }
    if edge == CONSTANT {
        return -1;
    }
    let is_left = at < 0;
    if edge == NEAREST {
        return select(n - 1, 0, is_left);
    }
    // The distance beyond the edge is not negative: remainders of negative numbers differ between devices.
    var place = select(at - n, -1 - at, is_left);
    if edge == WRAP || edge == REFLECT {
        let period = select(2 * n, n, edge == WRAP);
        if place >= period {
            place %= period;
        }
        if edge == REFLECT {
            place = min(place, 2 * n - 1 - place);
        }
        return select(n - 1 - place, place, is_left == (edge == REFLECT));
    }
    let period = max(2 * n - 2, 1);
    place = abs(at);
    if place >= period {
        place %= period;
    }
    return min(place, period - place);
}

fn edge_of(axis: u32) -> u32 {
    return (params.edges >> (4u * axis)) & 15u;
}

fn kind_of(axis: u32) -> u32 {
    return (params.kinds >> (4u * axis)) & 15u;
}

fn element(i: u32) -> f32 {
    return bitcast<f32>(decode_bits(x[word_of(i, params.x_type)], x[high_word_of(i, params.x_type)], i, params.x_type));
}

fn truncated(value: f32) -> f32 {
    if params.truncate == 0u {
        return value;
    }
    return truncate_to(value, params.truncate - 1u);
}

fn all_truncated(values: vec4<f32>) -> vec4<f32> {
    return vec4(truncated(values.x), truncated(values.y), truncated(values.z), truncated(values.w));
}

// Returns the length of a vector. Its numbers are first multiplied by a power of two if squares may overflow, or be flushed to 0.
fn length_of(x: f32, y: f32) -> f32 {
    let most = max(abs(x), abs(y));
    let is_small = most < 0x1p-50f;
    let is_large = most > 0x1p62f;
    let scale = select(select(1.0, 0x1p100f, is_small), 0x1p-100f, is_large);
    let inverse = select(select(1.0, 0x1p-100f, is_small), 0x1p100f, is_large);
    let across = x * scale;
    let down = y * scale;
    return sqrt(fma(across, across, down * down)) * inverse;
}

// Returns the new element i of the output, combined with the old one, which is then f32.
fn combined(value: f32, i: u32) -> f32 {
    let sum = truncated(value);
    if params.combine == REPLACE {
        return sum;
    }
    let old = bitcast<f32>(out[i]);
    if params.combine == ADD {
        return old + sum;
    }
    return length_of(old, sum);
}

// Returns the number of elements of a word of the output. An f64 counts as one, although it has two words.
fn elements_of_word() -> u32 {
    return select(select(select(1u, 2u, is_half(params.out_type)), 4u, is_byte(params.out_type)), 1u, params.out_type == DTYPE_F64);
}

fn store_word(item: u32, each: u32, values: vec4<f32>, start: u32, end: u32) {
    if params.out_type == DTYPE_F64 {
        let bits = f64_of(bitcast<u32>(values.x));
        out[2u * item] = bits.x;
        out[2u * item + 1u] = bits.y;
        return;
    }
    var word = 0u;
    if end - start < each {
        word = out[item];
    }
    let size = 32u / each;
    for (var j = start; j < end; j++) {
        word = insertBits(word, encode_bits(bitcast<u32>(values[j]), params.out_type), size * j, size);
    }
    out[item] = word;
}
