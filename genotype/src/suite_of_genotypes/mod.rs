//! Results of genotypes on every device: the same tests against the same f64 oracles. In bundles for other machines, the program
//! of these tests has this module's name.

mod grm;
mod project;
mod residency;
