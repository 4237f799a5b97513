//! Tests of genotypes in Zarr stores, one module for each topic.

mod attributes;
mod columns;
mod fixtures;
mod scratch;
mod store;
mod threads;
mod write;

use std::fs;

use serde_json::{Value, json};
use teatime::{
    Error, MissingChunk, StoredType, assert_err,
    store::{ArraySpec, Storable, ZarrFormat},
};

use self::scratch::v2;
use super::*;
use crate::{
    GenotypeKind, Variant, VariantSource,
    tests::{Scratch, assert_refused as refused, entries},
};

/// Returns the sample names, which must exist.
fn ids(store: &GenotypeStore) -> Vec<String> {
    store.sample_ids().unwrap().unwrap()
}
