//! Tests of timelines with events at given times.

use std::{
    fs,
    thread::Builder,
    time::{Duration, Instant},
};

use super::{About, NO_ITEM, Span, Stage, Timeline};
use crate::Error;

/// Adds spans of the given milliseconds on a thread of this name, in the order of their ends, as threads do.
fn on(timeline: &Timeline, thread: &str, spans: &[(Stage, &str, [u64; 2])]) {
    std::thread::scope(|scope| {
        let add = || {
            for (stage, name, [from, to]) in spans {
                let began = timeline.0.began + Duration::from_millis(*from);
                timeline.add(*stage, name, began, Duration::from_millis(to - from), (1000, NO_ITEM));
            }
        };
        Builder::new().name(thread.into()).spawn_scoped(scope, add).unwrap().join().unwrap();
    });
}

/// Adds a kernel between the given milliseconds on the lane of a device's queue.
fn on_device(timeline: &Timeline, queue: &str, name: &'static str, times: [u64; 2]) {
    let [began, ended] = times.map(|time| timeline.0.began + Duration::from_millis(time));
    timeline.add_to(Some(queue), Stage::Kernel, name, (began, ended - began), (1000, NO_ITEM));
}

fn text(write: impl FnOnce(&std::path::Path) -> crate::Result<()>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "an earlier one").unwrap();
    write(&path).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
    fs::read_to_string(path).unwrap()
}

#[test]
fn time_within_counts_once() {
    let timeline = Timeline::default();
    let spans = [
        (Stage::Decode, "a", [20, 30]),
        (Stage::Decode, "a", [30, 35]),
        (Stage::Convert, "", [10, 40]),
        (Stage::Kernel, "k", [50, 60]),
    ];
    on(&timeline, "one", &spans);
    on(&timeline, "two", &[(Stage::Decode, "a", [25, 45])]);
    let summary = timeline.summary();
    let millis = |stage: Stage| {
        let total = summary.total(|label| label.stage == stage);
        [total.busy, total.covered].map(|time| time / 1_000_000)
    };
    assert_eq!(millis(Stage::Convert), [15, 15]);
    assert_eq!(millis(Stage::Decode), [35, 25]);
    assert_eq!(millis(Stage::Kernel), [10, 10]);
    let one = summary.lanes.iter().find(|lane| lane.name == "one").unwrap();
    let pieces = one.pieces.iter().map(|(piece, label)| {
        ([piece.start, piece.end].map(|time| time / 1_000_000), summary.label(*label).stage)
    });
    assert_eq!(
        pieces.collect::<Vec<_>>(),
        [
            ([10, 20], Stage::Convert),
            ([20, 30], Stage::Decode),
            ([30, 35], Stage::Decode),
            ([35, 40], Stage::Convert),
            ([50, 60], Stage::Kernel),
        ]
    );
}

#[test]
fn threads_of_one_name_share_a_lane_unless_they_overlap() {
    let timeline = Timeline::default();
    for times in [[0, 10], [10, 20], [15, 30], [40, 50]] {
        on(&timeline, "teatime-fetch", &[(Stage::Fetch, "a", times)]);
    }
    on(&timeline, "pool-1", &[(Stage::Decode, "a", [0, 5])]);
    on(&timeline, "pool-0", &[(Stage::Decode, "a", [1, 5])]);
    let lanes = timeline.summary().lanes;
    let lanes: Vec<_> = lanes.iter().map(|lane| (&*lane.name, lane.events.len())).collect();
    assert_eq!(lanes, [("teatime-fetch", 3), ("teatime-fetch", 1), ("pool-0", 1), ("pool-1", 1)]);
}

#[test]
fn the_sentence_names_the_longest_stage() {
    use Stage::{Chunks, Decode, Download, Enqueue, Fetch, Flush, Host, Kernel, Phase, Wait, Write, Writers};
    let bound = |lanes: &[&[(Stage, &str, [u64; 2])]]| {
        let timeline = Timeline::default();
        lanes.iter().for_each(|spans| on(&timeline, "thread", spans));
        timeline.bound()
    };
    let run: &[_] = &[(Phase, "run", [0, 100])];
    let waits: &[_] = &[(Chunks, "", [0, 60]), (Kernel, "k", [60, 100])];
    let decodes: &[_] = &[(Fetch, "a", [0, 10]), (Decode, "a", [10, 90])];
    let more: &[_] = &[(Decode, "a", [0, 62])];
    assert_eq!(bound(&[run, waits, decodes, more]), "bound by decode: 71 % of 2 threads");
    assert_eq!(bound(&[run, waits, &[(Fetch, "a", [0, 60])]]), "bound by fetch: 60 % of 1 thread");
    // Without the others, all that is known is the wait.
    assert_eq!(bound(&[run, waits]), "bound by wait for chunks: 60 % of the time");
    let kernels: &[_] = &[(Kernel, "k", [0, 30]), (Kernel, "l", [30, 80]), (Host, "svd", [80, 100])];
    assert_eq!(bound(&[run, kernels]), "bound by kernels: 80 % of the time, most of it l");
    let device = "bound by the device: the host launches to it or waits for it 70 % of the time";
    let launches: &[_] = &[(Enqueue, "k", [0, 20]), (Wait, "", [20, 40])];
    assert_eq!(bound(&[run, launches, &[(Download, "", [40, 70]), (Host, "svd", [70, 100])]]), device);
    assert_eq!(bound(&[run, &[(Host, "svd", [0, 70])]]), "bound by host algebra: 70 % of the time");
    let writes: &[_] = &[(Write, "", [0, 10]), (Flush, "", [10, 100])];
    assert_eq!(bound(&[run, &[(Writers, "", [0, 70])], writes]), "bound by flush: 90 % of 1 thread");
    assert_eq!(bound(&[run, &[(Kernel, "k", [0, 30])]]), "bound by what no stage covers: 70 % of the time");
    assert_eq!(bound(&[]), "nothing was recorded");
}

#[test]
fn the_sentence_prefers_the_times_of_the_device() {
    use Stage::{Chunks, Decode, Enqueue, Phase, Wait};
    let timeline = Timeline::default();
    on(&timeline, "main", &[(Enqueue, "k", [0, 10]), (Wait, "", [10, 80]), (Phase, "run", [0, 100])]);
    on_device(&timeline, "gpu queue", "k", [20, 30]);
    on_device(&timeline, "gpu queue", "l", [40, 60]);
    let waits = "bound by the device: the host launches to it or waits for it 80 % of the time, in which kernels run 30 %";
    assert_eq!(timeline.bound(), waits);
    on_device(&timeline, "gpu queue", "k", [62, 74]);
    assert_eq!(timeline.bound(), "bound by kernels: 42 % of the time, most of it k");
    // Kernels run while the host waits for chunks.
    let timeline = Timeline::default();
    on(&timeline, "main", &[(Chunks, "", [0, 60]), (Wait, "", [60, 100])]);
    on(&timeline, "pool-0", &[(Decode, "a", [0, 60])]);
    on_device(&timeline, "gpu queue", "k", [0, 50]);
    assert_eq!(timeline.bound(), "bound by decode: 60 % of 1 thread");
    on_device(&timeline, "gpu queue", "k", [50, 90]);
    assert_eq!(timeline.bound(), "bound by kernels: 90 % of the time, most of it k");
}

#[test]
fn both_files_say_whose_times_they_are() {
    let (timeline, about) =
        (Timeline::default(), About { failed: "error: <full>".into(), ..About::default() });
    let files =
        || [text(|path| timeline.write_trace(path)), text(|path| timeline.write_report(path, &about))];
    on(&timeline, "pool-0", &[(Stage::Decode, "a", [0, 20])]);
    on(&timeline, "main", &[(Stage::Enqueue, "k", [0, 10])]);
    for file in files() {
        assert!(file.contains("All times are the host's.") && !file.contains("untimed"));
    }
    on_device(&timeline, "gpu queue", "k", [20, 30]);
    on(&timeline, "main", &[(Stage::Untimed, "l", [10, 15])]);
    let [trace, page] = files();
    for file in [&trace, &page] {
        let words = ["Times of gpu queue are the device's own", "A launch that is untimed"];
        assert!(words.iter().all(|words| file.contains(words)));
    }
    let place = |name: &str| page.find(&format!(">{name}</text>")).unwrap();
    assert!(place("main") < place("gpu queue") && place("gpu queue") < place("pool-0"));
    assert!(trace.contains("\"name\":\"k\",\"cat\":\"kernel\"") && trace.contains("\"name\":\"enqueue\""));
    assert!(page.contains("<p class=\"warn\">The run did not finish: error: &lt;full&gt;</p>"));
    assert!(!text(|path| timeline.write_report(path, &About::default())).contains("did not finish"));
}

#[test]
fn old_events_give_way_and_are_counted() {
    let timeline = Timeline::new(3);
    (0..5).for_each(|i| drop(Span::new(Some(&timeline), Stage::Kernel, "k").item(i)));
    assert_eq!(timeline.events(), (3, 2));
    let items: Vec<_> = timeline.summary().lanes[0].events.iter().map(|event| event.item).collect();
    assert_eq!(items, [2, 3, 4]);
    assert!(text(|path| timeline.write_trace(path)).contains("\"dropped_events\":2,"));
    let page = |timeline: &Timeline| text(|path| timeline.write_report(path, &About::default()));
    assert!(page(&timeline).contains("The 2 oldest events were dropped"));
    assert!(!page(&Timeline::default()).contains("dropped"));
    assert_eq!(Timeline::new(0).0.ring.lock().unwrap().most, 1);
}

#[test]
fn names_are_text_in_both_files() {
    let timeline = Timeline::default();
    let name = "a\"b\\c\n<script>&{record}";
    timeline.phase(name, Instant::now());
    on(&timeline, "thread", &[(Stage::Fetch, name, [0, 10])]);
    timeline.hold(name, 7);
    let trace = text(|path| timeline.write_trace(path));
    assert!(trace.contains(r#""of":"a\"b\\c\u000a<script>&{record}""#), "{trace}");
    let record = vec![("name".to_owned(), name.to_owned())];
    let plots = vec!["<svg id=\"plot\"></svg>".into()];
    let about = About { title: name.into(), failed: name.into(), record, plots };
    let page = text(|path| timeline.write_report(path, &about));
    assert!(!page.contains("<script") && page.contains("<svg id=\"plot\"></svg>"));
    assert!(page.matches("&lt;script&gt;&amp;{record}").count() >= 7, "{page}");
    assert!(page.ends_with("</html>\n"), "{page}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_left_out() {
    let (timeline, folder) = (Timeline::default(), tempfile::tempdir().unwrap());
    on(&timeline, "thread", &[(Stage::Fetch, "a", [0, 10])]);
    let refused = |path: &std::path::Path| {
        for written in [timeline.write_trace(path), timeline.write_report(path, &About::default())] {
            let Err(Error::Io { path: named, .. }) = written else { panic!("{written:?}") };
            assert_eq!(*named, *path.display().to_string());
        }
    };
    refused(&folder.path().join("absent/t.json"));
    // A folder has the name.
    fs::create_dir(folder.path().join("t.json")).unwrap();
    refused(&folder.path().join("t.json"));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    // The system's full disk.
    if cfg!(target_os = "linux") {
        refused("/dev/full".as_ref());
    }
}

#[test]
fn processes_merge_by_their_clocks() {
    // Each process keeps its own newest events.
    let (timeline, mut worker) = (Timeline::new(1), Timeline::new(3));
    on(&timeline, "main", &[(Stage::Kernel, "k", [0, 10])]);
    // The worker began a second later.
    let later = timeline.0.began_at + Duration::from_secs(1);
    std::sync::Arc::get_mut(&mut worker.0).unwrap().began_at = later;
    let spans = [(Stage::Kernel, "l", [0, 5]), (Stage::Decode, "a", [10, 20]), (Stage::Phase, "p", [0, 30])];
    on(&worker, "pool-0", &spans);
    worker.grid("a", [2, 3].into_iter());
    on_device(&worker, "gpu queue", "k", [0, 5]);
    let bytes = worker.to_bytes();
    timeline.merge("w", &bytes).unwrap();
    assert_eq!(timeline.events(), (4, 1));
    let summary = timeline.summary();
    let lanes: Vec<_> =
        summary.lanes.iter().map(|lane| (&*lane.name, lane.events[0].start / 1_000_000)).collect();
    assert_eq!(lanes, [("main", 0), ("w: gpu queue", 1000), ("w: pool-0", 1010)]);
    assert_eq!(&*summary.label(summary.phases[0].label).name, "w: p");
    assert_eq!(summary.lanes.iter().map(|lane| lane.is_device).collect::<Vec<_>>(), [false, true, false]);
    let decoded = super::Event { item: 5, ..summary.lanes[2].events[0] };
    assert_eq!(summary.index(&decoded), Some(vec![1, 2]));
    assert_eq!(summary.wall() / 1_000_000, 1030);

    let refused = |bytes: &[u8]| {
        let merged = Timeline::default().merge("w", bytes);
        assert!(matches!(merged, Err(Error::Argument { name: "recorded", .. })), "{merged:?}");
    };
    (0..bytes.len()).for_each(|len| refused(&bytes[..len]));
    refused(&[&bytes[..], &[0]].concat());
    // The last event's lane and label.
    for at in [1, 3] {
        let mut bytes = bytes.clone();
        let place = bytes.len() - at;
        bytes[place] = 77;
        refused(&bytes);
    }
}

#[test]
fn an_ended_recording_stays_as_it_is() {
    let timeline = Timeline::default();
    on(&timeline, "thread", &[(Stage::Kernel, "k", [0, 10])]);
    timeline.end();
    on(&timeline, "thread", &[(Stage::Kernel, "k", [10, 20])]);
    assert_eq!(timeline.events(), (1, 0));
}
