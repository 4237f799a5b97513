// Sums along y from memory: if workgroup memory cannot hold the elements for sums, or if rows of the output end within a word.

// Computes the output of an invocation, or the outputs of a word.
fn make_directly(nth: u32) {
    let line = params.nx * params.step;
    let each = elements_of_word();
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
        let base = params.x0 + array * params.count * line + i - params.out0 - row * line;
        let axis = Axis(base, line, i32(params.ny), edge_of(1u), numbers[1]);
        let start = i32(row - array * params.my + params.oy) - i32(params.wy / 2u);
        let sum = sum_at(axis, 3u, params.wy, kind_of(1u), start);
        values[i - item * each] = combined(sum, i);
    }
    store_word(item, each, values, start - item * each, stop - item * each);
}
