// Packed rows times digits: y = s (sum g x - mean sum x) over what is not missing, or the digits of s y and of mean s y.
// Grid: linear, one workgroup per TILE rows.
// Bindings: 0 packed (rows, words) read; 1 xs (4 words, lanes) read; 2 table (rows, 2) of mean, s, f32 read; 3 columns (columns, 2) of total, factor, f32 read; 4 out write; 5 params.
// Constants: TILE; MISSING whether code 3 occurs; DIGITS whether out is (rows / 4, sets lanes) digits, else (rows, columns) f32.
