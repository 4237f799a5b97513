// Keeps the k items with the smallest sums of each line, in order. A launch offers some of the items.
// Grid: linear, one workgroup per line.
// Bindings: 0 sums (pairs) of two words each read; 1 undefined_lines u32 read; 2 undefined_items u32 read; 3 kept_sums (lines, k) pairs read_write; 4 kept_numbers (lines, k) u32 read_write; 5 params, steps and starts in sums and flags.
// Constants: WG; MOST_KEPT the largest k; WIDE 0, since WGSL has no f64: a sum is an f32 and its rounding error; PLAIN the sums of binding 0 are one f32 each.

@group(0) @binding(0) var<storage, read> sums: array<u32>;
@group(0) @binding(1) var<storage, read> undefined_lines: array<u32>;
@group(0) @binding(2) var<storage, read> undefined_items: array<u32>;
@group(0) @binding(3) var<storage, read_write> kept_sums: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> kept_numbers: array<u32>;
@group(0) @binding(5) var<uniform> params: Params;

const WG: u32 = 64u;
const MOST_KEPT: u32 = 256u;
const WIDE: u32 = 0u;
const PLAIN: u32 = 0u;

// The number of items that an invocation takes between two barriers.
const LOADS: u32 = 4u;
// The index that means no item.
const NOWHERE: u32 = 0xffffffffu;
// The key of a NaN sum.
const LAST: vec2<u32> = vec2<u32>(0xffffffffu, 0u);
// A NaN sum.
const NONE: vec2<u32> = vec2<u32>(0x7fc00000u, 0u);
const SIGN: u32 = 0x80000000u;

// The place of the candidates, behind two lists that are used in turn.
const FOUND: u32 = 2u * MOST_KEPT;

// The keys, sums and indices of two lists, and of the candidates of a step.
var<workgroup> keys: array<vec2<u32>, 2u * MOST_KEPT + WG>;
var<workgroup> pairs: array<vec2<u32>, 2u * MOST_KEPT + WG>;
var<workgroup> numbers: array<u32, 2u * MOST_KEPT + WG>;
// The last turn in which an invocation had a candidate, and 1 if it is the current turn.
var<workgroup> last_turn: atomic<u32>;
var<workgroup> any_near: u32;

// The items that a line is offered: from `first` to `end - 1`, without the item of index `skipped`.
struct Line {
    start: u32,
    first: u32,
    end: u32,
    skipped: u32,
    is_undefined: bool,
}

// Returns a key that grows with the number of these bits, which is not NaN. Floats are not compared, since devices may flush subnormal ones
// to 0. -0 and 0 have the same key.
fn ordered(bits: u32) -> u32 {
    if bits > SIGN {
        return ~bits;
    }
    return bits | SIGN;
}

fn ordered_pair(pair: vec2<u32>) -> vec2<u32> {
    return vec2(ordered(pair.x), ordered(pair.y));
}

fn is_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x < b.x || (a.x == b.x && a.y < b.y);
}

// Returns the part of a sum's rounding error that f64 keeps beside the sum, as the host and other devices join both.
fn kept_rest(bits: u32, rest: f32) -> f32 {
    let is_power = (bits & 0x7fffffu) == 0u && (bits ^ bitcast<u32>(rest)) >= SIGN;
    let exponent = i32((bits >> 23u) & 255u) - select(127, 128, is_power);
    // Small sums keep their rounding errors, which then have few more bits than f64 keeps.
    if exponent < -60 {
        return rest;
    }
    let steps = rest * bitcast<f32>(u32(179 - exponent) << 23u);
    return select(round(steps) * bitcast<f32>(u32(exponent + 75) << 23u), rest, abs(steps) >= 0x1p23f);
}

// Returns the f32 nearest to the sum of two numbers, and the remainder. The first number is the larger one.
fn normalised(pair: vec2<u32>) -> vec2<u32> {
    let zero = params.zero;
    let high = bitcast<f32>(pair.x);
    let low = bitcast<f32>(pair.y);
    let sum = opaque(high + low, zero);
    let rest = opaque(low - opaque(sum - high, zero), zero);
    let bits = bitcast<u32>(sum);
    return vec2(bits, select(0u, bitcast<u32>(kept_rest(bits, rest)), is_finite_bits(bits)));
}

// Returns the key by which a sum is compared: two words that grow with the sum, or with `falling` decrease.
fn key_of(pair: vec2<u32>) -> vec2<u32> {
    if is_nan_bits(pair.x) || is_nan_bits(pair.y) {
        return LAST;
    }
    var value = normalised(pair);
    if is_nan_bits(value.x) {
        return LAST;
    }
    let low = vec2(params.low, 0u);
    let high = vec2(params.high, 0u);
    if is_less(ordered_pair(value), ordered_pair(low)) {
        value = low;
    }
    if is_less(ordered_pair(high), ordered_pair(value)) {
        value = high;
    }
    if params.falling == 1u {
        value ^= vec2(SIGN, SIGN);
    }
    return ordered_pair(value);
}

// Returns true if the first of two items is nearer. Of equal items, the one with the lower index is nearer.
fn precedes(a: vec2<u32>, a_number: u32, b: vec2<u32>, b_number: u32) -> bool {
    if a.x == b.x && a.y == b.y {
        return a_number < b_number;
    }
    return is_less(a, b);
}

// Returns an offered sum.
fn offered_sum(i: u32) -> vec2<u32> {
    if PLAIN == 1u {
        return vec2(sums[i], 0u);
    }
    return vec2(sums[2u * i], sums[2u * i + 1u]);
}

fn line_of(line: u32) -> Line {
    let number = params.line0 + line;
    let below = select(0u, min(number - params.item0, params.items), number > params.item0);
    var offered = Line(params.sums0 + line * params.line_step, 0u, params.items, NOWHERE, false);
    offered.is_undefined = undefined_lines[params.line_flags0 + line] != 0u;
    if params.offered != ALL {
        offered.skipped = number;
    }
    if params.offered == BELOW {
        offered.end = below;
    }
    if params.offered == ABOVE {
        offered.first = below;
    }
    return offered;
}

fn put(i: u32, key: vec2<u32>, pair: vec2<u32>, number: u32) {
    keys[i] = key;
    pairs[i] = pair;
    numbers[i] = number;
}

// Returns the number of candidates, which are unordered, that are nearer than an item.
fn candidates_before(key: vec2<u32>, number: u32) -> u32 {
    var count = 0u;
    for (var i = FOUND; i < FOUND + WG; i++) {
        count += select(0u, 1u, precedes(keys[i], numbers[i], key, number));
    }
    return count;
}

// Returns the number of items of the ordered list that are nearer than an item.
fn kept_before(list: u32, key: vec2<u32>, number: u32) -> u32 {
    var low = 0u;
    var high = params.k;
    while low < high {
        let middle = (low + high) / 2u;
        if precedes(keys[list + middle], numbers[list + middle], key, number) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

// Writes the first k of a list and the candidates to the other list.
fn merge_lists(list: u32, lane: u32) {
    let next = MOST_KEPT - list;
    let key = keys[FOUND + lane];
    let number = numbers[FOUND + lane];
    if number != NOWHERE {
        let place = candidates_before(key, number) + kept_before(list, key, number);
        if place < params.k {
            put(next + place, key, pairs[FOUND + lane], number);
        }
    }
    for (var i = lane; i < params.k; i += WG) {
        let place = i + candidates_before(keys[list + i], numbers[list + i]);
        if place < params.k {
            put(next + place, keys[list + i], pairs[list + i], numbers[list + i]);
        }
    }
}

// Writes an item to the candidates if it is nearer than the last item of the list, and otherwise an empty place.
fn propose(line: Line, item: u32, list: u32, lane: u32) -> bool {
    let number = params.item0 + item;
    var key = LAST;
    var pair = NONE;
    var is_near = false;
    if item < line.end && number != line.skipped {
        if !line.is_undefined && undefined_items[params.item_flags0 + item] == 0u {
            let own = offered_sum(line.start + item * params.item_step);
            key = key_of(own);
            if key.x != LAST.x {
                pair = own;
            }
        }
        let last = list + params.k - 1u;
        is_near = precedes(key, number, keys[last], numbers[last]);
    }
    if is_near {
        put(FOUND + lane, key, pair, number);
    } else {
        // An empty place precedes no item.
        put(FOUND + lane, LAST, NONE, NOWHERE);
    }
    return is_near;
}

// Returns true if an item of the step may be nearer than the list's last. Undefined items and the line's own are not excluded.
fn may_be_near(line: Line, start: u32, list: u32, lane: u32) -> bool {
    let last = list + params.k - 1u;
    let last_key = keys[last];
    let last_number = numbers[last];
    var some = false;
    for (var i = 0u; i < LOADS; i++) {
        let item = start + i * WG + lane;
        if item < line.end {
            var key = LAST;
            if !line.is_undefined {
                key = key_of(offered_sum(line.start + item * params.item_step));
            }
            some = some || precedes(key, params.item0 + item, last_key, last_number);
        }
    }
    return some;
}

// Tells all invocations if `holds` is true for any of them. Each turn is larger than the turn before.
fn tell(holds: bool, turn: u32, lane: u32) {
    if holds {
        atomicMax(&last_turn, turn);
    }
    workgroupBarrier();
    if lane == 0u {
        any_near = select(0u, 1u, atomicLoad(&last_turn) == turn);
    }
}

@compute @workgroup_size(WG)
fn nearest(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = linear_group(group, groups);
    if number >= params.lines {
        return;
    }
    let k = params.k;
    let own_sums = params.kept0 + number * k;
    let own_numbers = params.numbers0 + number * k;
    for (var i = lane; i < k; i += WG) {
        if params.fresh == 1u {
            put(i, LAST, NONE, NOWHERE);
        } else {
            let pair = kept_sums[own_sums + i];
            put(i, key_of(pair), pair, kept_numbers[own_numbers + i]);
        }
    }
    if lane == 0u {
        atomicStore(&last_turn, 0u);
    }
    workgroupBarrier();

    let line = line_of(number);
    var list = 0u;
    var turn = 0u;
    var has_changed = params.fresh == 1u;
    for (var start = line.first; start < line.end; start += WG * LOADS) {
        turn++;
        tell(may_be_near(line, start, list, lane), turn, lane);
        if workgroupUniformLoad(&any_near) == 0u {
            continue;
        }
        for (var at = start; at < min(line.end, start + WG * LOADS); at += WG) {
            turn++;
            tell(propose(line, at + lane, list, lane), turn, lane);
            if workgroupUniformLoad(&any_near) == 0u {
                continue;
            }
            merge_lists(list, lane);
            workgroupBarrier();
            list = MOST_KEPT - list;
            has_changed = true;
        }
    }
    if has_changed {
        for (var i = lane; i < k; i += WG) {
            kept_sums[own_sums + i] = pairs[list + i];
            kept_numbers[own_numbers + i] = numbers[list + i];
        }
    }
}
