//! Tests of `teatime svd --resume` when it is killed, or gets another input.

use teatime::{random::philox, store::write_npy};

use crate::support::Scratch;

/// Writes a matrix whose spectrum is flat, so that the iteration takes many products.
fn matrix(scratch: &Scratch, name: &str, seed: u32) {
    let element = |i: u64| (philox([seed, 2], i)[0] % 1000) as u16;
    let values: Vec<u16> = (0..12_000 * 200).map(element).collect();
    write_npy(scratch.join(name), &values, [12_000, 200]).unwrap();
}

const WORDS: &str = "-k 4 --method randomized --tolerance 1e-6 --center columns --left --right";

#[test]
fn killed() {
    let scratch = Scratch::new();
    matrix(&scratch, "x.npy", 1);
    let whole = scratch.record(&format!("svd x.npy --out whole {WORDS}"));
    assert!(whole["products"].as_u64() > Some(9) && whole["products_found"] == 0, "{whole}");
    assert_eq!(whole["route"], "krylov-on-device");
    // The run is killed once the product of a pass is there.
    let parts = ["svd.checkpoint/1", "svd.checkpoint/2", "svd.checkpoint/5"];
    scratch.killed(&format!("svd x.npy --out out {WORDS} --resume --threads 1"), "out", &parts);
    assert!(!scratch.join("out/singular_values.tsv").exists());
    let said = "out/svd.checkpoint: is there, of a run that";
    scratch.refused(&format!("svd x.npy --out out {WORDS}"), 1, &[said]);
    matrix(&scratch, "other.npy", 2);
    for (other, said) in [
        ("x.npy -k 5 --center columns --left", "components was 4, and is 5"),
        ("x.npy -k 4 --left", "center was columns, and is none"),
        ("x.npy -k 4 --center columns --scale --left", "scale was false, and is true"),
        ("other.npy -k 4 --center columns --left", "arrays was "),
    ] {
        let words = format!("svd {other} --method randomized --out out --resume");
        scratch.refused(&words, 1, &["out/svd.checkpoint: is of another job: ", said]);
    }
    // The method is chosen, and the memory is another.
    let auto = WORDS.replace("randomized", "auto");
    let words = format!("svd x.npy --out out {auto} --resume --threads 3 --memory 1G");
    let resumed = scratch.record(&words);
    assert!(resumed["products_found"].as_u64() >= Some(5), "{resumed}");
    assert_eq!([&resumed["route"], &resumed["products"]], [&whole["route"], &whole["products"]]);
    assert_eq!(resumed["method_reason"], "asked for by --resume");
    assert!(scratch.results("out") == scratch.results("whole"));
    assert!(!scratch.join("out/svd.checkpoint").exists());
    scratch.refused(&words, 1, &["--overwrite replaces them"]);
    let said = "--resume is for --method randomized";
    scratch.refused("svd x.npy --out new --method exact --resume", 2, &[said]);
}
