//! Tests of the call rates of samples in a projection.

use serde_json::json;

use super::{LOADINGS, reference, sites, write};
use crate::support::{Scratch, assert_has};

#[test]
fn samples_with_many_missing_calls_are_named() {
    let scratch = Scratch::new();
    let mut all = sites();
    write(&scratch, "old.vcz", &all);
    reference(&scratch, "old.vcz -k 2");
    // One sample loses three of four calls, one all calls, one none; two variants are absent.
    for (i, site) in all.iter_mut().enumerate() {
        site.dosages.iter_mut().for_each(|g| *g = (*g).max(0));
        (site.dosages[1], site.dosages[4]) = (-1, if i % 4 == 0 { site.dosages[4] } else { -1 });
    }
    all.truncate(18);
    write(&scratch, "new.vcz", &all);
    for resources in ["--threads 1 --memory 64M", "--threads 4 --memory 1G"] {
        let words = format!("project new.vcz {LOADINGS} --out out --max-mismatch 0.2 --overwrite");
        let ran = scratch.ok(&format!("{words} {resources}"));
        let table = "sample\tused\tmissing\tmissing_share\ns0\t18\t0\t0\ns1\t0\t18\t1\ns2\t18\t0\t0\ns3\t18\t0\t0\n\
                     s4\t5\t13\t0.722222\ns5\t18\t0\t0\n";
        assert_eq!(scratch.text("out/projection.samples.tsv"), table);
        let words = "warning: 2 samples lack more than 5 % of the calls of the variants used, which brings their scores \
                     nearer to zero by about as much: `s1 (100 %)`, `s4 (72.2 %)`; projection.samples.tsv has the numbers";
        assert_has(&ran.err, &[words]);
        let record = scratch.json("out/run.json");
        let samples = json!({
            "fewest_called": 0, "most_called": 18, "many_missing": 2, "many_missing_above": 0.05, "undetermined": 0
        });
        assert_eq!((&record["samples"], &record["missing_calls"]), (&samples, &31.into()));
        assert_has(&record["warnings"].to_string(), &["`s1 (100 %)`"]);
    }
}

#[test]
fn least_squares_of_the_calls_that_are_there() {
    let scratch = Scratch::new();
    let mut all = sites();
    all.iter_mut().flat_map(|site| &mut site.dosages).for_each(|g| *g = (*g).max(0));
    write(&scratch, "new.vcz", &all);
    reference(&scratch, "new.vcz -k 2");
    // The first sample lacks every third call, and the second lacks all calls but one.
    for (i, site) in all.iter_mut().enumerate() {
        site.dosages[0] = if i % 3 == 0 { -1 } else { site.dosages[0] };
        site.dosages[1] = if i > 0 { -1 } else { site.dosages[1] };
    }
    write(&scratch, "new.vcz", &all);
    let words = format!("project new.vcz {LOADINGS} --out out --overwrite");
    let ran = scratch.ok(&format!("{words} --missing least-squares"));
    let record = scratch.json("out/run.json");
    let undetermined = &record["samples"]["undetermined"];
    assert_eq!((&record["missing"], undetermined), (&"least-squares".into(), &1.into()));
    let said = [
        "which makes their scores less certain: `s1 (95 %)`, `s0 (35 %)`",
        "the calls of 1 sample do not determine scores, which are NaN: `s1`",
    ];
    assert_has(&ran.err, &said);
    assert_eq!(scratch.text("out/projection.eigenvec").lines().nth(2), Some("s1\tnan\tnan"));
    assert_has(&scratch.ok(&words).err, &["which brings their scores nearer to zero"]);
    assert_eq!(scratch.json("out/run.json")["missing"], "mean");
}
