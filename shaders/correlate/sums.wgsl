// Sums of taps along an axis, of which those that are not finite are made again.

// Elements along an axis that are `stride` apart, of which `base` is the first at hand. In a strip they are cells, and behind the last of n
// comes the first, which sums along x never reach.
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

// A number below twice `n`, less `n` where it is not below that.
fn around(i: u32, n: u32) -> u32 {
    return min(i, i - n);
}

fn four(axis: Axis, first: i32) -> vec4<f32> {
    return vec4(at(axis, first), at(axis, first + 1), at(axis, first + 2), at(axis, first + 3));
}

// A tap that is added to that as far before the centre.
fn other(value: f32, kind: u32) -> f32 {
    return select(select(value, -value, kind == ODD), 0.0, kind == ANY);
}

fn others(values: vec4<f32>, kind: u32) -> vec4<f32> {
    return select(select(values, -values, kind == ODD), vec4(0.0), kind == ANY);
}

// The tap with which a sum begins; each before it then adds to the sum, and where weights are symmetric that on the other side
// with it.
fn first_tap(count: u32, kind: u32) -> u32 {
    return select(count / 2u, count - 1u, kind == ANY);
}

fn are_finite(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4(0x7f800000u)) != vec4(0x7f800000u);
}

fn are_nan(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4(0x7fffffffu)) > vec4(0x7f800000u);
}

// A power of two, by which elements whose sums are not finite are divided: no sum of theirs is beyond the type unless the result
// is, or weights add up to as much.
const SCALE: f32 = 0x1p32f;
const INVERSE: f32 = 0x1p-32f;

// Sums, made tap by tap, of elements divided by SCALE: with weights; and for EVEN with differences, which are no numbers where
// elements are infinite. With the centre, and the tap before.
struct Again {
    sums: vec4<f32>,
    steps: vec4<f32>,
    centre: vec4<f32>,
    last: vec4<f32>,
}

// Adds tap t. Numbers of EVEN: on the left, sums of weights; in the middle, that of all; on the right, weights.
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

// The sums, of which those that are not finite are taken from what was made again.
fn end_again(again: Again, weights: u32, count: u32, kind: u32, sums: vec4<f32>) -> vec4<f32> {
    let steps = fma(again.centre, vec4(numbers[weights + count / 2u]), again.steps);
    let made = select(again.sums, steps, are_finite(steps) & vec4(kind == EVEN)) * SCALE;
    return select(made, sums, are_finite(sums));
}

// Makes those of the sums of four neighbours again that are not finite.
fn sums_again(axis: Axis, weights: u32, count: u32, kind: u32, start: i32, sums: vec4<f32>) -> vec4<f32> {
    // Sums are NaN where their centre is.
    if all(are_finite(sums) | are_nan(four(axis, start + i32(count / 2u)))) {
        return sums;
    }
    var again: Again;
    for (var t = 0u; t < count; t++) {
        again = add_again(again, four(axis, start + i32(t)), weights, count, kind, t);
    }
    return end_again(again, weights, count, kind, sums);
}

// The sum whose taps begin at a coordinate: from the centre, then from the outermost taps to the innermost, those as far from the
// centre together; of weights without symmetry from the last, then from the first. Sums of EVEN are of each tap less its neighbour
// towards the centre, then of the centre.
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

// The sums of four neighbours, of which the first has its taps from there: each element is loaded once for all of them.
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
