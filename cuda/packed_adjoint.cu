// Adds codes times digits, and missing times the second set of digits, over rows: sums[sample, column] += 64-bit integers.
// Grid: linear, one workgroup per TILE words and depth rows; those of the same words add to the same sums.
// Bindings: 0 packed (rows, words) read; 1 weights (rows / 4, sets lanes) read; 2 sums (samples, columns, 2) u32 read and written; 3 params.
// Constants: TILE; MISSING whether code 3 occurs: two sets of digits.
