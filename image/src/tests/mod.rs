//! Tests of images: those of other programs, damaged ones, and our own.

mod pyramids;
mod reading;
mod writing;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use bytemuck::Pod;
use teatime::{
    ChunkedArray, Device, MissingChunk, Result, Run, StoredType,
    openings::{Map, assert_refused as refused, elements},
    store::{ArraySpec, ArrayWriter, Storable, Storage},
};

use crate::{Axis, ImageSpec, Multiscale, MultiscaleWriter, Pyramid};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn values_of(fixture_name: &str) -> Arc<Map> {
    Arc::new(Map::of(&fixture(fixture_name)))
}

fn json_of(values: &Map, key: &str) -> serde_json::Value {
    serde_json::from_slice(&values.all()[key]).unwrap()
}

fn storage(values: &Arc<Map>) -> Arc<dyn Storage> {
    values.clone()
}

/// Returns the index along each axis of an element, from its index in C order.
fn place(mut number: u64, shape: &[u64]) -> Vec<u64> {
    let mut place = vec![0; shape.len()];
    for (at, n) in place.iter_mut().zip(shape).rev() {
        *at = number % n;
        number /= n;
    }
    place
}

fn number_of(place: &[u64], shape: &[u64]) -> usize {
    place.iter().zip(shape).fold(0, |number, (at, n)| number * n + at) as usize
}

fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(Device::cpu)
}

fn axes(names: &str) -> Vec<Axis> {
    let axis = |name: char| match name {
        't' => Axis::time("t", "second"),
        'c' => Axis::channel("c"),
        _ => Axis::space(&name.to_string(), "micrometer"),
    };
    names.chars().map(axis).collect()
}

/// Returns the spec of an image with these axes, pixels of size 1, and levels down to one pixel.
fn spec(names: &str, dtype: StoredType, shape: &[u64], chunk: &[u64]) -> ImageSpec {
    let mut spec = ImageSpec::new(axes(names), &vec![1.0; shape.len()], ArraySpec::new(dtype, shape, chunk));
    spec.pyramid = Pyramid::Levels(99);
    spec
}

/// Writes the missing tiles of level 0, with `pixel` of each index.
fn fill<T: Storable>(base: &ArrayWriter, pixel: impl Fn(&[u64]) -> T) -> Result<()> {
    let spec = base.spec();
    let tile = spec.shard_shape.as_ref().unwrap_or(&spec.chunk_shape).clone();
    for index in base.left().collect::<Vec<_>>() {
        let extent = base.extent(&index);
        let at = |number: u64| -> Vec<u64> {
            place(number, &extent).iter().zip(&index).zip(&tile).map(|((at, i), n)| at + i * n).collect()
        };
        let pixels: Vec<T> = (0..extent.iter().product()).map(|number| pixel(&at(number))).collect();
        base.write(&index, &pixels)?;
    }
    Ok(())
}

/// Writes an image into memory.
fn written<T: Storable>(spec: ImageSpec, pixel: impl Fn(&[u64]) -> T) -> Arc<Map> {
    let values = Arc::new(Map::default());
    let image = MultiscaleWriter::create_in(values.clone(), "", spec).unwrap();
    fill(&image.base().unwrap(), pixel).unwrap();
    image.finish(device(), &Run::default()).unwrap();
    values
}

fn open(values: &Arc<Map>) -> Multiscale {
    Multiscale::open_in(&storage(values), "").unwrap()
}

/// Returns the shapes and pixels of all levels.
fn levels<T: Pod>(image: &Multiscale) -> Vec<(Vec<u64>, Vec<T>)> {
    let level = |n| {
        let array = image.level(n, MissingChunk::Error).unwrap();
        (array.shape().to_vec(), elements(Arc::new(array)))
    };
    (0..image.levels().len()).map(level).collect()
}

/// Returns a reproducible random number for an index.
fn noise(at: &[u64]) -> u64 {
    let mix = |state: u64, n: &u64| (state ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    at.iter().fold(0x1234_5678, mix).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
