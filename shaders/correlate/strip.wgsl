// Sums along y, along x, or along y and then x, through workgroup memory. The kernel is last.

// A strip of an array: `width` elements of the rows `first` to `end` of the output. An invocation has one column, and every few rows of it.
struct Strip {
    array: u32,
    first_x: u32,
    width: u32,
    first: u32,
    end: u32,
    // The number of elements of a row of the output, and of a row of the available input; and the index of the first available element.
    out_line: u32,
    line: u32,
    base: u32,
    // The number of rows that the sums along y of `rows` rows need.
    ring: u32,
    // An invocation computes MANY neighbours along y in this column, from this row on, and MANY more every `next_row` rows.
    column: u32,
    row: u32,
    next_row: u32,
    // An invocation computes MANY neighbours along x in this row, from this element on.
    row_across: u32,
    element: u32,
}

fn strip_at(nth: u32, lane: u32) -> Strip {
    let is_along = ALONG == 1u;
    let out_line = params.mx * params.step;
    let width = params.columns - select(0u, (params.wx - 1u) * params.step, ACROSS == 1u);
    let strips = (out_line + width - 1u) / width;
    let runs = (params.my + params.run - 1u) / params.run;
    let part = nth / strips;
    let array = part / runs;
    let first = (part - array * runs) * params.run;
    let line = select(params.count, params.nx, is_along) * params.step;
    let group = lane / params.columns;
    let groups = max(WG / params.columns, 1u);
    let along = lane / params.rows;
    return Strip(
        array,
        (nth - part * strips) * width,
        width,
        first,
        min(params.my, first + params.run),
        out_line,
        line,
        params.x0 + array * select(params.ny, params.count, is_along) * line,
        select(0u, params.wy - 1u, is_along) + params.rows,
        lane - group * params.columns,
        // Invocations beyond the last whole group have no rows.
        select(params.rows, MANY * group, group < groups),
        MANY * groups,
        lane - along * params.rows,
        along / params.step * (MANY - 1u) * params.step + along,
    );
}

// Markers in place of an element's place in its row: BEYOND an edge of x, or UNSEEN by any output.
const BEYOND: u32 = 0xfffffffeu;
const UNSEEN: u32 = 0xffffffffu;

fn place_in_row(strip: Strip, column: u32) -> u32 {
    let reach = select(0u, params.wx - 1u, ACROSS == 1u);
    if column >= min(strip.width, strip.out_line - strip.first_x) + reach * params.step {
        return UNSEEN;
    }
    let place = (strip.first_x + column) / params.step;
    let at_x = source_of(edge_of(2u), i32(place + params.ox) - i32(reach / 2u), i32(params.nx));
    if at_x < 0 {
        return BEYOND;
    }
    let first = select(params.first, 0u, ALONG == 1u);
    return (u32(at_x) - first) * params.step + (strip.first_x + column - place * params.step);
}

// Returns the element at a place of a row. Rows are counted from the first row that the strip needs.
fn seen(strip: Strip, place: u32, row: i32) -> f32 {
    if place >= BEYOND {
        return select(0.0, numbers[2], place == BEYOND);
    }
    let at_y = source_of(edge_of(1u), i32(strip.first + params.oy) - i32(params.wy / 2u) + row, i32(params.ny));
    if at_y < 0 {
        return numbers[1];
    }
    return element(strip.base + place + (u32(at_y) - select(0u, params.first, ALONG == 1u)) * strip.line);
}

// Loads `count` rows into consecutive slots, from row `row` of those that the strip needs on. Skips rows before row 0, and fills up with
// rows of zeros to a multiple of MANY. `own` is the place of this invocation's column.
fn load_rows(strip: Strip, own: u32, row: i32, count: u32, slot: u32) {
    for (var column = strip.column; column < params.columns; column += WG) {
        var place = own;
        if params.columns > WG {
            place = place_in_row(strip, column);
        }
        for (var first = strip.row; first < count; first += strip.next_row) {
            for (var k = first; k < select(min(first + MANY, count), first + MANY, ALONG == 1u); k++) {
                if row + i32(k) < 0 {
                    continue;
                }
                let value = seen(strip, select(UNSEEN, place, k < count), row + i32(k));
                if ALONG == 1u {
                    cells[around(around(slot + first, strip.ring) + k - first, strip.ring) * params.columns + column] = value;
                } else {
                    cells[column * params.apart + k] = value;
                }
            }
        }
    }
}

// Stores the outputs of a word. The first is an element of row `y`, and is at `cell`; each further one is one column on.
fn store_cells(strip: Strip, y: u32, column: u32, each: u32, cell: u32) {
    let i = params.out0 + (strip.array * params.my + y) * strip.out_line + strip.first_x + column;
    var values = vec4(0.0);
    for (var j = 0u; j < each; j++) {
        values[j] = combined(cells[cell + j * params.apart], i + j);
    }
    store_word(i / each, each, values, 0u, each);
}

fn store_one(strip: Strip, y: u32, column: u32, sum: f32) {
    let i = params.out0 + (strip.array * params.my + y) * strip.out_line + strip.first_x + column;
    store_word(i, 1u, vec4(combined(sum, i)), 0u, 1u);
}

@compute @workgroup_size(WG)
fn correlate(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let nth = linear_group(group, groups);
    if ALONG + ACROSS == 0u {
        make_directly(nth * WG + lane);
        return;
    }
    let strip = strip_at(nth, lane);
    let each = elements_of_word();
    let reach = strip.ring - params.rows;
    let before = (reach + params.rows - 1u) / params.rows * params.rows;
    let width = min(strip.width, strip.out_line - strip.first_x);
    let is_by_columns = ACROSS == 1u || each > 1u;
    // If sums along y are computed, cells are stored row by row. Sums along y, and cells without such sums, are stored column by column if
    // sums along x follow or if outputs share words.
    let columns = select(0u, strip.ring * params.columns, ALONG == 1u);
    let place = place_in_row(strip, strip.column);
    let rows = select(0u, before + strip.end - strip.first, strip.array < params.outer);
    // The slot of the next rows in the ring.
    var slot = 0u;
    // The blocks of rows before the first are only loaded, since the first block's sums need some of their rows.
    for (var seen_rows = 0u; seen_rows < rows; seen_rows += params.rows) {
        let y = strip.first + seen_rows - before;
        let is_made = seen_rows >= before;
        let count = select(params.rows, min(params.rows, strip.end - y), is_made);
        load_rows(strip, place, i32(reach) - i32(before) + i32(seen_rows), count, slot);
        slot = around(slot + params.rows, strip.ring);
        workgroupBarrier();
        if ALONG == 1u && is_made && strip.row < count {
            let axis = Axis(strip.column, params.columns, i32(strip.ring), 0u, 0.0);
            for (var k = 0u; k < min(MANY, count - strip.row); k += 4u) {
                var sums = vec4(select(0.0, numbers[2], place == BEYOND));
                if place < BEYOND {
                    let start = around(around(slot + strip.row, strip.ring) + k, strip.ring);
                    sums = all_truncated(sums_at(axis, 3u, params.wy, kind_of(1u), i32(start)));
                }
                for (var j = 0u; j < 4u; j++) {
                    if is_by_columns {
                        cells[columns + strip.column * params.apart + strip.row + k + j] = sums[j];
                    } else if place < BEYOND && strip.row + k + j < count {
                        store_one(strip, y + strip.row + k + j, strip.column, sums[j]);
                    }
                }
            }
        }
        if ALONG == 1u {
            workgroupBarrier();
        }
        if ACROSS == 1u {
            let is_busy = is_made && strip.element < strip.width && strip.row_across < count;
            let own = columns + strip.element * params.apart + strip.row_across;
            let next = params.step * params.apart;
            let axis = Axis(own, next, 0x7fffffff, 0u, 0.0);
            var low = vec4(0.0);
            var high = vec4(0.0);
            if is_busy {
                low = sums_at(axis, 3u + params.wy, params.wx, kind_of(2u), 0);
                high = sums_at(axis, 3u + params.wy, params.wx, kind_of(2u), 4);
            }
            workgroupBarrier();
            if is_busy {
                for (var k = 0u; k < 4u; k++) {
                    cells[own + k * next] = low[k];
                    cells[own + (k + 4u) * next] = high[k];
                }
            }
            workgroupBarrier();
        }
        if is_by_columns && is_made {
            for (var column = strip.column * each; column < width; column += WG * each) {
                for (var first = strip.row; first < count; first += strip.next_row) {
                    for (var row = first; row < min(first + MANY, count); row++) {
                        store_cells(strip, y + row, column, each, columns + column * params.apart + row);
                    }
                }
            }
        }
        // The next rows overwrite cells that were read before this barrier, or before the sums along x.
        if ALONG + ACROSS == 1u {
            workgroupBarrier();
        }
    }
}
