//! Tests of `teatime denoise`: options arrive, and results are whole.

use std::sync::Arc;

use teatime::{
    Device, Run, StoredType,
    filter::{TvOptions, write_denoised_tv},
    openings::elements,
    store::{NpyArray, NpyWriter},
};

use crate::support::{Scratch, assert_has, fixture};

/// Each option takes effect: results equal those of the library, whether an image is cut or not.
#[test]
fn options_arrive() {
    let scratch = Scratch::new();
    let image = Arc::new(NpyArray::open(fixture("filter/blur.npy")).unwrap());
    let plain = TvOptions::default().axes([0, 1]);
    for (i, (words, options)) in [
        ("--channel-axis 2", plain.clone()),
        ("--axes -3,1 --weight 0.3 --eps 1e-3", plain.clone().weight(0.3).eps(1e-3)),
        ("--channel-axis -1 --iterations 7 --memory 300K", plain.eps(0.0).max_iterations(7)),
    ]
    .into_iter()
    .enumerate()
    {
        let expected = scratch.join("expected.npy");
        let begin = |_: &str| NpyWriter::create(&expected, StoredType::F32, &[23, 31, 3]);
        let made = write_denoised_tv(&image, &options, &Device::cpu(), &Run::default(), begin).unwrap();
        let record = scratch.record(&format!("denoise @filter/blur.npy {i}.npy {words}"));
        assert_eq!(record["iterations"], serde_json::json!(made.iterations), "{words}");
        assert!(scratch.bytes(&format!("{i}.npy")) == scratch.bytes("expected.npy"), "{words}");
    }
    let page = scratch.ok("denoise @filter/blur.npy wide.npy --channel-axis 2 --dtype f64 --iterations 7");
    assert_has(&page.out, &["23 x 31 x 3 of u16", "7 times, weight 0.1", "wide.run.json, wide.npy"]);
    let [narrow, wide] =
        ["2.npy", "wide.npy"].map(|name| Arc::new(NpyArray::open(scratch.join(name)).unwrap()));
    let (narrow, wide) = (elements::<f32>(narrow), elements::<f64>(wide));
    assert!(narrow.iter().zip(&wide).all(|(&narrow, &wide)| f64::from(narrow) == wide));
}

/// An image stays an image, and a run with `--resume` that is complete is not computed again.
#[test]
fn images_and_resuming() {
    let scratch = Scratch::new();
    let words = "denoise @ome_0.5.zarr smooth.zarr --iterations 3 --resume";
    let first = scratch.record(words);
    assert_eq!(first["boxes"]["found"], 0);
    let image = teatime_image::Multiscale::open(scratch.join("smooth.zarr")).unwrap();
    assert_eq!(image.axes(), teatime_image::Multiscale::open(fixture("ome_0.5.zarr")).unwrap().axes());
    let again = scratch.record(words);
    assert_eq!((&again["boxes"]["filtered"], &again["iterations"]), (&0.into(), &first["iterations"]));
}
