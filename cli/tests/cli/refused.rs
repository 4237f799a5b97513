//! Tests of arguments and input that must end in a clear error: no panic, no hang, and no files left behind.

use std::fs;

use teatime::store::write_npy;

use crate::support::{Scratch, assert_has, copy, fixture, names, plain_array, store};

/// The commands; below each one, added words and the texts that the error must have.
const WRONG_USAGE: &str = r#"
teatime
    brew | brew
    pca @all_v3.vcz | --out
    pca --out x | STORE
pca @all_v3.vcz --out x
    --tolerance 1e-3 --power-iterations 2 | cannot be used
    --tolerance 1e-3 --method exact | --tolerance
    --scaler best | patterson
    -k 0 | at least 1
    --maf 0.7 | 0.5
    --geno -1 | --geno
    --memory lots | 512M
    --threads 0 | at least 1
    --chr 9-5 | `9-5` ends before it starts
    --chr 1,,2 | a name is missing
    --chr 1 --autosome | cannot be used with
    --chr-set 0 | --chr-set
    --counted-allele A2 | a1 and a2 are of a .bed
    --counted-allele 1 --loadings | --loadings matches | names of their alleles
pca @plink1/biallelic.bed --out x
    --array calls | --array | biallelic.bed is a .bed
    --counted-allele 1 | of a .bed is a1 or a2
    --counted-allele minor | a1 | a2 | 0 to 127
grm @all_v3.vcz --out x
    --method pca | gcta
    --missing none | mean
    --format csv | npy
project @all_v3.vcz --out x --loadings y
    --max-mismatch 2 | --max-mismatch
    --counted-allele 1 | teatime project matches variants by the names of their alleles
distance @all_v3.vcz
    --out x.csv | ends with one of .zarr, .tsv, .npy, .dist, .dist.bin
    --out .npy | ends with one of
    --out x.npy --resume | --resume is for a .zarr alone
    --out x.zarr --resume --overwrite | cannot be used with
    --out x.zarr --resume --tree ward | cannot be used with
    --out x.zarr --resume --neighbors 2 | cannot be used with
    --out x.zarr --tree ward --neighbors 2 | cannot be used with
    --out x.dist --neighbors 2 | --neighbors is for --out D.npy, D.tsv or D.zarr
    --out x.dist.bin --neighbors 2 | --neighbors is for --out D.npy, D.tsv or D.zarr
    --out x.tsv --neighbors=-1 | --neighbors
    --out x.npy --match id | --with
distance @all_v3.vcz --out x.npy
    --metric manhatten | cityblock
    --p 3 | --metric minkowski alone
    --het-het 0.5 | --het-het is of --metric ibs alone
    --metric ibs --het-het 0.7 | [possible values: 1, 0.5]
    --counted-allele 128 | nor a number from 0 to 127
    --tree centroid | [possible values: single, complete, average
distance @all_v3.vcz --with @biallelic.vcz
    --out x.dist | PLINK's files are of distances of | samples from one another
    --out x.dist.bin | PLINK's files are of distances of | samples from one another
    --out x.npy --tree average | --tree is of distances of | samples from one another
    --out x.zarr --resume | --resume is of distances of | samples from one another
    --out x.npy --counted-allele 1 | --with matches variants by the names of their alleles
pairwise @distance/counts.npy
    --out d.dist | ends with one of .npy, .tsv, .zarr
    --out d.npy --metric euclid | possible values
    --out d.npy --p 3 | --p is of --metric minkowski alone
    --out d.npy --negative-missing | --negative-missing is for
    --out d.npy --resume | --resume is for a .zarr alone
    --out d.zarr --resume --neighbors 2 | cannot be used with
    --out d.zarr --resume --radius 2 | cannot be used with
    --out d.zarr --neighbors 2 --radius 2 | cannot be used with
    --out d.npy --radius 2 | --radius is for --out D.tsv or D.zarr
svd @distance/counts.npy --out x
    -k 0 | at least 1
    --center row | possible values: none, columns, rows, both
    --scale --center both | --scale is not for --center both
    --tolerance 1e-3 --power-iterations 2 | cannot be used
    --power-iterations 2 --method exact | --power-iterations
    --format csv | npy
blur @filter/blur.npy
    x.npy | --sigma
    x.png --sigma 1 | ends with one of .npy, .zarr
    x.npy --sigma 1 --axes 0 --channel-axis 1 | cannot be used with
    x.npy --sigma 1 --order -1 | invalid value '-1' for '--order
    x.npy --sigma 1 --radius -1 | invalid value '-1' for '--radius
    x.npy --sigma 1 --mode reflected | possible values
    x.npy --sigma 1 --cval 3 | --cval is of --mode constant alone
    x.npy --sigma 1 --resume | --resume is for a .zarr alone
    x.zarr --sigma 1 --level 1 | --level is of OME-Zarr images alone
    x.zarr --sigma 1 --physical | --physical is of OME-Zarr images alone
    x.zarr --sigma 1 --pyramid | --pyramid is of OME-Zarr images alone
    x.npy --sigma 1 --pyramid | --pyramid is for OUT.zarr alone
    x.npy --sigma 1 --chunks 4,4,3 | --chunks is for OUT.zarr alone
    x.npy --sigma 1 --shards 8,8,3 | --shards is for OUT.zarr alone
    x.npy --sigma 1 --compression zstd | --compression is for OUT.zarr alone
demo --out x
    --populations 1501 | --populations 1501
    --missing 2 | --missing | 2
    --fst 1 | --fst | 1
    --samples 0 | --samples | 0
    --samples 1000000000000 | --samples 1000000000000
"#;

/// The commands on missing or unsuitable input, or with options that do not fit the input; same format as above.
const ERRORS: &str = r#"
pca --out new/x
    nowhere | nowhere
    file.vcf | file.vcf | is a VCF file | vcf2zarr | --make-bed
    file | is a file | .bed
    folder | folder | not a Zarr store
    @plink1/.. | is a folder of stores
    missing -k 1 | none of the 4 variants | 4 have no call
    constant -k 1 | none of the 3 variants | 3 do not vary
    constant -k 1 --method randomized | none of the 3 variants
    empty -k 1 | empty: 4 variants of 0 samples
    doubled -k 1 | doubled | `a` occurs more than once
    @dosages_v3.zarr | call_genotype | --array | float32_zstd
    @biallelic.vcz @plink1/biallelic.bed | do not go together
    @dosages_v2.zarr --array int64_gzip --chr 1 | the stores have `.`
pca @all_v3.vcz --out new/x
    -k 61 | -k | 61 | 60
    --array nothing | nothing
    --array variant_position | variant_position | axes
    --array call_genotype_mask | call_genotype_mask | Bool
    --array sample_id | sample_id
    --device abacus | abacus | cpu
    --memory 1K | --memory | at least | 1.0 KiB
    --autosome | --autosome: no variant | `2L`, `3R`
grm --out new/x
    constant | none of the 3 variants | 3 do not vary
    spaced | "b c" | --format gcta
distance @all_v3.vcz --out new/x.npy
    --memory 1K | at least
    --metric minkowski --p -1 | above 0
    --metric ibs --missing rescale | a mean already
    --metric ibs --het-het 0.5 --haplotypes | of ploidy 2, not 1
    --tree single --metric inner_product | --tree: inner_product is a
    --tree single --missing propagate | --tree: the distance of | of 1770 pairs of samples is NaN
    --neighbors 0 | --neighbors: 0 of 60 samples: from 1 to 59
    --neighbors 60 | --neighbors: 60 of 60 samples: from 1 to 59
    --neighbors 2 --memory 1K | memory budget of 1.0 KiB is too small: this needs at least
    --neighbors 2 --metric canberra --memory 1K | memory budget, for the matrix of all distances, of 1.0 KiB is too small: this needs at least
    --with none.vcz | none.vcz
distance --out new/x.npy
    @dosages_v3.zarr --array int32_gzip --haplotypes | int32_gzip | dosages | have no haplotypes
    @dosages_v3.zarr --array int32_gzip --counted-allele 1 | dosages | have no alleles
    @plink1/few5.bed --haplotypes | few5.bed | have no haplotypes
    @distance/counts.npy | teatime pairwise
distance
    spaced --out x.dist | white space | PLINK's .id
    @all_v3.vcz --out x.zarr --resume --metric canberra | --metric: canberra is computed in f32
# The least is that of the whole matrix where bands do not help.
    @all_v3.vcz --out x.zarr --metric canberra --memory 1K | at least
pairwise --out new/d.npy
    @distance/counts.npy --metric minkowski --p -1 | exponent -1
    @distance/counts.npy --metric hellinger --missing rescale | hellinger knows no rule
    @distance/counts.npy --neighbors 6 | --neighbors: 6 of 5 other observations
    @distance/counts.npy --memory 100 | at least
    @distance/counts.npy --with @distance/signed.npy | 9 and 7
    none.npy | none.npy
    line | [2]
    text.npy | no .npy file
    infinite.npy | infinite.npy: observation 1: an infinite element
pairwise @distance/counts.npy --out new/d.tsv
    --radius -1 | --radius: -1: a number from 0 on, for euclidean
    --radius nan | --radius: NaN
svd --out new
    @distance/counts.npy -k 7 | -k: 7 components of a matrix of 6 x 9, which has at most 6
    @distance/counts.npy --memory 100 | at least
    @distance/counts.npy @distance/signed.npy | signed.npy: 7 columns, and | counts.npy has 9
    none.npy | none.npy
    line | line: an array of shape [2], not a matrix
    text.npy | no .npy file
    infinite.npy | infinite.npy
    empty | empty: 4 rows x 0 columns, nothing to decompose
blur @filter/blur.npy new.npy
    --sigma -1 | --sigma: -1; it is a finite number from 0 on
    --sigma 1,2 | --sigma: 2 values for 3 filtered axes
    --sigma 1 --axes 0,3 | --axes: 3 of 3 axes
    --sigma 1 --axes 0,-4 | --axes: -4 of 3 axes
    --sigma 1 --channel-axis 3 | --channel-axis: 3 of 3 axes
    --sigma 1 --channel-axis -4 | --channel-axis: -4 of 3 axes
    --sigma 1 --order 101 | --order
    --sigma 1 --memory 1K | at least
    --sigma 1 --order 0,1,0 --dtype same | --dtype same: derivatives are negative too
blur --sigma 1
    @filter/blur.npy new.zarr --chunks 4,4 | chunk
    @filter/blur.npy new.zarr --chunks 4,4,3 --shards 6,4,3 | shard
    none.zarr new.npy | none.zarr
    @ome_0.5.zarr new.zarr --level 2 | 2 levels
    @ngff_0.5.zarr new.zarr --physical | y in nanometer, x in millimeter
    @plate.zarr new.zarr | plate
# Without a call there is nothing to decompose.
demo --out new/x --variants 2500 --samples 90
    --missing 1 | 2500 have no call
"#;

/// Runs the commands of a table, which must end with this exit code.
#[track_caller]
fn refused(scratch: &Scratch, code: i32, table: &str) {
    let mut command = "";
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            let parts: Vec<&str> = line.trim_start().split(" | ").collect();
            scratch.refused(&format!("{command} {}", parts[0]), code, &parts[1..]);
        } else {
            command = line.trim_start_matches("teatime");
        }
    }
}

#[test]
fn wrong_usage() {
    refused(&Scratch::new(), 2, WRONG_USAGE);
}

#[test]
fn input_and_options_that_do_not_do() {
    let scratch = Scratch::new();
    scratch.write("file.vcf", "##fileformat=VCFv4.3");
    scratch.write("file", "text");
    fs::create_dir(scratch.join("folder")).unwrap();
    let put = |name: &str, samples: &[&str], dosages: &[&[i8]]| store(&scratch.join(name), samples, dosages);
    put("missing", &["a", "b", "c"], &[&[-1, -1, -1][..]; 4]);
    put("constant", &["a", "b", "c"], &[&[1, 1, 1], &[0, 0, -1], &[2, 2, 2]]);
    put("doubled", &["a", "b", "a"], &[&[0, 1, 2], &[1, 0, 0]]);
    put("spaced", &["a", "b c"], &[&[0, 1], &[2, 0]]);
    plain_array(&scratch.join("empty"), "|i1", &[4, 0], &[]);
    plain_array(&scratch.join("line"), "<f4", &[2], &[0; 8]);
    scratch.write("text.npy", "1,2,3");
    write_npy(scratch.join("infinite.npy"), &[1.0, f64::INFINITY], [2, 1]).unwrap();
    refused(&scratch, 1, ERRORS);
}

#[test]
fn remote_stores() {
    let scratch = Scratch::new();
    for url in ["s3://bucket/a.vcz", "https://example.org/a.bed"] {
        for words in
            ["pca @all_v3.vcz --out URL", "project @all_v3.vcz --out out --loadings URL", "demo --out URL"]
        {
            scratch.refused(&words.replace("URL", url), 2, &[url, "on disks", "copy"]);
        }
    }
}

/// Names that would break lines and columns of a table, or act on a terminal, are refused: names of samples, families, and of variants if they are
/// written.
#[test]
fn control_characters_in_names() {
    let scratch = Scratch::new();
    for name in ["a\tb", "a\n", "a\u{85}b", "\0"] {
        store(&scratch.join("names.vcz"), &["x", name, "z"], &[&[0, 1, 2], &[1, 0, 0]]);
        let said = ["names.vcz", "the sample \"", "control character"];
        scratch.refused("pca names.vcz --out out -k 1", 1, &said);
    }
    scratch.copies("plink1/few5", "names", &["bed", "bim", "fam"]);
    let [fam, bim] = ["names.fam", "names.bim"].map(|name| scratch.text(name));
    scratch.write("names.fam", fam.replacen("0\t", "\u{7}\t", 1));
    let said = "names.bed: the family \"\\u{7}\" has a control character";
    scratch.refused("pca names.bed --out out -k 1", 1, &[said]);
    scratch.write("names.fam", fam);
    let (first, rest) = bim.split_once('\n').unwrap();
    for (column, what, more) in
        [(0, "contig", "--chr 1"), (1, "variant", "--loadings"), (4, "allele", "--loadings")]
    {
        let mut columns: Vec<_> = first.split('\t').map(str::to_owned).collect();
        columns[column] += "\u{1b}";
        scratch.write("names.bim", format!("{}\n{rest}", columns.join("\t")));
        let said = [&*format!("the {what} \""), "control character"];
        scratch.refused(&format!("pca names.bed --out out -k 1 {more}"), 1, &said);
    }
}

#[test]
fn stores_that_disagree() {
    let scratch = Scratch::new();
    let rows: &[&[i8]] = &[&[0, 1, 2], &[1, 0, 0]];
    for name in ["abc", "acb", "apq"] {
        store(&scratch.join(name), &[&name[..1], &name[1..2], &name[2..]], rows);
    }
    store(&scratch.join("ab"), &["a", "b"], &[&[0, 1], &[1, 0]]);
    for (other, said) in [
        ("acb", &["another order", "sample 2", "`c`", "`b`"][..]),
        ("apq", &["2 samples of abc not in apq: `b`, `c`; 2 samples of apq not in abc: `p`, `q`"]),
        ("ab", &["1 sample of abc not in ab: `c`"]),
    ] {
        scratch.refused(&format!("pca abc {other} --out out -k 1"), 1, said);
    }
    assert_has(&scratch.ok("pca abc ab/../abc --out twice -k 1").err, &["abc is given 2 times"]);
}

#[test]
fn damaged_chunks_are_named() {
    let scratch = Scratch::new();
    copy(&fixture("all_v3.vcz"), &scratch.join("damaged.vcz"));
    let file = "damaged.vcz/call_genotype/c/1/2/0";
    let (bytes, said) = (scratch.bytes(file), ["call_genotype", "[1, 2, 0]"]);
    scratch.write(file, &bytes[..bytes.len() / 2]);
    scratch.refused("pca damaged.vcz --out out", 1, &said);
    fs::remove_file(scratch.join(file)).unwrap();
    let why = "an error unless --missing-chunk fill is given: missing chunks then hold the fill value, 0";
    let said = [&said[..], &[why, "source bio2zarr-0.2.1", "vcf_zarr_version 0.5"]].concat();
    scratch.refused("pca damaged.vcz --out out", 1, &said);
    scratch.ok("pca damaged.vcz --out out --missing-chunk fill");
}

/// Values out of range are refused as dosages, unless options or attributes allow them.
#[test]
fn dosages_out_of_range() {
    let scratch = Scratch::new();
    let array =
        |name: &str, dtype: &str, bytes: &[u8]| plain_array(&scratch.join(name), dtype, &[2, 3], bytes);
    for (name, value) in [("nan", f32::NAN), ("negative", -1.0)] {
        array(name, "<f4", &[0.0, 1.0, value, 2.0, 1.0, 0.0].map(f32::to_le_bytes).concat());
    }
    array("three", "|u1", &[0, 1, 3, 2, 1, 0]);
    for (words, said) in [
        ("nan", "unless --nan-missing is given"),
        ("three --scaler standard --bounded-dosages", "3"),
        ("negative", "-1"),
    ] {
        scratch.refused(&format!("pca {words} --out out -k 1"), 1, &["[0, 0]", said]);
    }
    scratch.write("negative/.zattrs", r#"{ "missing_value": -1 }"#);
    for words in ["nan --nan-missing", "three --scaler standard", "negative"] {
        scratch.ok(&format!("pca {words} --out out -k 1 --overwrite"));
    }
}

#[test]
fn output_that_cannot_be_written() {
    let scratch = Scratch::new();
    scratch.write("file", "mine");
    for out in ["file", "file/below"] {
        scratch.refused(&format!("pca @all_v3.vcz --out {out}"), 1, &["file"]);
    }
    // The error occurs before anything is read.
    scratch.refused("pca nowhere --out file", 1, &["is a file"]);
    assert_eq!(scratch.text("file"), "mine");
}

/// Existing files that are no result of the command stay unchanged.
#[test]
fn results_do_not_replace_what_is_not_theirs() {
    let scratch = Scratch::new();
    scratch.write("mine.npy", "mine");
    for how in ["", "--overwrite"] {
        for words in
            ["pairwise @distance/counts.npy --out mine.npy", "blur @filter/blur.npy mine.npy --sigma 1"]
        {
            let command = words.split(' ').next().unwrap();
            let said = format!("holds mine.npy, which no mine.run.json of `teatime {command}` lists");
            scratch.refused(&format!("{words} {how}"), 1, &[&said]);
        }
    }
    assert_eq!(scratch.text("mine.npy"), "mine");
    fs::create_dir(scratch.join("mine.zarr")).unwrap();
    scratch.write("mine.zarr/notes.txt", "");
    for (words, said) in [
        ("distance @all_v3.vcz --out mine.zarr", "mine.zarr: is there, and has no array `distance`"),
        ("pairwise @distance/counts.npy --out mine.zarr", "mine.zarr: is there, and has no array `distance`"),
        ("blur @filter/blur.npy mine.zarr --sigma 1", "mine.zarr: is there, and is no Zarr array"),
    ] {
        scratch.refused(&format!("{words} --resume"), 1, &[said]);
    }
    assert_eq!(names(&scratch.join("mine.zarr")), ["notes.txt"]);
    // The input and the store that contains it are not replaced either.
    copy(&fixture("ome_0.5.zarr"), &scratch.join("in.zarr"));
    for input in ["in.zarr", "in.zarr/s0"] {
        for how in ["--overwrite", "--resume"] {
            let words = format!("blur {input} in.zarr --sigma 1 {how}");
            scratch.refused(&words, 1, &["holds the input; choose another name"]);
        }
    }
}
