// Stored genotypes to codes of two bits, 0 to 2 and 3 for missing, with each row's counts of 1, 2, missing and bad.
// Grid: linear, one workgroup per row.
// Bindings: 0 raw (rows, row_bytes) bytes read; 1 packed (rows, words) write; 2 counts (rows, 4) write; 3 params.
// Constants: WG; CODING 0 one allele, 1 two alleles, 2 dosages, 3 PLINK counting A1, 4 PLINK counting A2.
