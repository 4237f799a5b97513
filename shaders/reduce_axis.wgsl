// Sums, or extremes and their indices, along the middle axis of an array of three: of each BLOCK elements, or of as many totals of an earlier launch.
// Grid: linear. By row, one workgroup per BLOCK elements; else one invocation per column of each BLOCK elements along the axis.
// Bindings: 0 x (outer, len, inner) read; 1 out (outer, parts, inner) totals of four words, or results, read_write; 2 params, starts of x in elements or totals and of out in words.
// Constants: WG; BLOCK; BY_ROW inner is 1; PARTIAL x has totals of an earlier launch; NARROW x is of the type in params, else f32.

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

const WG: u32 = 64u;
const BLOCK: u32 = 1024u;
const BY_ROW: u32 = 1u;
const PARTIAL: u32 = 0u;
const NARROW: u32 = 0u;

// Flags for terms of a sum that are not finite.
const NAN: u32 = 1u;
const PLUS: u32 = 2u;
const MINUS: u32 = 4u;

// The total of each invocation. For a sum: the bits of the nearest f32 and of the remainder, and flags for terms that are not finite. For
// an extreme: its bits, its key (0 before the first element), and its index along the axis.
var<workgroup> totals: array<vec4<u32>, WG>;

// Returns a key that grows with the number of these bits, and is largest for NaN. Floats are not compared, since compilers may assume that
// none is NaN, and devices may flush subnormal ones to 0.
fn key(bits: u32) -> u32 {
    if is_nan_bits(bits) {
        return 0xffffffffu;
    }
    if bits == 0u {
        return 0x80000000u;
    }
    // -0 and 0 have the same key.
    if bits > 0x80000000u {
        return ~bits;
    }
    return bits | 0x80000000u;
}

fn greater(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    if b.y > a.y || (b.y == a.y && b.z < a.z) {
        return b;
    }
    return a;
}

fn plus(total: vec4<u32>, value: u32) -> vec4<u32> {
    let sum = two_sum(bitcast<vec2<f32>>(total.xy), bitcast<f32>(value), params.zero);
    return vec4(bitcast<vec2<u32>>(sum), total.z, 0u);
}

fn joined(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    if params.op > MEAN {
        return greater(a, b);
    }
    return plus(plus(vec4(a.xy, a.z | b.z, 0u), b.x), b.y);
}

// Returns a total with one more element.
fn added(total: vec4<u32>, bits: u32, index: u32) -> vec4<u32> {
    if params.op > MEAN {
        var mapped = bits;
        if params.op == MIN {
            mapped = bits ^ 0x80000000u;
        } else if params.op == ANY {
            mapped = select(0u, 0x3f800000u, (bits & 0x7fffffffu) != 0u);
        }
        return greater(total, vec4(mapped, key(mapped), index, 0u));
    }
    if !is_finite_bits(bits) {
        let infinite = select(PLUS, MINUS, bits == 0xff800000u);
        return vec4(total.xy, total.z | select(infinite, NAN, is_nan_bits(bits)), 0u);
    }
    return plus(total, bits);
}

// Returns a total joined with element i of x, or with total i of x.
fn with_item(total: vec4<u32>, i: u32, index: u32) -> vec4<u32> {
    if PARTIAL == 1u {
        let word = 4u * i;
        return joined(total, vec4(x[word], x[word + 1u], x[word + 2u], 0u));
    }
    let dtype = select(DTYPE_F32, params.x_type, NARROW == 1u);
    return added(total, decode_bits(x[word_of(i, dtype)], x[high_word_of(i, dtype)], i, dtype), index);
}

// Returns the twelve leading bits of a number; products of two such numbers are exact.
fn leading(value: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(value) & 0xfffff000u);
}

// Divides a sum by the number of its terms. A second quotient corrects the remainder of the first.
fn mean(sum: vec2<f32>) -> f32 {
    let zero = params.zero;
    let guess = opaque(sum.x / params.count, zero);
    let high = leading(guess);
    let low = opaque(guess - high, zero);
    let count_high = leading(params.count);
    let count_low = opaque(params.count - count_high, zero);
    var left = opaque(sum.x - opaque(high * count_high, zero), zero);
    left = opaque(left - opaque(high * count_low, zero), zero);
    left = opaque(left - opaque(low * count_high, zero), zero);
    left = opaque(left - opaque(low * count_low, zero), zero);
    left = opaque(left + sum.y, zero) - opaque(guess * params.count_rest, zero);
    return guess + opaque(left / params.count, zero);
}

// Returns the bits of a sum or a mean, as the nearest f32 and the remainder.
fn sum_words(total: vec4<u32>) -> vec2<u32> {
    if (total.z & NAN) != 0u || total.z == (PLUS | MINUS) {
        return vec2(0x7fc00000u, 0u);
    }
    if total.z != 0u {
        return vec2(select(0x7f800000u, 0xff800000u, total.z == MINUS), 0u);
    }
    if params.op == MEAN && is_finite_bits(total.x) {
        return vec2(bitcast<u32>(mean(bitcast<vec2<f32>>(total.xy))), 0u);
    }
    return total.xy;
}

fn store_total(place: u32, own: vec4<u32>) {
    let i = params.out0 + 4u * place;
    var total = own;
    if params.accumulate == 1u {
        total = joined(vec4(out[i], out[i + 1u], out[i + 2u], 0u), own);
    }
    out[i] = total.x;
    out[i + 1u] = total.y;
    out[i + 2u] = total.z;
    out[i + 3u] = 0u;
}

fn store(place: u32, total: vec4<u32>) {
    if params.stored == TOTAL {
        store_total(place, total);
        return;
    }
    let i = params.out0 + place * select(1u, 2u, params.stored == TWO);
    if params.stored == INDEX {
        out[i] = total.z;
        return;
    }
    if params.op > MEAN {
        out[i] = select(total.x, total.x ^ 0x80000000u, params.op == MIN);
        return;
    }
    let words = sum_words(total);
    out[i] = words.x;
    if params.stored == TWO {
        out[i + 1u] = words.y;
    }
}

fn by_row(block: u32, parts: u32, lane: u32) {
    let row = block / parts;
    if row >= params.outer {
        return;
    }
    let start = (block % parts) * BLOCK;
    let count = min(params.len - start, BLOCK);
    // The bits of 0.0 and of 0 are the same.
    var total = vec4<u32>();
    for (var at = lane; at < count; at += WG) {
        let place = start + at;
        total = with_item(total, params.x0 + row * params.len + place, params.first + place);
    }
    totals[lane] = total;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            totals[lane] = joined(totals[lane], totals[lane + half]);
        }
    }
    if lane == 0u {
        store(block, totals[0]);
    }
}

fn by_column(item: u32, parts: u32) {
    let part = item / params.inner;
    let outer = part / parts;
    if outer >= params.outer {
        return;
    }
    let start = (part % parts) * BLOCK;
    let first = params.x0 + (outer * params.len + start) * params.pitch + item % params.inner;
    var total = vec4<u32>();
    for (var at = 0u; at < min(params.len - start, BLOCK); at++) {
        total = with_item(total, first + at * params.pitch, params.first + start + at);
    }
    store(item, total);
}

@compute @workgroup_size(WG)
fn reduce_axis(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = linear_group(group, groups);
    let parts = (params.len - 1u) / BLOCK + 1u;
    if BY_ROW == 1u {
        by_row(number, parts, lane);
    } else {
        by_column(number * WG + lane, parts);
    }
}
