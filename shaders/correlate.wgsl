// Weighted sums of neighbours along one axis, or along up to three: out[i] = sum of weights[t] x[i + o + t - w / 2] along y, or along z, y and x.
// Grid: linear. One invocation per element of a line and `run` outputs along y, or where these are narrower than a word per word of the output; where TILED one workgroup per 16 x 32 outputs of `run` planes.
// Bindings: 0 x (outer, z, y, x, step) read; 1 numbers read: constants beyond the edges of z, y and x, then weights of z, y and x; 2 out read_write; 3 params.
// Constants: WG; TILED sums are along z, y and x, else along y; WIDE 0, since WGSL has no f64.

struct Params {
    x0: u32,
    out0: u32,
    x_type: u32,
    out_type: u32,
    outer: u32,
    nz: u32,
    ny: u32,
    nx: u32,
    mz: u32,
    my: u32,
    mx: u32,
    oz: u32,
    oy: u32,
    ox: u32,
    wz: u32,
    wy: u32,
    wx: u32,
    first: u32,
    count: u32,
    step: u32,
    edges: u32,
    kinds: u32,
    combine: u32,
    truncate: u32,
    run: u32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> numbers: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const TILED: u32 = 0u;
const WIDE: u32 = 0u;

// Outputs along an axis that an invocation makes at once, as the elements of a vector.
const MANY: u32 = 4u;
// Outputs of a tile's plane, and numbers that a workgroup has room for.
const TILE_Y: u32 = 16u;
const TILE_X: u32 = 32u;
const ROOM: u32 = 4000u;
// The largest radius across z; an invocation has four cells where there are sums across z.
const REACH: u32 = 4u;
// From one column of sums along y to the next, and from one row of outputs.
const COLUMN: u32 = TILE_Y + 1u;
const ROW: u32 = TILE_X + 1u;

const REFLECT: u32 = 0u;
const NEAREST: u32 = 2u;
const WRAP: u32 = 3u;
const CONSTANT: u32 = 4u;

const EVEN: u32 = 1u;
const ODD: u32 = 2u;
const ANY: u32 = 3u;
const PAIRED: u32 = 4u;

const ADD: u32 = 1u;

var<workgroup> cells: array<f32, TILED * (ROOM - 1u) + 1u>;

// Which of n elements stands at a coordinate; below 0 where it is the constant. Remainders, which are slow, are for what is farther
// beyond an edge than the other edge.
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
    // How far beyond the edge: remainders of numbers below 0 are not the same on every device.
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

// Elements along an axis that are `stride` apart, of which `base` is the first at hand: in global memory, or where TILED in cells, all of them.
struct Axis {
    base: u32,
    stride: u32,
    n: i32,
    edge: u32,
    constant: f32,
}

fn at(axis: Axis, coordinate: i32) -> f32 {
    if TILED == 1u {
        return cells[axis.base + u32(coordinate) * axis.stride];
    }
    let place = source_of(axis.edge, coordinate, axis.n);
    if place < 0 {
        return axis.constant;
    }
    return element(axis.base + (u32(place) - params.first) * axis.stride);
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

// With which tap a sum begins; each before it then adds to the sum, and where weights are symmetric that on the other side with it.
fn first_tap(count: u32, kind: u32) -> u32 {
    return select(count / 2u, count - 1u, kind == ANY);
}

fn are_finite(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4(0x7f800000u)) != vec4(0x7f800000u);
}

fn are_nan(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4(0x7fffffffu)) > vec4(0x7f800000u);
}

// A power of two, by which elements whose sums are not finite are divided: no sum of theirs is beyond the type unless the result is, or
// weights add up to as much.
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

// The sum whose centre is at a coordinate: from the centre, then from the outermost taps to the innermost, those as far from the
// centre together; of weights without symmetry from the last, then from the first. Sums of EVEN are of each tap less its neighbour
// towards the centre, then of the centre.
fn sum_at(axis: Axis, weights: u32, count: u32, kind: u32, centre: i32) -> f32 {
    let start = centre - i32(count / 2u);
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

// The sums of four neighbours, of which the first has that centre: each element is loaded once for all of them.
fn sums_at(axis: Axis, weights: u32, count: u32, kind: u32, centre: i32) -> vec4<f32> {
    let start = centre - i32(count / 2u);
    let end = start + i32(count) - 1;
    let first = i32(first_tap(count, kind));
    let is_apart = kind == EVEN;
    let one = select(0, 1, is_apart);
    let middle = four(axis, start + first);
    let weight = numbers[weights + u32(first)];
    var sums = select(middle * weight, vec4(0.0), is_apart);
    var before = four(axis, start);
    var after = four(axis, end);
    var left = at(axis, start + i32(MANY) - 1 + one);
    var right = at(axis, end - one);
    before = select(before, before - vec4(before.yzw, left), is_apart);
    after = others(select(after, after - vec4(right, after.xyz), is_apart), kind);
    for (var t = 0; t < first; t++) {
        sums = fma(before + after, vec4(numbers[weights + u32(t)]), sums);
        let next = at(axis, start + t + i32(MANY) + one);
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

fn truncated(value: f32) -> f32 {
    if params.truncate == 0u {
        return value;
    }
    return truncate_to(value, params.truncate - 1u);
}

fn all_truncated(values: vec4<f32>) -> vec4<f32> {
    return vec4(truncated(values.x), truncated(values.y), truncated(values.z), truncated(values.w));
}

// The length of a vector: where squares may be beyond the type, or so near to 0 that a device takes them for 0, that of numbers times a power
// of two.
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

// What element i of the output becomes; it is f32 where it counts.
fn combined(value: f32, i: u32) -> f32 {
    let sum = truncated(value);
    if params.combine == 0u {
        return sum;
    }
    let old = bitcast<f32>(out[i]);
    if params.combine == ADD {
        return old + sum;
    }
    return length_of(old, sum);
}

// Elements of a word of the output: of f64, an element has two.
fn elements_of_word() -> u32 {
    return select(select(select(1u, 2u, is_half(params.out_type)), 4u, is_byte(params.out_type)), 1u, params.out_type == 9u);
}

fn store_word(item: u32, each: u32, values: vec4<f32>, start: u32, end: u32) {
    if params.out_type == 9u {
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

// The axis y of an array, at an element of its lines.
fn axis_of(array: u32, element: u32) -> Axis {
    let line = params.nx * params.step;
    return Axis(params.x0 + array * params.count * line + element, line, i32(params.ny), edge_of(1u), numbers[1]);
}

fn make_run(item: u32) {
    let line = params.nx * params.step;
    let runs = (params.my + params.run - 1u) / params.run;
    let part = item / line;
    let array = part / runs;
    if array >= params.outer {
        return;
    }
    let element = item - part * line;
    let axis = axis_of(array, element);
    var y = (part - array * runs) * params.run;
    let end = min(params.my, y + params.run);
    while y < end {
        let place = params.out0 + (array * params.my + y) * line + element;
        let centre = i32(y + params.oy);
        if y + MANY > end {
            store_one(place, sum_at(axis, 3u, params.wy, kind_of(1u), centre));
            y += 1u;
            continue;
        }
        let sums = sums_at(axis, 3u, params.wy, kind_of(1u), centre);
        for (var k = 0u; k < MANY; k++) {
            store_one(place + k * line, sums[k]);
        }
        y += MANY;
    }
}

// An output of a word or more.
fn store_one(place: u32, sum: f32) {
    store_word(place, 1u, vec4(combined(sum, place)), 0u, 1u);
}

// Outputs narrower than a word, those of one word by one invocation.
fn make_word(nth: u32, each: u32) {
    let line = params.nx * params.step;
    let item = params.out0 / each + nth;
    let end = params.out0 + params.outer * params.my * line;
    let start = max(item * each, params.out0);
    let stop = min(item * each + each, end);
    if start >= stop {
        return;
    }
    var values = vec4(0.0);
    for (var i = start; i < stop; i++) {
        let row = (i - params.out0) / line;
        let array = row / params.my;
        let axis = axis_of(array, i - params.out0 - row * line);
        let sum = sum_at(axis, 3u, params.wy, kind_of(1u), i32(row - array * params.my + params.oy));
        values[i - item * each] = combined(sum, i);
    }
    store_word(item, each, values, start - item * each, stop - item * each);
}

// In place of where in a plane an element stands: it is beyond an edge of y, or no sum that becomes an output sees it.
const BEYOND: u32 = 0xfffffffeu;
const UNSEEN: u32 = 0xffffffffu;

// A plane of a tile: its first output, and what its sums along y see.
struct Tile {
    array: u32,
    first_y: u32,
    first_x: u32,
    size_x: u32,
    reach_y: u32,
    reach_x: u32,
    width: u32,
    seen: u32,
    // Planes.
    first: u32,
    end: u32,
}

fn tile_at(nth: u32) -> Tile {
    let size_x = TILE_X / (MANY * params.step) * (MANY * params.step);
    let across = (params.mx * params.step + size_x - 1u) / size_x;
    let down = (params.my + TILE_Y - 1u) / TILE_Y;
    let runs = (params.mz + params.run - 1u) / params.run;
    let row = nth / across;
    let part = row / down;
    let array = part / runs;
    let first = (part - array * runs) * params.run;
    let reach_y = max(params.wy, 1u) - 1u;
    let reach_x = max(params.wx, 1u) - 1u;
    let width = size_x + reach_x * params.step;
    return Tile(
        array,
        (row - part * down) * TILE_Y,
        (nth - row * across) * size_x,
        size_x,
        reach_y,
        reach_x,
        width,
        (TILE_Y + reach_y) * width,
        first,
        min(params.mz, first + params.run),
    );
}

// Where in its plane, or without sums across z in its array, an element stands that sums along y see.
fn place_of(tile: Tile, row: u32, column: u32) -> u32 {
    if row >= min(TILE_Y, params.my - tile.first_y) + tile.reach_y {
        return UNSEEN;
    }
    let element = tile.first_x + column;
    let place = element / params.step;
    let at_y = source_of(edge_of(1u), i32(tile.first_y + row + params.oy) - i32(tile.reach_y / 2u), i32(params.ny));
    let at_x = source_of(edge_of(2u), i32(place + params.ox) - i32(tile.reach_x / 2u), i32(params.nx));
    if at_x < 0 {
        return UNSEEN;
    }
    if at_y < 0 {
        return BEYOND;
    }
    let first = select(0u, params.first, params.wz == 0u);
    return ((u32(at_y) - first) * params.nx + u32(at_x)) * params.step + (element - place * params.step);
}

// What a cell is of which the element, or the sum across z, is `value`.
fn cell(place: u32, value: f32) -> f32 {
    return select(select(value, numbers[1], place == BEYOND), 0.0, place == UNSEEN);
}

// Cells without sums across z.
fn fill_plain(tile: Tile, lane: u32) {
    let base = params.x0 + tile.array * params.count * params.nx * params.step;
    let rows = WG / tile.width;
    let columns = WG - rows * tile.width;
    var row = lane / tile.width;
    var column = lane - row * tile.width;
    for (var i = lane; i < tile.seen; i += WG) {
        let place = place_of(tile, row, column);
        var value = 0.0;
        if place < BEYOND {
            value = element(base + place);
        }
        cells[i] = cell(place, value);
        row += rows;
        column += columns;
        if column >= tile.width {
            row++;
            column -= tile.width;
        }
    }
}

// An invocation's cells: where they stand, and the planes from REACH before to REACH behind that of its sums, a vector for each plane.
var<private> places: vec4<u32>;
var<private> planes: array<vec4<f32>, 2u * REACH + 1u>;

fn start_ring(tile: Tile, lane: u32) {
    for (var c = 0u; c < 4u; c++) {
        let i = lane + c * WG;
        let row = i / tile.width;
        places[c] = UNSEEN;
        if i < tile.seen {
            places[c] = place_of(tile, row, i - row * tile.width);
        }
    }
    for (var z = i32(tile.first) - i32(params.wz / 2u); z <= i32(tile.first + REACH); z++) {
        advance(tile, z);
    }
}

// Goes on by a plane: the last is then that at a coordinate of the output, if some sum up to the end sees it.
fn advance(tile: Tile, z: i32) {
    for (var d = 0u; d < 2u * REACH; d++) {
        planes[d] = planes[d + 1u];
    }
    if z >= i32(tile.end + params.wz / 2u) {
        return;
    }
    let at_z = source_of(edge_of(0u), z + i32(params.oz), i32(params.nz));
    var values = vec4(numbers[0]);
    if at_z >= 0 {
        let base = params.x0 + (tile.array * params.count + u32(at_z) - params.first) * params.ny * params.nx * params.step;
        // Cells without a place load the first element.
        let i = select(vec4(0u), places, places < vec4(BEYOND)) + base;
        values = decode_four(
            vec4(word_at(i.x), word_at(i.y), word_at(i.z), word_at(i.w)),
            vec4(high_at(i.x), high_at(i.y), high_at(i.z), high_at(i.w)),
            i,
            params.x_type,
        );
    }
    planes[2u * REACH] = values;
}

fn word_at(i: u32) -> u32 {
    return x[word_of(i, params.x_type)];
}

fn high_at(i: u32) -> u32 {
    return x[high_word_of(i, params.x_type)];
}

// Sums across z in the order of sums_at. The loops have fixed ends, so that compilers unroll them and the planes stay in registers.
fn sums_across() -> vec4<f32> {
    let radius = params.wz / 2u;
    let kind = kind_of(0u);
    var sums = vec4(0.0);
    if kind == ANY {
        for (var d = 1u; d <= REACH; d++) {
            if d == radius {
                sums = planes[REACH + d] * numbers[3u + 2u * radius];
            }
        }
        for (var d = 0u; d < 2u * REACH; d++) {
            if d + radius >= REACH && d < REACH + radius {
                sums = fma(planes[d], vec4(numbers[3u + d + radius - REACH]), sums);
            }
        }
    } else if kind == EVEN {
        for (var d = REACH; d > 0u; d--) {
            if d <= radius {
                let before = planes[REACH - d] - planes[REACH - d + 1u];
                let after = planes[REACH + d] - planes[REACH + d - 1u];
                sums = fma(before + after, vec4(numbers[3u + radius - d]), sums);
            }
        }
        sums = fma(planes[REACH], vec4(numbers[3u + radius]), sums);
    } else {
        sums = planes[REACH] * numbers[3u + radius];
        for (var d = REACH; d > 0u; d--) {
            if d <= radius {
                sums = fma(planes[REACH - d] + others(planes[REACH + d], kind), vec4(numbers[3u + radius - d]), sums);
            }
        }
    }
    if all(are_finite(sums) | are_nan(planes[REACH])) {
        return sums;
    }
    var again: Again;
    for (var t = 0u; t < params.wz; t++) {
        again = add_again(again, planes[REACH + t - radius], 3u, params.wz, kind, t);
    }
    return end_again(again, 3u, params.wz, kind, sums);
}

fn fill_across(tile: Tile, lane: u32) {
    let values = all_truncated(sums_across());
    for (var c = 0u; c < 4u; c++) {
        let i = lane + c * WG;
        if i < tile.seen {
            cells[i] = cell(places[c], values[c]);
        }
    }
}

fn axis_of_cells(base: u32, stride: u32) -> Axis {
    return Axis(base, stride, 0, 0u, 0.0);
}

// Sums along y, by columns.
fn sum_columns(tile: Tile, lane: u32) {
    for (var q = lane; q < TILE_Y / MANY * tile.width; q += WG) {
        let group = q / tile.width;
        let column = q - group * tile.width;
        let taps = group * MANY * tile.width + column;
        let axis = axis_of_cells(taps, tile.width);
        var sums = four(axis, 0);
        if params.wy > 0u {
            sums = all_truncated(sums_at(axis, 3u + params.wz, params.wy, kind_of(1u), i32(params.wy / 2u)));
        }
        let place = i32((tile.first_x + column) / params.step + params.ox) - i32(tile.reach_x / 2u);
        if params.wx > 0u && source_of(edge_of(2u), place, i32(params.nx)) < 0 {
            sums = vec4(numbers[2]);
        }
        for (var k = 0u; k < MANY; k++) {
            cells[tile.seen + column * COLUMN + group * MANY + k] = sums[k];
        }
    }
}

// Sums along x, by rows. Of 32 invocations, halves are half a tile apart, so that they do not meet the same banks.
fn sum_rows(tile: Tile, lane: u32) {
    let groups = tile.size_x / MANY;
    let rows = tile.seen + tile.width * COLUMN;
    let stride = params.step * COLUMN;
    for (var q = lane; q < TILE_Y * groups; q += WG) {
        let row = q % TILE_Y;
        let nth = q / TILE_Y;
        let group = nth % 2u * ((groups + 1u) / 2u) + nth / 2u;
        let part = group / params.step;
        let element = part * MANY * params.step + (group - part * params.step);
        let taps = tile.seen + element * COLUMN + row;
        let axis = axis_of_cells(taps, stride);
        var sums = four(axis, 0);
        if params.wx > 0u {
            sums = sums_at(axis, 3u + params.wz + params.wy, params.wx, kind_of(2u), i32(params.wx / 2u));
        }
        for (var k = 0u; k < MANY; k++) {
            cells[rows + row * ROW + element + k * params.step] = sums[k];
        }
    }
}

fn store_plane(tile: Tile, z: u32, lane: u32) {
    let line = params.mx * params.step;
    let rows = tile.seen + tile.width * COLUMN;
    let each = elements_of_word();
    for (var i = lane * each; i < TILE_Y * TILE_X; i += WG * each) {
        let row = i / TILE_X;
        let column = i % TILE_X;
        if column < tile.size_x && tile.first_y + row < params.my && tile.first_x + column < line {
            let place = params.out0 + ((tile.array * params.mz + z) * params.my + tile.first_y + row) * line + tile.first_x + column;
            var values = vec4(0.0);
            for (var j = 0u; j < each; j++) {
                values[j] = combined(cells[rows + row * ROW + column + j], place + j);
            }
            store_word(place / each, each, values, 0u, each);
        }
    }
}

@compute @workgroup_size(WG)
fn correlate(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let nth = linear_group(group, groups);
    let each = elements_of_word();
    if TILED == 1u {
        let tile = tile_at(nth);
        let exists = tile.array < params.outer;
        if exists && params.wz > 0u {
            start_ring(tile, lane);
        }
        // All invocations meet at as many barriers.
        for (var n = 0u; n < params.run; n++) {
            let z = tile.first + n;
            let is_made = exists && z < tile.end;
            if is_made && params.wz > 0u {
                fill_across(tile, lane);
            } else if is_made {
                fill_plain(tile, lane);
            }
            workgroupBarrier();
            if is_made {
                if params.wz > 0u {
                    advance(tile, i32(z + 1u + REACH));
                }
                sum_columns(tile, lane);
            }
            workgroupBarrier();
            if is_made {
                sum_rows(tile, lane);
            }
            workgroupBarrier();
            if is_made {
                store_plane(tile, z, lane);
            }
        }
    } else if each > 1u {
        make_word(nth * WG + lane, each);
    } else {
        make_run(nth * WG + lane);
    }
}
