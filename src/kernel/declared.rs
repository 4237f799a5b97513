//! Declarations that are inserted into the CUDA and WGSL sources: parameters, and codes of enum variants.

/// The name of an enum, and its variants with their codes.
pub(crate) type Codes = (&'static str, &'static [(&'static str, u32)]);

/// The declarations of a kernel.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "the cpu has no sources"))]
pub(crate) struct Declared {
    /// The names and types of the fields of `Params`.
    pub(crate) params: &'static [(&'static str, &'static str)],
    pub(crate) codes: &'static [Codes],
}

/// Returns the name of a code's constant: `X_SQUARE` for `XSquare`.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn constant(name: &str) -> String {
    let mut constant = String::new();
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        let starts_word = letter.is_uppercase() && letters.peek().is_some_and(|next| next.is_lowercase());
        if starts_word && !constant.is_empty() {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}

impl Declared {
    /// Returns one line of CUDA.
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(&self) -> String {
        let mut text = "struct Params {".to_owned();
        for &(name, dtype) in self.params {
            text += &format!(" {} {name};", if dtype == "f32" { "float" } else { dtype });
        }
        for (name, codes) in self.codes {
            text += &format!(" }}; enum {name} : u32 {{");
            for (code, number) in *codes {
                text += &format!(" {} = {number},", constant(code));
            }
        }
        text + " };"
    }

    /// Returns the declarations as lines of WGSL, in which declarations may be in any order.
    #[cfg(feature = "wgpu")]
    pub(crate) fn wgsl(&self) -> String {
        let mut text = "struct Params {".to_owned();
        for (name, dtype) in self.params {
            text += &format!(" {name}: {dtype},");
        }
        text += " }\n";
        for (code, number) in self.codes.iter().flat_map(|(_, codes)| *codes) {
            text += &format!("const {}: u32 = {number}u;\n", constant(code));
        }
        text
    }
}

/// Declares the parameters of a kernel, with fields of u32 and f32.
macro_rules! params {
    ($(#[$attribute:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ident),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        $vis struct $name { $($(#[$doc])* $field_vis $field: $type),+ }

        impl $name {
            /// The names and types of the fields.
            pub(crate) const FIELDS: &[(&'static str, &'static str)] = &[$((stringify!($field), stringify!($type))),+];
        }
    };
}

/// Declares an enum whose codes select variants in a kernel.
macro_rules! codes {
    ($(#[$attribute:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $code:ident $(= $number:literal)?),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        $vis enum $name { $($(#[$doc])* $code $(= $number)?),+ }

        impl $name {
            /// All variants in the order of their codes, which have no gaps.
            const ALL: &[Self] = &[$(Self::$code),+];
            pub(crate) const CODES: $crate::kernel::Codes =
                (stringify!($name), &[$((stringify!($code), Self::$code as u32)),+]);

            /// Returns the variant with this code.
            pub(crate) const fn from_code(code: u32) -> Self {
                Self::ALL[(code - Self::ALL[0] as u32) as usize]
            }
        }

        const _: () = {
            let mut i = 1;
            while i < $name::ALL.len() {
                assert!($name::ALL[i] as u32 == $name::ALL[i - 1] as u32 + 1, "codes should have no gaps");
                i += 1;
            }
        };
    };
}
pub(crate) use {codes, params};

#[cfg(all(test, feature = "cuda", feature = "wgpu"))]
mod tests {
    use crate::{DType, kernels::reduce_axis::REDUCE_AXIS};

    #[test]
    fn both_languages_have_what_rust_has() {
        let declared = REDUCE_AXIS.def.declared.unwrap();
        let (cuda, wgsl) = (declared.cuda(), declared.wgsl());
        for part in
            ["struct Params { u32 outer;", "float count_rest; };", "enum Op : u32 { SUM = 0, MEAN = 1,"]
        {
            assert!(cuda.contains(part) && !cuda.contains('\n'), "{cuda}");
        }
        for part in ["struct Params { outer: u32,", "count_rest: f32, }\n", "\nconst MEAN: u32 = 1u;\n"] {
            assert!(wgsl.contains(part), "{wgsl}");
        }
        assert_eq!(super::constant("XSquare"), "X_SQUARE");
    }

    /// All CUDA sources share one header file, so its codes must match `DType`.
    #[test]
    fn the_header_has_the_codes_of_types() {
        let codes = DType::ALL.map(|dtype| format!("{dtype:?} = {}", dtype.code())).join(", ");
        assert!(include_str!("../../cuda/dev.cuh").contains(&format!("\nenum DType : u32 {{ {codes} }};\n")));
    }
}
