// Sums of taps along an axis. Sums that are not finite are computed again.

// Elements along an axis, `stride` apart; `base` is the first that is available. In a strip, elements are cells in a ring of n; sums along
// x never wrap around.
struct Axis {
    base: u32,
    stride: u32,
    n: i32,
    edge: u32,
    constant: f32,
}

fn at(axis: Axis, coordinate: i32) -> f32 {
    if ALONG + ACROSS > 0u {
        return cells[axis.base + around(u32(coordinate), u32(axis.n)) * axis.stride];
    }
    let place = source_of(axis.edge, coordinate, axis.n);
    if place < 0 {
        return axis.constant;
    }
    return element(axis.base + (u32(place) - params.first) * axis.stride);
}

// Returns i, or i - n if i is at least n. i is below 2 n.
fn around(i: u32, n: u32) -> u32 {
    return min(i, i - n);
}

fn four(axis: Axis, first: i32) -> vec4<f32> {
    return vec4(at(axis, first), at(axis, first + 1), at(axis, first + 2), at(axis, first + 3));
}

// Returns the term of a tap that is added to the tap at the same distance before the centre.
fn other(value: f32, kind: u32) -> f32 {
    return select(select(value, -value, kind == ODD), 0.0, kind == ANY);
}

fn others(values: vec4<f32>, kind: u32) -> vec4<f32> {
    return select(select(values, -values, kind == ODD), vec4(0.0), kind == ANY);
}

// Returns the tap with which a sum begins. Each tap before it then adds to the sum, with its mirror tap if weights are symmetric.
fn first_tap(count: u32, kind: u32) -> u32 {
    return select(count / 2u, count - 1u, kind == ANY);
}

fn are_finite(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4(0x7f800000u)) != vec4(0x7f800000u);
}

fn are_nan(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4(0x7fffffffu)) > vec4(0x7f800000u);
}

// A power of two. Elements are divided by it if their sum is not finite. Then the sum only overflows if the result does, or if the weights
// add up to as much.
const SCALE: f32 = 0x1p32f;
const INVERSE: f32 = 0x1p-32f;

// Sums of elements divided by SCALE, computed tap by tap: `sums` from weights, and `steps` for EVEN from differences, which are NaN for
// infinite elements; also the centre and the last tap.
struct Again {
    sums: vec4<f32>,
    steps: vec4<f32>,
    centre: vec4<f32>,
    last: vec4<f32>,
}

// Adds tap t. The numbers of EVEN are sums of weights on the left, the sum of all weights in the middle, and weights on the right.
fn add_again(again: Again, tap: vec4<f32>, weights: u32, count: u32, kind: u32, t: u32) -> Again {
    let radius = count / 2u;
    let end = count - 1u;
    let value = tap * INVERSE;
    let is_left = t < radius;
    let number = numbers[weights + select(t, end - t, is_left && kind != ANY)];
    let side = numbers[weights + max(radius, 1u) - 1u];
    var weight = select(number, -number, is_left && kind == ODD);
    weight = select(weight, number - 2.0 * side, t == radius && kind == EVEN);
    let step = select(value - again.last, again.last - value, t <= radius);
    let outer = numbers[weights + select(end - t, max(t, 1u) - 1u, t <= radius)];
    return Again(
        fma(value, vec4(weight), again.sums),
        select(fma(step, vec4(outer), again.steps), vec4(0.0), t == 0u),
        select(again.centre, value, t == radius),
        value,
    );
}

// Returns the sums, with those that are not finite replaced by the ones that were computed again.
fn end_again(again: Again, weights: u32, count: u32, kind: u32, sums: vec4<f32>) -> vec4<f32> {
    let steps = fma(again.centre, vec4(numbers[weights + count / 2u]), again.steps);
    let made = select(again.sums, steps, are_finite(steps) & vec4(kind == EVEN)) * SCALE;
    return select(made, sums, are_finite(sums));
}

// Computes the sums of four neighbours again that are not finite.
fn sums_again(axis: Axis, weights: u32, count: u32, kind: u32, start: i32, sums: vec4<f32>) -> vec4<f32> {
    // A sum is NaN if its centre is NaN.
    if all(are_finite(sums) | are_nan(four(axis, start + i32(count / 2u)))) {
        return sums;
    }
    var again: Again;
    for (var t = 0u; t < count; t++) {
        again = add_again(again, four(axis, start + i32(t)), weights, count, kind, t);
    }
    return end_again(again, weights, count, kind, sums);
}

// Returns the sum whose taps begin at a coordinate. It starts with the centre and adds taps from the outermost to the innermost, the two at
// the same distance together. Without symmetry, it starts with the last tap and adds from the first on. For EVEN, it adds differences of
// each tap and its neighbour towards the centre, and then the centre.
fn sum_at(axis: Axis, weights: u32, count: u32, kind: u32, start: i32) -> f32 {
    let end = start + i32(count) - 1;
    let first = i32(first_tap(count, kind));
    let is_apart = kind == EVEN;
    let middle = at(axis, start + first);
    let weight = numbers[weights + u32(first)];
    var sum = select(middle * weight, 0.0, is_apart);
    var left = at(axis, start);
    var right = at(axis, end);
    for (var t = 0; t < first; t++) {
        let next = at(axis, start + t + 1);
        let last = at(axis, end - t - 1);
        let before = select(left, left - next, is_apart);
        let after = other(select(right, right - last, is_apart), kind);
        sum = fma(before + after, numbers[weights + u32(t)], sum);
        left = next;
        right = last;
    }
    sum = select(sum, fma(middle, weight, sum), is_apart);
    if all(are_finite(vec4(sum))) {
        return sum;
    }
    return sums_again(axis, weights, count, kind, start, vec4(sum)).x;
}

// Returns the sums of four neighbours; the taps of the first begin at `start`. Each element is loaded once for all four.
fn sums_at(axis: Axis, weights: u32, count: u32, kind: u32, start: i32) -> vec4<f32> {
    let end = start + i32(count) - 1;
    let first = i32(first_tap(count, kind));
    let is_apart = kind == EVEN;
    let one = select(0, 1, is_apart);
    let middle = four(axis, start + first);
    let weight = numbers[weights + u32(first)];
    var sums = select(middle * weight, vec4(0.0), is_apart);
    var before = four(axis, start);
    var after = four(axis, end);
    var left = at(axis, start + 3 + one);
    var right = at(axis, end - one);
    before = select(before, before - vec4(before.yzw, left), is_apart);
    after = others(select(after, after - vec4(right, after.xyz), is_apart), kind);
    for (var t = 0; t < first; t++) {
        sums = fma(before + after, vec4(numbers[weights + u32(t)]), sums);
        let next = at(axis, start + t + 4 + one);
        let last = at(axis, end - 1 - t - one);
        before = vec4(before.yzw, select(next, left - next, is_apart));
        after = vec4(other(select(last, right - last, is_apart), kind), after.xyz);
        left = next;
        right = last;
    }
    sums = select(sums, fma(middle, vec4(weight), sums), is_apart);
    if all(are_finite(sums)) {
        return sums;
    }
    return sums_again(axis, weights, count, kind, start, sums);
}
