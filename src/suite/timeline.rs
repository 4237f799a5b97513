//! Tests of timelines of a pass: from a Zarr array through a filter to another.

use std::collections::HashMap;

use super::filter_stored::{CHUNK, SHAPE, TILE, blur, within};
use super::*;
use crate::{
    MissingChunk, Timeline,
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
    let image: Array = Arc::new(ZarrArray::open(folder.path(), "image", MissingChunk::Error).unwrap());
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
    // GL and devices that applications open without a wish tell no times.
    let tells_times = match device.info().backend {
        Backend::Cpu => false,
        Backend::Wgpu => device.info().name != "wgpu:lent" && device.info().api != "gl",
        _ => true,
    };
    assert_eq!(device.driver().tells_times(), tells_times, "{device:?}");
    let launch = match device.shares_host_memory() {
        true => "kernel",
        false if tells_times => "enqueue",
        false => "enqueue untimed",
    };
    if tells_times {
        kernels_ran(device, events);
    }
    assert!(tells_times || !events.iter().any(|event| event["cat"] == "enqueue"));
    let on_host =
        ["fetch", "decode", "wait for chunks", "convert", "host algebra", "wait for writers", "write"];
    let with_device = ["wait for staging", "upload", launch, "wait for device", "download", "flush"];
    for stage in on_host.into_iter().chain(with_device) {
        assert!(events.iter().any(|event| event["cat"] == stage), "{stage}");
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
    // Spans of a lane come in the order of their starts, and end within those that they began in.
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
        let is_freed = values.iter().any(|bytes| *bytes > 0) && (is_shared || values.last() == Some(&0));
        assert!(is_freed, "{held}: {values:?}");
    }
}

/// Checks that each launch to a device that tells times has a span on the device's lane: under its name, one after another, and between the
/// launch and the last wait.
fn kernels_ran(device: &Device, events: &[serde_json::Value]) {
    let time = |event: &serde_json::Value, which: &str| event[which].as_f64().unwrap();
    let end = |event: &serde_json::Value| time(event, "ts") + time(event, "dur");
    let of = |kind: &str| events.iter().filter(|event| event["cat"] == *kind).collect::<Vec<_>>();
    let launches = of("enqueue");
    let names = |spans: &[&serde_json::Value]| {
        let mut names: Vec<_> = spans.iter().map(|span| span["args"]["of"].to_string()).collect();
        names.sort();
        names
    };
    let queues = ["queue", "kernels"].map(|queue| format!("{} {queue}", device.info().name));
    let lane = events.iter().find(|event| queues.iter().any(|queue| event["args"]["name"] == *queue));
    let lane = &lane.unwrap()["tid"];
    let kernels: Vec<_> = of("kernel").into_iter().filter(|kernel| kernel["tid"] == *lane).collect();
    assert_eq!(names(&kernels), names(&launches));
    assert!(kernels.is_sorted_by(|a, b| end(a) <= time(b, "ts") + 0.002), "{kernels:#?}");
    let last = of("wait for device").into_iter().map(end).fold(0.0, f64::max);
    let [mut begins, mut launched] =
        [&kernels, &launches].map(|spans| spans.iter().map(|span| time(span, "ts")).collect::<Vec<_>>());
    assert!(kernels.iter().all(|kernel| end(kernel) <= last + 0.002));
    assert!(kernels.iter().any(|kernel| time(kernel, "dur") > 0.0));
    begins.sort_by(f64::total_cmp);
    launched.sort_by(f64::total_cmp);
    assert!(begins.iter().zip(&launched).all(|(began, launched)| began >= launched));
}
