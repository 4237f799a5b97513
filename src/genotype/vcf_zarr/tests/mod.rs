//! Genotypes in Zarr stores, by concern.

mod attributes;
mod columns;
mod fixtures;
mod store;
mod threads;
mod write;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::*;
use crate::{
    ChunkedArray, Error, MissingChunk,
    genotype::{GenotypeKind, Variant},
    store::zarr::tests::{Numbers, Scratch, blosc, blosc_meta, index_codecs, shard, text, v2, v3},
};
