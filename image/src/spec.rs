//! The description of an image to be written.

use serde_json::{Value, json};
use teatime::{
    Error, Result, StoredType,
    stable_text::StableText,
    store::{ArraySpec, Attributes, ZarrFormat},
};

use crate::{
    axis::{self, Axis, AxisKind, MOST_AXES},
    mean::reduced,
    multiscale::{Level, Multiscale},
};

/// The stack is halved if it has at least the extent of the longer axis of a plane divided by this.
const STACK: u64 = 4;

/// The rule for how many smaller levels an image has.
///
/// Each level consists of means of the level before: over 2 pixels along both axes of the planes (the last two spatial axes), and along the
/// stack (the third spatial axis) if its extent is at least a quarter of a plane's longer axis. At the end of an axis of odd extent, the mean is
/// over the remaining pixels. Axes of one pixel and axes that are not spatial keep their extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pyramid {
    /// No smaller levels: there is only level 0.
    #[default]
    None,
    /// Levels until planes have at most this number of pixels along both axes. It is at least 1.
    UntilWithin(u64),
    /// This number of levels including level 0, or fewer if nothing is left to halve. It is at least 1.
    Levels(usize),
}

impl Pyramid {
    /// The pyramid that viewers expect: levels until planes have at most 256 pixels along both axes.
    pub const USUAL: Self = Self::UntilWithin(256);
}

teatime::stable_text! { enum Pyramid { None, UntilWithin(pixels), Levels(count) } }

/// The description of an image for [`MultiscaleWriter`](crate::MultiscaleWriter).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageSpec {
    /// The name of the image; `None` by default.
    pub name: Option<String>,
    /// The axes of the arrays, in the order that OME-Zarr requires: time, then channels or another kind, then space.
    pub axes: Vec<Axis>,
    /// The size of a pixel of level 0 along each axis, in the axis's unit. It is above 0, and 1 for axes without a scale.
    pub scale: Vec<f64>,
    /// The position of the centre of the first pixel of level 0 along each axis, in the axis's unit; 0 by default.
    pub translation: Vec<f64>,
    /// The display settings of the channels (`omero`); `None` by default.
    pub omero: Option<Attributes>,
    /// The smaller levels; none by default.
    pub pyramid: Pyramid,
    /// The array of level 0. Zarr version 3, the default, makes an image of OME-Zarr 0.5; Zarr version 2 makes one of 0.4. The other levels have
    /// the same chunks and shards, unless a level is smaller than a chunk or shard. The names of axes and the chunk key separator follow
    /// OME-Zarr, whatever this says. With a `job`, another process can resume writing the image.
    pub array: ArraySpec,
}

/// A level to be written.
#[derive(Clone, Debug)]
pub(crate) struct LevelSpec {
    pub(crate) level: Level,
    pub(crate) array: ArraySpec,
    /// The factor by which each axis is shorter than in the level before.
    pub(crate) factors: Vec<u64>,
}

teatime::setters! {
    ImageSpec {
        name(impl Into<Option<String>>) = name.into(),
        scale(&[f64]) = scale.to_vec(),
        translation(&[f64]) = translation.to_vec(),
        omero(impl Into<Option<Attributes>>) = omero.into(),
        pyramid(Pyramid),
    }
}

impl ImageSpec {
    /// Creates a description from the axes, the size of a pixel along each axis, and the array of level 0.
    pub fn new(axes: Vec<Axis>, scale: &[f64], array: ArraySpec) -> Self {
        Self {
            name: None,
            translation: vec![0.0; axes.len()],
            axes,
            scale: scale.to_vec(),
            omero: None,
            pyramid: Pyramid::default(),
            array,
        }
    }

    /// Creates a description whose level 0 has the axes, scale and translation of a level of another image, and that image's name and `omero`.
    ///
    /// # Errors
    /// [`Error::Argument`]: there is no such level.
    pub fn like(source: &Multiscale, level: usize, array: ArraySpec) -> Result<Self> {
        let Level { scale, translation, .. } = source.find(level)?;
        Ok(Self {
            name: source.name().map(str::to_owned),
            translation: translation.clone(),
            omero: source.omero().cloned(),
            ..Self::new(source.axes().to_vec(), scale, array)
        })
    }

    /// Refuses an invalid description, except for errors that the array's own checks find.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |name: &'static str, why: String| Err(Error::argument("ImageSpec", name, why));
        let axes = self.axes.len();
        if !(2..=MOST_AXES).contains(&axes) {
            return refuse("axes", format!("{axes}, expected 2 to {MOST_AXES}"));
        }
        let why = axis::misfit(&self.axes).or_else(|| self.disorder());
        if let Some(why) = why {
            return refuse("axes", why);
        }
        for (name, numbers) in [("scale", &self.scale), ("translation", &self.translation)] {
            let fits = |number: &f64| number.is_finite() && (name != "scale" || *number > 0.0);
            if numbers.len() != axes || !numbers.iter().all(fits) {
                let above = if name == "scale" { " above 0" } else { "" };
                let why = format!("{numbers:?}, expected {axes} finite numbers{above}, one for each axis");
                return refuse(name, why);
            }
        }
        let (shape, chunks) = (&self.array.shape, &self.array.chunk_shape);
        if [shape, chunks].iter().any(|extents| extents.len() != axes || extents.contains(&0)) {
            let expected = format!("expected {axes} axes of at least one pixel");
            return refuse("array", format!("a shape of {shape:?} in chunks of {chunks:?}, {expected}"));
        }
        if matches!(self.array.dtype, None | Some(StoredType::Bool)) {
            return refuse("array", format!("of {:?}, expected numbers", self.array.dtype));
        }
        match self.pyramid {
            Pyramid::UntilWithin(0) | Pyramid::Levels(0) => {
                refuse("pyramid", "0, expected at least 1".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns an error text if the axes are not in the order that OME-Zarr requires.
    fn disorder(&self) -> Option<String> {
        let rank = |axis: &Axis| match axis.kind {
            AxisKind::Time => 0,
            AxisKind::Channel | AxisKind::Other(_) => 1,
            AxisKind::Space => 2,
        };
        let names = self.axes.iter().map(|axis| &*axis.name).collect::<Vec<_>>().join(", ");
        (!self.axes.is_sorted_by_key(rank))
            .then(|| format!("{names}, expected those of time first, and those of space last"))
    }

    /// Returns all levels, starting with the largest.
    pub(crate) fn levels(&self) -> Vec<LevelSpec> {
        let axes = self.axes.len();
        let mut array = self.array.clone();
        array.axes = self.axes.iter().map(|axis| axis.name.clone()).collect();
        array.nested = true;
        // The job includes everything that the image depends on, so that no process resumes a different image.
        let image = json!([
            self.name,
            self.axes.iter().map(axis_json).collect::<Vec<_>>(),
            self.scale,
            self.translation,
            self.omero,
            self.pyramid.stable_text()
        ]);
        array.job = Some(format!("{}\0{image}", self.array.job.as_deref().unwrap_or_default()));

        let level_of = |number: usize, whole: &[u64]| {
            // The centre of a box of pixels, relative to the centre of its first pixel.
            let middle =
                |axis: usize| self.translation[axis] + (whole[axis] - 1) as f64 / 2.0 * self.scale[axis];
            Level {
                path: number.to_string(),
                scale: self.scale.iter().zip(whole).map(|(size, &factor)| size * factor as f64).collect(),
                translation: (0..axes).map(middle).collect(),
            }
        };
        let mut whole = vec![1; axes];
        let mut levels =
            vec![LevelSpec { level: level_of(0, &whole), array: array.clone(), factors: whole.clone() }];
        while let Some(factors) = self.factors(&array.shape, levels.len()) {
            whole.iter_mut().zip(&factors).for_each(|(whole, factor)| *whole = whole.saturating_mul(*factor));
            array.shape = reduced(&array.shape, &factors);
            let chunk: Vec<u64> =
                self.array.chunk_shape.iter().zip(&array.shape).map(|(n, most)| *n.min(most)).collect();
            // The smallest number of whole chunks that holds the level.
            let shard = |((shard, chunk), extent): ((&u64, &u64), &u64)| {
                shard.min(extent).checked_next_multiple_of(*chunk).unwrap_or(*shard)
            };
            let shards = self.array.shard_shape.as_ref();
            array.shard_shape =
                shards.map(|shards| shards.iter().zip(&chunk).zip(&array.shape).map(shard).collect());
            array.chunk_shape = chunk;
            levels.push(LevelSpec { level: level_of(levels.len(), &whole), array: array.clone(), factors });
        }
        levels
    }

    /// Returns the factor by which each axis becomes shorter in the next level, or `None` if no level follows the first `levels`.
    fn factors(&self, shape: &[u64], levels: usize) -> Option<Vec<u64>> {
        let spatial: Vec<usize> = axis::spatial(&self.axes).collect();
        let (stack, planes) = spatial.split_at(spatial.len() - 2);
        let longest = planes.iter().map(|&axis| shape[axis]).max().unwrap_or(0);
        let wanted = match self.pyramid {
            Pyramid::None => false,
            Pyramid::UntilWithin(most) => longest > most,
            Pyramid::Levels(count) => levels < count,
        };
        let mut factors = vec![1; shape.len()];
        let stack = stack.iter().filter(|&&axis| shape[axis] >= longest.div_ceil(STACK));
        planes.iter().chain(stack).for_each(|&axis| factors[axis] = 2);
        factors.iter_mut().zip(shape).filter(|(_, extent)| **extent == 1).for_each(|(factor, _)| *factor = 1);
        (wanted && factors.contains(&2)).then_some(factors)
    }

    pub(crate) fn attributes(&self) -> Attributes {
        let levels = self.levels();
        let dataset = |level: &Level| {
            let mut transformations = vec![json!({ "type": "scale", "scale": level.scale })];
            if level.translation.iter().any(|&moved| moved != 0.0) {
                transformations.push(json!({ "type": "translation", "translation": level.translation }));
            }
            json!({ "path": level.path, "coordinateTransformations": transformations })
        };
        let mut image = json!({
            "axes": self.axes.iter().map(axis_json).collect::<Vec<_>>(),
            "datasets": levels.iter().map(|LevelSpec { level, .. }| dataset(level)).collect::<Vec<_>>(),
        });
        if let Some(name) = &self.name {
            image["name"] = json!(name);
        }
        if levels.len() > 1 {
            image["type"] = json!("mean");
        }
        let mut ome = Attributes::new();
        // `omero` has a version of its own only in OME-Zarr 0.4.
        let mut omero = self.omero.clone();
        omero.as_mut().map(|omero| omero.remove("version"));
        if self.array.format == ZarrFormat::V2 {
            image["version"] = json!("0.4");
            omero.as_mut().map(|omero| omero.insert("version".to_owned(), json!("0.4")));
        } else {
            ome.insert("version".to_owned(), json!("0.5"));
        }
        ome.insert("multiscales".to_owned(), json!([image]));
        ome.extend(omero.map(|omero| ("omero".to_owned(), Value::Object(omero))));
        if self.array.format == ZarrFormat::V2 {
            return ome;
        }
        std::iter::once(("ome".to_owned(), Value::Object(ome))).collect()
    }
}

fn axis_json(axis: &Axis) -> Value {
    let mut json = json!({ "name": axis.name });
    for (key, value) in [("type", axis.kind_name()), ("unit", axis.unit.as_deref())] {
        if let Some(value) = value {
            json[key] = json!(value);
        }
    }
    json
}
