// Sums along y alone.

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
