//! Tests of rules for all kernels, without a device.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::KERNELS;
use crate::{
    kernel::{KernelDef, Spec},
    random::philox,
};

/// Returns packed rows of codes up to `most`, of which `missing` in 256 are missing. With `rare`, two rows in three hold few codes.
pub(super) fn random_codes([rows, words]: [usize; 2], missing: u32, rare: bool, most: u32) -> Vec<u32> {
    let absent = |place: usize, chance: u32| {
        rare && !(place / (16 * words)).is_multiple_of(3) && !chance.is_multiple_of(64)
    };
    let code = |place: usize| match philox([1, missing], place as u64) {
        [.., chance] if absent(place, chance) => 0,
        [chance, ..] if chance % 256 < missing => 3,
        [_, code, ..] => code % (most + 1),
    };
    (0..rows * words).map(|i| (0..16).map(|j| code(16 * i + j) << (2 * j)).sum()).collect()
}

/// Returns the kernels that have a shader: all but the product in f64.
fn shaders() -> Vec<&'static KernelDef> {
    KERNELS.iter().copied().filter(|kernel| !kernel.wgsl.is_empty()).collect()
}

#[test]
fn every_file_is_registered() {
    for (folder, ending, kernels) in [("shaders", ".wgsl", shaders()), ("cuda", ".cu", KERNELS.to_vec())] {
        let entries = |folder: &Path| -> Vec<(String, PathBuf)> {
            let named = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), entry.path());
            fs::read_dir(folder).unwrap().map(|entry| named(entry.unwrap())).collect()
        };
        let (folders, files): (Vec<_>, Vec<_>) = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
            .into_iter()
            .partition(|(_, path)| path.is_dir());
        for (name, folder) in folders {
            let kernel = kernels.iter().find(|kernel| kernel.name == name);
            let source = kernel.map_or("", |kernel| if ending == ".cu" { kernel.cuda } else { kernel.wgsl });
            for (_, part) in entries(&folder) {
                assert!(source.contains(&fs::read_to_string(&part).unwrap()), "{}", part.display());
            }
        }
        let files: BTreeSet<String> = files
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| name.ends_with(ending) && name != "common.wgsl")
            .collect();
        let registered: BTreeSet<String> =
            kernels.iter().map(|kernel| format!("{}{ending}", kernel.name)).collect();
        assert_eq!(files, registered);
    }
}

/// Checks the four lines at the start of each source; in CUDA, the reasons that the hardware gives come next.
#[test]
fn every_file_opens_with_its_contract() {
    for &def in KERNELS {
        let starts = ["// ", "// Grid: ", "// Bindings: ", "// Constants: "];
        for (ending, source) in [("wgsl", def.wgsl), ("cu", def.cuda)] {
            for (line, start) in source.lines().zip(starts) {
                assert!(
                    line.starts_with(start),
                    "{}.{ending}: {line:?} should start with {start:?}",
                    def.name
                );
            }
        }
        let rest = |source: &'static str| source.lines().skip(starts.len());
        assert!(
            rest(def.wgsl).next().is_none_or(str::is_empty),
            "{}.wgsl: the line after the contract",
            def.name
        );
        let reasons: Vec<_> = rest(def.cuda).take_while(|line| !line.is_empty()).collect();
        assert!(reasons.iter().all(|line| line.starts_with("// ")), "{}.cu: {reasons:?}", def.name);
        assert!(reasons.first().is_none_or(|line| line.starts_with("// Hardware: ")), "{}.cu", def.name);
    }
}

#[test]
fn sources_have_the_same_contract() {
    for def in shaders() {
        let words = |line: &str| line.replace("invocation", "thread").replace("workgroup", "block");
        for (wgsl, cuda) in def.wgsl.lines().zip(def.cuda.lines()).take(3) {
            assert_eq!(words(wgsl), words(cuda), "{}", def.name);
        }
        for source in [def.wgsl, def.cuda] {
            let constants = source.lines().nth(3).unwrap();
            for (name, _) in &(def.specs)()[0] {
                assert!(constants.contains(name), "{}: {name} in {constants:?}", def.name);
            }
        }
    }
}

#[test]
fn specs_name_the_same_constants_in_the_same_order() {
    for &def in KERNELS {
        let names = |spec: Spec<'_>| spec.iter().map(|&(name, _)| name).collect::<Vec<_>>();
        let specs = (def.specs)();
        assert!(specs.iter().all(|spec| names(spec) == names(&specs[0])), "{}", def.name);
        let unique: BTreeSet<&Vec<_>> = specs.iter().collect();
        assert_eq!(unique.len(), specs.len(), "{}: a spec stands twice", def.name);
    }
}

/// Limits the number of programs, of which each spec is one: NVIDIA's compilers compile it for every generation of
/// devices, it ships as PTX, and users wait for it at its first use. Choices that cost nothing at run time, such as most
/// element types, are parameters instead. The first 18 kernels may have 100 programs together, and each further one 6.
#[test]
fn programs_are_few() {
    let counts: Vec<_> = KERNELS.iter().map(|kernel| (kernel.name, (kernel.specs)().len())).collect();
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    assert!(all <= 100 + 6 * counts.len().saturating_sub(18), "{all} programs: {counts:?}");
}

/// Fields of one word have the same offsets in all languages.
#[test]
fn params_are_fields_of_one_word() {
    for &def in KERNELS {
        let fields = def.declared.unwrap().params;
        assert!(fields.iter().all(|(_, of)| ["u32", "f32"].contains(of)), "{}: {fields:?}", def.name);
    }
}

/// Checks for mistakes that a compiler does not find; other tests check that the sources compile.
mod cuda {
    use super::*;
    use crate::kernel::Access;

    /// Returns the source without comments.
    fn code(def: &KernelDef) -> String {
        let without_comment = |line: &'static str| line.split("//").next().unwrap_or_default();
        def.cuda.lines().map(without_comment).collect::<Vec<_>>().join("\n")
    }

    /// Returns the text between two texts, the first of which occurs once.
    fn between<'a>(def: &KernelDef, code: &'a str, before: &str, after: &str) -> &'a str {
        assert_eq!(code.matches(before).count(), 1, "{}: {before:?}", def.name);
        let (_, rest) = code.split_once(before).unwrap();
        rest.split_once(after).unwrap().0
    }

    #[test]
    fn constants_are_declared_once_with_the_same_default() {
        for def in shaders() {
            for (name, _) in &(def.specs)()[0] {
                let value = between(def, def.cuda, &format!("\nconstexpr u32 {name} = "), ";\n");
                let declaration = format!("\nconst {name}: u32 = {value}u;\n");
                assert!(def.wgsl.contains(&declaration), "{}: {name} = {value}", def.name);
            }
        }
    }

    #[test]
    fn arguments_are_those_of_the_launch() {
        for &def in KERNELS {
            let code = code(def);
            let kernel = between(def, &code, &format!("\nKERNEL({}, ", def.name), " {\n");
            let (_, arguments) = kernel.split_once(")(").unwrap();
            let mut arguments: Vec<_> = arguments.trim_end_matches(')').split(", ").collect();
            assert_eq!(arguments.pop(), Some("Params params"), "{}", def.name);
            assert_eq!(arguments.len(), def.bindings.len(), "{}: {arguments:?}", def.name);
            for (argument, binding) in arguments.iter().zip(def.bindings) {
                let reads = argument.starts_with("const ");
                assert!(argument.contains("* __restrict__ "), "{}: {argument}", def.name);
                assert_eq!(reads, binding.access == Access::Read, "{}: {argument}", def.name);
            }
        }
    }

    /// Checks this so that another vendor's header can replace `dev.cuh`.
    #[test]
    fn only_the_header_knows_the_hardware() {
        for &def in KERNELS {
            let code = code(def);
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            for word in code.split(|c| !is_word(c)) {
                let barrier = word == "__syncthreads" || word == "__restrict__";
                assert!(barrier || !word.starts_with("__"), "{}: {word}", def.name);
                assert!(!["asm", "32", "0x1f", "31", "warpSize"].contains(&word), "{}: {word}", def.name);
            }
            // The parameters replace the empty line.
            assert!(def.cuda.contains("\n#include \"dev.cuh\"\n\n"), "{}", def.name);
            assert!(def.cuda.ends_with(&format!("\nEXPORT({})\n", def.name)), "{}", def.name);
        }
    }
}

#[cfg(all(feature = "wgpu", target_os = "linux"))]
mod emitted;

#[cfg(feature = "wgpu")]
mod wgsl {
    use wgpu::naga::{
        AddressSpace, Module, ShaderStage, StorageAccess,
        front::wgsl,
        proc::Layouter,
        valid::{Capabilities, ValidationFlags, Validator},
    };

    use super::*;
    use crate::{
        Error,
        driver::wgpu::{STORAGE_BUFFERS, source},
        kernel::Access,
        kernels::{correlate, matmul},
    };

    fn module(def: &'static KernelDef, spec: Spec<'_>) -> Module {
        let source = source(def, spec, wgpu::Backend::Vulkan).unwrap();
        let module = wgsl::parse_str(&source)
            .unwrap_or_else(|error| panic!("{}: {}", def.name, error.emit_to_string(&source)));
        // No capabilities are set, so no optional feature of a device is needed.
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
        validator
            .validate(&module)
            .unwrap_or_else(|error| panic!("{}: {}", def.name, error.emit_to_string(&source)));
        module
    }

    /// Checks that the bindings are those of the Rust side: one storage buffer for each argument, then the parameters.
    fn check_bindings(def: &KernelDef, module: &Module) {
        let mut bindings: Vec<_> = module
            .global_variables
            .iter()
            .filter_map(|(_, variable)| Some((variable.binding?, variable)))
            .collect();
        bindings.sort_by_key(|(binding, _)| *binding);
        assert_eq!(bindings.len(), def.bindings.len() + 1, "{}: number of bindings", def.name);
        for (i, (binding, variable)) in bindings.iter().enumerate() {
            assert_eq!((binding.group, binding.binding as usize), (0, i), "{}", def.name);
            let Some(argument) = def.bindings.get(i) else {
                assert_eq!(variable.space, AddressSpace::Uniform, "{}: params come last", def.name);
                continue;
            };
            let writable = StorageAccess::LOAD | StorageAccess::STORE;
            let expected = if argument.access == Access::Read { StorageAccess::LOAD } else { writable };
            assert_eq!(variable.space, AddressSpace::Storage { access: expected }, "{}: {i}", def.name);
        }
    }

    /// Checks WebGPU's default limits, and that workgroups are as the Rust side says.
    fn check_limits(def: &KernelDef, spec: Spec<'_>, module: &Module) {
        let [entry] = &module.entry_points[..] else { panic!("{}: one entry point", def.name) };
        assert_eq!((entry.name.as_str(), entry.stage), (def.name, ShaderStage::Compute));
        let limits = wgpu::Limits::downlevel_defaults();
        let [x, y, z] = entry.workgroup_size;
        assert!(x * y * z <= limits.max_compute_invocations_per_workgroup, "{}", def.name);
        assert!(z <= limits.max_compute_workgroup_size_z, "{}", def.name);
        let constant = |name| spec.iter().find(|(n, _)| *n == name).map(|&(_, value)| value);
        if let Some(size) = constant("WG") {
            assert_eq!(entry.workgroup_size, [size, 1, 1], "{}: workgroup size", def.name);
        }
        let square = def.wgsl.lines().nth(1).is_some_and(|grid| grid.contains("TILE x TILE"));
        if let Some(tile) = constant("TILE").filter(|_| square) {
            assert_eq!(tile * tile % (x * y * z), 0, "{}: a tile is shared out evenly", def.name);
        }
        let mut layouter = Layouter::default();
        layouter.update(module.to_ctx()).unwrap();
        let shared = module.global_variables.iter().filter(|(_, v)| v.space == AddressSpace::WorkGroup);
        let bytes: u32 = shared.map(|(_, variable)| layouter[variable.ty].size).sum();
        // Larger tiles and rooms are for devices that have the memory.
        let room = match (constant("TILE"), constant("ROOM")) {
            (Some(matmul::LARGE_TILE), _) => matmul::LARGE_TILE_MEMORY,
            (_, Some(room)) if room != correlate::room(false, 0) => 4 * correlate::room(false, u32::MAX),
            _ => limits.max_compute_workgroup_storage_size,
        };
        assert!(bytes <= room, "{}: {bytes} bytes shared", def.name);
        assert!(def.bindings.len() <= STORAGE_BUFFERS as usize, "{}", def.name);
    }

    #[test]
    fn every_spec_of_every_kernel_is_valid_and_fits() {
        for kernel in shaders() {
            for spec in (kernel.specs)() {
                let module = module(kernel, &spec);
                check_bindings(kernel, &module);
                check_limits(kernel, &spec, &module);
            }
        }
    }

    #[test]
    fn unknown_constants_are_errors() {
        let random = &crate::kernels::random::RANDOM.def;
        let source = |spec: Spec<'_>| source(random, spec, wgpu::Backend::Vulkan);
        assert!(source(&[("WG", 64)]).unwrap().contains("const WG: u32 = 64u;"));
        let Err(Error::Compile { kernel, log, .. }) = source(&[("WIDTH", 64)]) else { panic!() };
        assert_eq!((kernel, &*log), ("random", "constant `WIDTH` is not declared exactly once"));
    }
}
