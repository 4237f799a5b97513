//! Placeholder until the branch merges.
#![allow(missing_docs, reason = "replaced by the merge")]
use crate::{
    Error, Result, Run,
    linalg::{LinearMap, Matrix},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignRule {
    #[default]
    Stable,
    None,
}
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    PowerIterations(u32),
    Tolerance(f64),
}
#[derive(Clone, Debug)]
pub struct RandomizedSvd {
    pub oversamples: usize,
    pub stop: Stop,
    pub max_passes: u32,
    pub seed: u64,
    pub sign: SignRule,
}
impl Default for RandomizedSvd {
    fn default() -> Self {
        Self { oversamples: 10, stop: Stop::Tolerance(1e-4), max_passes: 32, seed: 0, sign: SignRule::Stable }
    }
}
#[derive(Clone, Debug)]
pub struct TruncatedSvd {
    pub s: Vec<f64>,
    pub v: Matrix,
    pub residuals: Vec<f64>,
    pub converged: Vec<bool>,
    pub passes: u32,
}
pub fn randomized_svd(_: &dyn LinearMap, _: usize, _: &RandomizedSvd, _: &Run) -> Result<TruncatedSvd> {
    Err(Error::Cancelled)
}
pub(crate) fn apply_sign_rule(_: &mut Matrix, _: SignRule) {}
