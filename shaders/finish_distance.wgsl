// Distances from the sums of a metric's terms for pairs: out[i, j] = formula(sums[i, j]), in place or transposed, for all pairs or for a triangle.
// Grid: linear, one workgroup per WG pairs.
// Bindings: 0 sums of the terms, `term_step` pairs apart, of two f32 or an f64 each, read; 1 undefined (observations,) u32 read; 2 out f32, or pairs of two f32 or an f64 each, read and written; 3 params, starts and steps in pairs and elements.
// Constants: WG; WIDE 0, since WGSL has no f64. Distances are computed in pairs of f32, of which the first is the distance as an f32.

@group(0) @binding(0) var<storage, read> sums: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> undefined: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const WIDE: u32 = 0u;

// The relative size of rounding errors that may remain when terms cancel.
const NOISE: f32 = 0x1p-20f;

// Compilers may assume that no number is NaN, so bits are used to test for NaN and to make it.
const NONE: vec2<u32> = vec2<u32>(0x7fc00000u, 0u);

// From here on, a number is two f32: the nearest f32, and the remainder.

// Returns the first 12 bits of a number.
fn upper(value: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(value) & 0xfffff000u);
}

fn difference(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
    return two_sum(two_sum(x, -y.x, params.zero), -y.y, params.zero);
}

// Multiplies two numbers. Products of halves of the digits are exact, and so is each sum with them (Dekker, "A floating-point technique for
// extending the available precision", 1971).
fn product(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
    let zero = params.zero;
    let all = opaque(x.x * y.x, zero);
    if !is_finite_bits(bitcast<u32>(all)) {
        return vec2(all, 0.0);
    }
    let x_upper = upper(x.x);
    let y_upper = upper(y.x);
    let x_lower = opaque(x.x - x_upper, zero);
    let y_lower = opaque(y.x - y_upper, zero);
    var rest = opaque(x_upper * y_upper - all, zero);
    rest = opaque(rest + x_upper * y_lower, zero);
    rest = opaque(rest + x_lower * y_upper, zero);
    rest = opaque(rest + x_lower * y_lower, zero);
    return two_sum(vec2(all, 0.0), rest + (x.x * y.y + x.y * y.x), zero);
}

// Returns the factor that scales a very small or large number, so that the rounding errors of its products are normal f32.
fn back(value: f32) -> f32 {
    return select(select(1.0, 0x1p64f, value < 0x1p-40f), 0x1p-64f, value > 0x1p80f);
}

// Divides by a number above 0, digit by digit. A device may be off by some units in each digit; with three digits, equal quotients are
// equal.
fn quotient(part: vec2<f32>, whole: vec2<f32>) -> vec2<f32> {
    let factor = back(whole.x);
    let y = whole * factor;
    var left = part * factor;
    var found = vec2<f32>(0.0, 0.0);
    for (var i = 0u; i < 3u; i++) {
        let digit = opaque(left.x / y.x, params.zero);
        if !is_finite_bits(bitcast<u32>(digit)) || !is_finite_bits(bitcast<u32>(y.x)) {
            return vec2(digit, 0.0);
        }
        found = two_sum(found, digit, params.zero);
        left = difference(left, product(y, vec2(digit, 0.0)));
    }
    return found;
}

// Returns the square root, or 0 for a negative number.
fn root(number: vec2<f32>) -> vec2<f32> {
    if !(number.x > 0.0) || !is_finite_bits(bitcast<u32>(number.x)) {
        return vec2(max(number.x, 0.0), 0.0);
    }
    let factor = back(number.x);
    let x = number * factor;
    let guess = opaque(sqrt(x.x), params.zero);
    let left = difference(x, product(vec2(guess, 0.0), vec2(guess, 0.0)));
    let found = two_sum(vec2(guess, 0.0), 0.5 * left.x / guess, params.zero);
    return found * select(select(1.0, 0x1p-32f, factor > 1.0), 0x1p32f, factor < 1.0);
}

// Returns 2 to a whole exponent, or the nearest power of two that f32 has.
fn two_to(exponent: i32) -> f32 {
    return bitcast<f32>(u32(clamp(exponent, -126, 127) + 127) << 23u);
}

// Returns a number to the power `inverse`, not yet unscaled. Exponent and mantissa are raised separately, since the logarithm of the whole
// number would lose digits.
fn power(number: vec2<f32>) -> f32 {
    var bits = bitcast<u32>(number.x);
    if bits == 0u || (bits >> 31u) == 1u || !is_finite_bits(bits) {
        return select(0.0, number.x, bits == 0x7f800000u);
    }
    var exponent = 0;
    if bits < 0x800000u {
        // A subnormal number is a multiple of 2^-149.
        bits = bitcast<u32>(f32(bits));
        exponent = -149;
    }
    exponent += i32(bits >> 23u) - 127;
    var near = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u);
    if near > 1.5 {
        near *= 0.5;
        exponent += 1;
    }
    let shifted = product(vec2(f32(exponent), 0.0), vec2(params.inverse, params.inverse_rest));
    let fine = (log2(near) + 1.442695 * number.y / number.x) * params.inverse;
    let all = clamp(two_sum(shifted, fine, params.zero), vec2(-400.0), vec2(400.0));
    let whole = round(all.x);
    let value = exp2(opaque(all.x - whole, params.zero) + all.y);
    let first = i32(whole) / 2;
    // In this order, only the last product can overflow.
    let half = value * two_to(first) * params.factor_first;
    return half * two_to(i32(whole) - first) * params.factor_second;
}

// Limits an angle to 0 to 2, which rounding may exceed.
fn at_most_two(value: vec2<f32>) -> vec2<u32> {
    if value.x < 0.0 {
        return vec2(0u);
    }
    let is_beyond = value.x > 2.0 || (value.x == 2.0 && value.y > 0.0);
    return bitcast<vec2<u32>>(select(value, vec2(2.0, 0.0), is_beyond));
}

// Returns an angle; NaN if a length is 0.
fn angle(part: vec2<f32>, x_length: vec2<f32>, y_length: vec2<f32>) -> vec2<u32> {
    let lengths = product(x_length, y_length);
    if !(lengths.x > 0.0) {
        return NONE;
    }
    return at_most_two(difference(vec2(1.0, 0.0), quotient(part, lengths)));
}

// Returns the root of the variation of an observation's elements, or 0 if only a rounding error remains.
fn spread(both: vec2<f32>, squares: vec2<f32>, sum: vec2<f32>) -> vec2<f32> {
    let all = product(both, squares);
    let value = difference(all, product(sum, sum));
    return root(select(vec2(0.0), value, value.x > all.x * NOISE));
}

// Returns the quotient, or NaN unless `whole` is above 0.
fn ratio(part: vec2<f32>, whole: vec2<f32>) -> vec2<u32> {
    if !(whole.x > 0.0) {
        return NONE;
    }
    return bitcast<vec2<u32>>(quotient(part, whole));
}

// Returns the quotient, or 0 unless `whole` is above 0.
fn share(part: vec2<f32>, whole: vec2<f32>) -> vec2<u32> {
    return select(vec2(0u), ratio(part, whole), whole.x > 0.0);
}

// Returns a distance without the power of two by which elements were multiplied.
fn unscaled(value: vec2<f32>) -> vec2<u32> {
    return bitcast<vec2<u32>>(value * params.factor_first * params.factor_second);
}

// Returns the distance for the sums of up to six terms.
fn distance(sums: array<vec2<f32>, 6>) -> vec2<u32> {
    let features = vec2(params.features, params.features_rest);
    var both = features;
    if params.missing != PROPAGATE {
        both = sums[5];
        if params.terms < 5u {
            both = select(select(sums[3], sums[2], params.terms == 3u), sums[1], params.terms == 2u);
        }
    }
    if params.missing > IGNORE && both.x == 0.0 {
        return select(vec2(0u), NONE, params.missing == RESCALE);
    }
    let sum = sums[0];
    var scaled = sum;
    if params.missing > IGNORE && is_finite_bits(bitcast<u32>(sum.x)) {
        scaled = product(sum, quotient(features, both));
    }
    switch params.formula {
        case PLAIN: { return unscaled(scaled); }
        case ROOT: { return unscaled(root(scaled)); }
        case LARGEST: { return unscaled(sum); }
        case POWER: { return vec2(bitcast<u32>(power(scaled)), 0u); }
        case HALF_SQUARE: { return at_most_two(0.5 * sum); }
        case ANGLE: { return angle(sum, root(sums[1]), root(sums[2])); }
        case CENTRED_ANGLE: {
            let part = difference(product(both, sum), product(sums[3], sums[4]));
            return angle(part, spread(both, sums[1], sums[3]), spread(both, sums[2], sums[4]));
        }
        case RATIO: { return ratio(sum, sums[1]); }
        case SHARE: { return share(sum, both); }
        case SHARE_OF_ANY: { return share(sum, difference(sum, -sums[1])); }
        case RATIO_OF_BOTH: { return ratio(sum, difference(sum, -2.0 * sums[1])); }
        case SHARE_OF_NONE: { return share(difference(both, sum), both); }
        case HALF: { return bitcast<vec2<u32>>(0.5 * sum); }
        case ROOT_OF_HALF: { return bitcast<vec2<u32>>(root(0.5 * sum)); }
        default: { return bitcast<vec2<u32>>(root(difference(vec2(1.0, 0.0), sum))); }
    }
}

@compute @workgroup_size(WG)
fn finish_distance(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    if item >= params.rows * params.cols {
        return;
    }
    let row = item / params.cols;
    let col = item - row * params.cols;
    if params.lower == 1u && params.col0 + col > params.row0 + row {
        return;
    }
    let place = params.sums0 + row * params.sums_step + col;
    var terms = array<vec2<f32>, 6>();
    var is_number = undefined[params.row_flag0 + row] == 0u && undefined[params.col_flag0 + col] == 0u;
    for (var i = 0u; i < params.terms; i++) {
        terms[i] = sums[place + i * params.term_step];
        is_number = is_number && !is_nan_bits(bitcast<u32>(terms[i].x));
    }
    var value = NONE;
    if is_number {
        value = distance(terms);
        if params.zero_diagonal == 1u && params.row0 + row == params.col0 + col && (value.x & 0x7fffffffu) <= 0x7f800000u {
            value = vec2(0u);
        }
    }
    let at = params.out0 + row * params.out_row_step + col * params.out_col_step;
    if params.paired == 1u {
        out[2u * at] = value.x;
        out[2u * at + 1u] = value.y;
    } else {
        out[at] = value.x;
    }
}
