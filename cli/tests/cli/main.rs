//! Tests of the command line as users meet it: arguments in; files, text and an exit code out.

#![allow(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod blur;
#[cfg(unix)]
mod blur_stopped;
#[cfg(target_os = "linux")]
mod budget;
mod contigs;
#[cfg(feature = "cuda-emulator")]
mod cuda;
mod demo;
mod denoise;
mod devices;
mod distance;
#[cfg(unix)]
mod distance_bands;
mod distance_with;
mod grm;
mod lists;
#[cfg(target_os = "linux")]
mod mutants;
#[cfg(unix)]
mod output;
mod pairwise;
mod pca;
#[cfg(unix)]
mod pca_stopped;
mod plink;
mod project;
mod refused;
#[cfg(feature = "remote")]
mod remote;
mod support;
mod svd;
#[cfg(unix)]
mod svd_stopped;
mod timeline;
mod zip;
