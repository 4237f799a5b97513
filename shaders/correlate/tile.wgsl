// Sums along z, y and x of one tile after another, by way of a workgroup's memory; then the kernel.

// These stand for the place of an element in a plane: it is beyond an edge of y, or no sum that becomes an output sees it.
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

// The place in its plane, or without sums across z in its array, of an element that sums along y see.
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

// The value of a cell of which the element, or the sum across z, is `value`.
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

// An invocation's cells: where they stand, and the planes from REACH before to REACH behind that of its sums, a vector for each
// plane.
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
            let line_of_out = (tile.array * params.mz + z) * params.my + tile.first_y + row;
            let place = params.out0 + line_of_out * line + tile.first_x + column;
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
