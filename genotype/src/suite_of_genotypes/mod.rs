//! Tests of genotypes on every device against the same f64 oracles. In bundles for other machines, the test program has this module's name.

mod grm;
mod project;
