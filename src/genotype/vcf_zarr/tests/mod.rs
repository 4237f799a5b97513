//! Genotypes in Zarr stores, by concern.

mod attributes;
mod columns;
mod fixtures;
mod scratch;
mod store;
mod threads;
mod write;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use self::scratch::{Scratch, v2};
use super::*;
use crate::{
    ChunkedArray, Error, MissingChunk, StoredType,
    genotype::{GenotypeKind, Variant},
    store::{ArraySpec, Storable, ZarrFormat},
};
