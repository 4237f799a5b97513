// A function of elements: out[i] = f(a[..], b[..], c[..]) for an output of three axes, along each of which an operand has a step or repeats.
// Grid: linear. One workgroup per WG words of the output, which narrow elements share; for f64, per WG elements.
// Bindings: 0 a read; 1 b read; 2 c read; 3 out written; 4 params, starts and steps in elements.
// Constants: WG; NARROW elements are of the types in params, else f32; WIDE 0, since WGSL has no f64.

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> c: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;
@group(0) @binding(4) var<uniform> params: Params;

const WG: u32 = 256u;
const NARROW: u32 = 0u;
const WIDE: u32 = 0u;

const NAN: u32 = 0x7fc00000u;

fn type_of(dtype: u32) -> u32 {
    return select(DTYPE_F32, dtype, NARROW == 1u);
}

fn a_bits(i: u32) -> u32 {
    let dtype = type_of(params.a_type);
    return decode_bits(a[word_of(i, dtype)], a[high_word_of(i, dtype)], i, dtype);
}

fn b_bits(i: u32) -> u32 {
    if params.operands < 2u {
        return params.b_low;
    }
    let dtype = type_of(params.b_type);
    return decode_bits(b[word_of(i, dtype)], b[high_word_of(i, dtype)], i, dtype);
}

fn c_bits(i: u32) -> u32 {
    if params.operands < 3u {
        return params.c_low;
    }
    let dtype = type_of(params.c_type);
    return decode_bits(c[word_of(i, dtype)], c[high_word_of(i, dtype)], i, dtype);
}

// Returns a key that grows with the number of these bits, which is not NaN. Devices may flush subnormal floats to 0, and compilers may
// assume that no float is infinite.
fn key(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) == 0u {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

// Returns the smaller number, or the NaN.
fn least(x: u32, y: u32) -> u32 {
    return select(y, x, is_nan_bits(x) || (!is_nan_bits(y) && key(x) < key(y)));
}

fn most(x: u32, y: u32) -> u32 {
    return select(y, x, is_nan_bits(x) || (!is_nan_bits(y) && key(x) > key(y)));
}

fn compared(x: u32, y: u32) -> bool {
    if is_nan_bits(x) || is_nan_bits(y) {
        return params.function == NOT_EQUAL;
    }
    let left = key(x);
    let right = key(y);
    switch params.function {
        case LESS: { return left < right; }
        case LESS_EQUAL: { return left <= right; }
        case GREATER: { return left > right; }
        case GREATER_EQUAL: { return left >= right; }
        case EQUAL: { return left == right; }
        default: { return left != right; }
    }
}

// The logarithm and the root of negative numbers are NaN, and so are results of NaN.
fn of_one(x: u32) -> u32 {
    let value = bitcast<f32>(x);
    let is_negative = (x >> 31u) == 1u && (x & 0x7fffffffu) != 0u;
    switch params.function {
        case NEGATIVE: { return x ^ 0x80000000u; }
        case ABSOLUTE: { return x & 0x7fffffffu; }
        case SQUARE_ROOT: {
            // Bits identify 0 and infinity.
            let is_own = (x & 0x7fffffffu) == 0u || x == 0x7f800000u;
            return select(select(bitcast<u32>(sqrt(value)), x, is_own), NAN, is_negative || is_nan_bits(x));
        }
        case EXPONENTIAL: {
            if is_nan_bits(x) {
                return NAN;
            }
            // Beyond these bounds the result is infinite, or 0.
            return select(select(bitcast<u32>(exp(value)), 0x7f800000u, value > 88.8), 0u, value < -104.0);
        }
        case LOGARITHM: {
            if is_negative || is_nan_bits(x) {
                return NAN;
            }
            // Bits identify 0 and infinity. A subnormal number is a multiple of 2^-149.
            let found = select(log(value), log(f32(x)) - 103.27893, x < 0x800000u);
            return select(select(bitcast<u32>(found), 0xff800000u, (x & 0x7fffffffu) == 0u), x, x == 0x7f800000u);
        }
        default: { return bitcast<u32>(truncate_to(value, type_of(params.out_type))); }
    }
}

fn of_two(x: u32, y: u32) -> u32 {
    let left = bitcast<f32>(x);
    let right = bitcast<f32>(y);
    switch params.function {
        case MINIMUM: { return least(x, y); }
        case MAXIMUM: { return most(x, y); }
        default: {}
    }
    if is_nan_bits(x) || is_nan_bits(y) {
        return NAN;
    }
    switch params.function {
        case ADD: { return bitcast<u32>(left + right); }
        case SUBTRACT: { return bitcast<u32>(left - right); }
        case MULTIPLY: { return bitcast<u32>(left * right); }
        default: { return bitcast<u32>(left / right); }
    }
}

fn value_of(i: u32) -> u32 {
    let row = i / params.extent2;
    let column = i - row * params.extent2;
    let outer = row / params.extent1;
    let middle = row - outer * params.extent1;
    let x = a_bits(params.a0 + outer * params.a_step0 + middle * params.a_step1 + column * params.a_step2);
    if params.function == COPY {
        return x;
    }
    if params.function < ADD {
        return of_one(x);
    }
    let y = b_bits(params.b0 + outer * params.b_step0 + middle * params.b_step1 + column * params.b_step2);
    if params.function < LESS {
        return of_two(x, y);
    }
    if params.function < CLAMP {
        return select(0u, 0x3f800000u, compared(x, y));
    }
    let z = c_bits(params.c0 + outer * params.c_step0 + middle * params.c_step1 + column * params.c_step2);
    if params.function == CLAMP {
        return least(most(x, y), z);
    }
    return select(y, z, (x & 0x7fffffffu) == 0u);
}

@compute @workgroup_size(WG)
fn elementwise(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    let dtype = type_of(params.out_type);
    let each = select(select(1u, 2u, is_half(dtype)), 4u, is_byte(dtype));
    if item > (params.n - 1u) / each {
        return;
    }
    let size = 32u / each;
    var word = 0u;
    for (var j = 0u; j < each && each * item + j < params.n; j++) {
        let bits = encode_bits(value_of(params.first + each * item + j), dtype);
        word = insertBits(word, bits, size * j, size);
    }
    out[item] = word;
}
