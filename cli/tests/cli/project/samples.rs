//! Calls of each sample.

use std::fs;

use super::{numbers, project, reference, sites, write};
use crate::support::{Scratch, json};

#[test]
fn samples_with_many_missing_calls_are_named() {
    let scratch = Scratch::new();
    let [old, new, out] = ["old.vcz", "new.vcz", "out"].map(|name| scratch.join(name));
    let mut all = sites();
    write(&old, &all);
    let loadings = reference(&scratch, &old, &["-k", "2"]);
    // One sample loses three calls of four, one all, one none; two variants are not there.
    for (i, site) in all.iter_mut().enumerate() {
        let full = site.dosages.iter().map(|&g| g.max(0));
        site.dosages = full.collect();
        (site.dosages[1], site.dosages[4]) = (-1, if i % 4 == 0 { site.dosages[4] } else { -1 });
    }
    all.truncate(18);
    write(&new, &all);
    let runs = [["1", "64M"], ["4", "1G"]].map(|[threads, memory]| {
        let more =
            ["--threads", threads, "--memory", memory, "--max-mismatch", "0.2", "--overwrite", "--json"];
        let ran = project(&new, &loadings, &out, &more).ok();
        (ran, fs::read_to_string(out.join("projection.samples.tsv")).unwrap())
    });
    let lines = [
        "sample\tused\tmissing\tmissing_share",
        "s0\t18\t0\t0",
        "s1\t0\t18\t1",
        "s2\t18\t0\t0",
        "s3\t18\t0\t0",
        "s4\t5\t13\t0.722222",
        "s5\t18\t0\t0",
    ];
    for (ran, table) in &runs {
        assert_eq!(table.lines().collect::<Vec<_>>(), lines);
        let words = "warning: 2 samples lack more than 5 % of the calls of the variants used, which brings their scores \
                     nearer to zero by about as much: `s1 (100 %)`, `s4 (72.2 %)`; projection.samples.tsv has the numbers";
        assert!(ran.err.contains(words), "{}", ran.err);
        let record = json(&ran.out);
        let samples = serde_json::json!(
            {
                "fewest_called": 0, "most_called": 18, "many_missing": 2, "many_missing_above": 0.05,
                "undetermined": 0
            }
        );
        assert_eq!(record["samples"], samples);
        assert_eq!(record["missing_calls"], 31);
        assert!(record["warnings"].to_string().contains("`s1 (100 %)`"));
    }
}

#[test]
fn least_squares_of_the_calls_that_are_there() {
    let scratch = Scratch::new();
    let [old, new, out] = ["old.vcz", "new.vcz", "out"].map(|name| scratch.join(name));
    let mut all = sites();
    all.iter_mut().flat_map(|site| &mut site.dosages).for_each(|g| *g = (*g).max(0));
    write(&old, &all);
    let loadings = reference(&scratch, &old, &["-k", "2"]);
    let scores = |more: &[&str]| {
        let ran = project(&new, &loadings, &out, &[&["--overwrite", "--json"], more].concat()).ok();
        (numbers(&out.join("projection.tsv")), json(&ran.out), ran.err)
    };
    // Without a missing call the scores are the same, to the last digit.
    write(&new, &all);
    let (full, record, _) = scores(&[]);
    assert_eq!(record["missing"], "mean");
    assert_eq!(scores(&["--missing", "least-squares"]).0, full);
    // The first sample lacks every third call, the second all but one.
    for (i, site) in all.iter_mut().enumerate() {
        site.dosages[0] = if i % 3 == 0 { -1 } else { site.dosages[0] };
        site.dosages[1] = if i > 0 { -1 } else { site.dosages[1] };
    }
    write(&new, &all);
    let (fitted, record, err) = scores(&["--missing", "least-squares"]);
    assert_eq!(
        (&record["missing"], &record["samples"]["undetermined"]),
        (&"least-squares".into(), &1.into())
    );
    assert!(fitted[1].iter().all(|score| score.is_nan()), "{fitted:?}");
    assert_eq!(fitted[2..], full[2..]);
    assert!(fitted[0] != full[0] && fitted[0].iter().all(|score| score.is_finite()), "{fitted:?}");
    for words in [
        "which makes their scores less certain: `s1 (95 %)`, `s0 (35 %)`",
        "the calls of 1 sample do not determine scores, which are NaN: `s1`",
    ] {
        assert!(err.contains(words), "{err}");
    }
    let eigenvec = fs::read_to_string(out.join("projection.eigenvec")).unwrap();
    assert_eq!(eigenvec.lines().nth(2), Some("s1\tnan\tnan"));
    let (_, _, err) = scores(&[]);
    assert!(err.contains("which brings their scores nearer to zero"), "{err}");
}
