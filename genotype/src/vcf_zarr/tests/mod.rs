//! Genotypes in Zarr stores, by concern.

mod attributes;
mod columns;
mod fixtures;
mod scratch;
mod store;
mod threads;
mod write;

use std::{fs, path::Path};

use serde_json::{Value, json};
use teatime::{
    ChunkedArray, Error, MissingChunk, StoredType,
    store::{ArraySpec, Storable, ZarrFormat},
};

use self::scratch::{Scratch, v2};
use super::*;
use crate::{GenotypeKind, Variant, tests::assert_refused as refused};

/// The names of the samples, which are there.
fn ids(store: &GenotypeStore) -> Vec<String> {
    store.sample_ids().unwrap().unwrap()
}
