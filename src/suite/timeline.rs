//! Tests of timelines of a pass: from a Zarr array through a filter to another.

use std::{collections::HashMap, sync::Arc};

use super::{
    device_tests,
    filter_stored::{CHUNK, SHAPE, TILE, blur, within},
};
use crate::{
    ChunkedArray, Device, MissingChunk, StoredType, Tensor, Timeline,
    filter::GaussianOptions,
    linalg::svd,
    store::{ArraySpec, ArrayWriter, Folder, ZarrArray},
};

device_tests! { a_pass }

fn a_pass(device: &Device) {
    let (folder, timeline) = (tempfile::tempdir().unwrap(), Timeline::default());
    let spec = ArraySpec::new(StoredType::U8, &SHAPE, &CHUNK);
    let writer = ArrayWriter::create(Arc::new(Folder::new(folder.path())), "image", spec).unwrap();
    for tile in writer.tiles() {
        let elements = writer.extent(&tile).iter().product::<u64>();
        writer.write(&tile, &(0..elements).map(|i| (i % 251) as u8).collect::<Vec<_>>()).unwrap();
    }
    writer.finish().unwrap();
    let image: Arc<dyn ChunkedArray> =
        Arc::new(ZarrArray::open(folder.path(), "image", MissingChunk::Error).unwrap());
    let recorded = device.recorded_by(&timeline);
    let (sigma, options) = (1.0.into(), GaussianOptions::default());
    let out = (folder.path(), StoredType::U8, &TILE[..]);
    blur(&image, &sigma, &options, &recorded, out, &within(1 << 28)).unwrap();
    // Host algebra, and a synchronised copy of the result.
    svd(&Tensor::from_slice(&recorded, &[3.0f32, 0.0, 0.0, 2.0], &[2, 2]).unwrap())
        .unwrap()
        .u
        .read()
        .unwrap();
    recorded.synchronize().unwrap();
    // Other handles do not record.
    let before = timeline.events();
    Tensor::<f32>::zeros(device, &[3]).unwrap().read().unwrap();
    assert_eq!((timeline.events(), before.1), (before, 0));

    let path = folder.path().join("t.json");
    timeline.write_trace(&path).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let launch = if device.shares_host_memory() { "kernel" } else { "enqueue" };
    for stage in [
        "fetch",
        "decode",
        "wait for chunks",
        "convert",
        "wait for staging",
        "upload",
        launch,
        "wait for device",
        "download",
        "host algebra",
        "wait for writers",
        "write",
        "flush",
    ] {
        let mut of = events.iter().filter(|event| event["cat"] == stage);
        assert!(of.next().is_some(), "{stage}");
    }
    // Each chunk is fetched and decoded once, and named by its array and index.
    for stage in ["fetch", "decode"] {
        let of = events.iter().filter(|event| event["cat"] == stage).map(|event| &event["args"]);
        let mut chunks: Vec<_> = of.map(|args| (args["of"].to_string(), args["chunk"].to_string())).collect();
        chunks.sort();
        let index = |i: u64| format!("[{},{},{}]", i / 12, i / 3 % 4, i % 3);
        let name = format!("{:?}", image.name());
        assert_eq!(chunks, (0..36).map(|i| (name.clone(), index(i))).collect::<Vec<_>>(), "{stage}");
    }
    let decoded: u64 = events
        .iter()
        .filter(|event| event["cat"] == "decode")
        .filter_map(|e| e["args"]["bytes"].as_u64())
        .sum();
    assert_eq!(decoded, 36 * CHUNK.iter().product::<u64>());
    // Spans of a thread come in the order of their starts, and end within those that they began in.
    let mut open: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let [start, took] = ["ts", "dur"].map(|time| event[time].as_f64().unwrap());
        let spans = open.entry(event["tid"].as_u64().unwrap()).or_default();
        assert!(spans.last().is_none_or(|(before, _)| *before <= start), "{event}");
        // Sums of times are right to a nanosecond.
        while spans.pop_if(|(_, end)| *end <= start + 0.001).is_some() {}
        assert!(spans.last().is_none_or(|(_, end)| start + took <= end + 0.001), "{event}");
        spans.push((start, start + took));
    }
    // All chunks are free again. Other tests may have tensors on the device.
    for (held, is_shared) in
        [(format!("tensors on {}", device.info().name), true), ("decoded chunks".into(), false)]
    {
        let values = events.iter().filter(|event| event["ph"] == "C" && event["name"] == *held);
        let values: Vec<_> = values.filter_map(|event| event["args"]["value"].as_u64()).collect();
        assert!(
            values.iter().any(|bytes| *bytes > 0) && (is_shared || values.last() == Some(&0)),
            "{held}: {values:?}"
        );
    }
}
