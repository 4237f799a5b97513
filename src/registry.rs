//! Every kernel, and what must hold for all of them, checked without a device.

#[cfg(feature = "cuda")]
use crate::kernel::{Kernel, KernelDef};

/// One line for each kernel, with `$of` around it.
macro_rules! each_kernel {
    ($of:path) => {
        vec![
            $of(&crate::genotype::dosage::DOSAGE),
            $of(&crate::linalg::matmul::MATMUL),
            $of(&crate::random::RANDOM),
            $of(&crate::linalg::reduce::REDUCE),
            $of(&crate::linalg::scale_columns::SCALE_COLUMNS),
            $of(&crate::genotype::standardize::STANDARDIZE),
        ]
    };
}

/// Every kernel.
#[cfg(feature = "cuda")]
pub(crate) fn kernels() -> Vec<&'static KernelDef> {
    const fn def<P>(kernel: &'static Kernel<P>) -> &'static KernelDef {
        &kernel.def
    }
    each_kernel!(def)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Debug, fs, path::PathBuf};

    use bytemuck::Pod;

    use crate::kernel::{Kernel, KernelDef, Spec};

    /// A kernel with the names of its parameters, in order.
    struct Registered {
        def: &'static KernelDef,
        fields: Vec<String>,
    }

    fn registered<P: Pod + Debug>(kernel: &'static Kernel<P>) -> Registered {
        // Derived: `Params { m: 0, n: 0 }`.
        let text = format!("{:?}", P::zeroed());
        let inner = text.split_once('{').map_or("", |(_, inner)| inner).trim_end_matches('}');
        let fields = inner.split(',').map(|field| field.split(':').next().unwrap_or_default().trim().into());
        Registered { def: &kernel.def, fields: fields.collect() }
    }

    fn kernels() -> Vec<Registered> {
        each_kernel!(registered)
    }

    #[test]
    fn every_file_is_registered() {
        for (folder, end) in [("shaders", ".wgsl"), ("cuda", ".cu")] {
            let files: BTreeSet<String> =
                fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .filter(|name| name.ends_with(end) && name != "common.wgsl")
                    .collect();
            let registered: BTreeSet<String> =
                kernels().iter().map(|kernel| format!("{}{end}", kernel.def.name)).collect();
            assert_eq!(files, registered);
        }
    }

    #[test]
    fn every_file_opens_with_its_contract() {
        let starts = ["// ", "// Grid: ", "// Bindings: ", "// Constants: ", ""];
        for Registered { def, .. } in kernels() {
            for (line, start) in def.wgsl.lines().zip(starts).chain(def.cuda.lines().zip(starts)) {
                let fits = if start.is_empty() { line.is_empty() } else { line.starts_with(start) };
                assert!(fits, "{}: {line:?} should start with {start:?}", def.name);
            }
        }
    }

    #[test]
    fn specs_name_the_same_constants_in_the_same_order() {
        for Registered { def, .. } in kernels() {
            let names = |spec: Spec<'_>| spec.iter().map(|&(name, _)| name).collect::<Vec<_>>();
            let specs = (def.specs)();
            assert!(specs.iter().all(|spec| names(spec) == names(&specs[0])), "{}", def.name);
            let unique: BTreeSet<&Vec<_>> = specs.iter().collect();
            assert_eq!(unique.len(), specs.len(), "{}: a spec stands twice", def.name);
        }
    }

    #[test]
    fn params_are_fields_of_one_word() {
        for Registered { def, fields } in kernels() {
            assert_eq!(4 * fields.len(), def.params, "{}: {fields:?}", def.name);
        }
    }

    /// What `Modules::launch` relies on: CUDA itself checks no argument.
    #[cfg(feature = "cuda")]
    mod cuda {
        use super::*;
        use crate::{driver::cuda::source, kernel::Access};

        /// The text between the first `open` and the next `close` after it.
        fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
            Some(text.split_once(open)?.1.split_once(close)?.0)
        }

        #[test]
        fn params_are_the_same_fields() {
            for Registered { def, fields } in kernels() {
                let members = between(def.cuda, "\nstruct Params {\n", "\n};").expect(def.name);
                let names: Vec<_> = members
                    .lines()
                    .map(|line| line.split("//").next().unwrap_or_default().trim())
                    .filter(|line| !line.is_empty())
                    .map(|line| {
                        let (word, name) = line.trim_end_matches(';').split_once(' ').expect(line);
                        assert!(
                            matches!(word, "u32" | "float"),
                            "{}: {line} should be u32 or float",
                            def.name
                        );
                        name.to_owned()
                    })
                    .collect();
                assert_eq!(names, fields, "{}: params", def.name);
            }
        }

        #[test]
        fn arguments_are_the_access_list_then_the_params() {
            for Registered { def, .. } in kernels() {
                let entry = format!("\nKERNEL({}, ", def.name);
                assert_eq!(def.cuda.matches("\nKERNEL(").count(), 1, "{}: one entry point", def.name);
                let after = def.cuda.split_once(&entry).expect(def.name).1;
                let arguments: Vec<_> =
                    between(after, ")(", ")").expect(def.name).split(',').map(str::trim).collect();
                assert_eq!(arguments.len(), def.access.len() + 1, "{}: {arguments:?}", def.name);
                assert_eq!(arguments[def.access.len()], "Params params", "{}", def.name);
                for (argument, access) in arguments.iter().zip(def.access) {
                    assert!(argument.contains('*'), "{}: {argument} should be a pointer", def.name);
                    assert_eq!(
                        argument.starts_with("const "),
                        *access == Access::Read,
                        "{}: {argument}",
                        def.name
                    );
                }
                assert!(def.cuda.ends_with(&format!("\nEXPORT({})\n", def.name)), "{}: EXPORT", def.name);
            }
        }

        #[test]
        fn every_constant_is_declared() {
            for Registered { def, .. } in kernels() {
                for spec in (def.specs)() {
                    source(def, &spec).unwrap();
                }
            }
        }
    }

    #[cfg(feature = "wgpu")]
    mod wgsl {
        use wgpu::naga::{
            AddressSpace, Module, Scalar, ScalarKind, ShaderStage, StorageAccess, TypeInner,
            front::wgsl,
            proc::Layouter,
            valid::{Capabilities, ValidationFlags, Validator},
        };

        use super::*;
        use crate::{Error, driver::wgpu::source, kernel::Access, linalg::matmul};

        fn module(def: &'static KernelDef, spec: Spec<'_>) -> Module {
            let source = source(def, spec).unwrap();
            let module = wgsl::parse_str(&source)
                .unwrap_or_else(|error| panic!("{}: {}", def.name, error.emit_to_string(&source)));
            // No capability: no optional feature of a device.
            let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
            validator
                .validate(&module)
                .unwrap_or_else(|error| panic!("{}: {}", def.name, error.emit_to_string(&source)));
            module
        }

        /// What the Rust side says: one storage buffer for each argument, then the parameters.
        fn check_bindings(kernel: &Registered, module: &Module) {
            let Registered { def, fields } = kernel;
            let mut bindings: Vec<_> = module
                .global_variables
                .iter()
                .filter_map(|(_, variable)| Some((variable.binding?, variable)))
                .collect();
            bindings.sort_by_key(|(binding, _)| *binding);
            assert_eq!(bindings.len(), def.access.len() + 1, "{}: number of bindings", def.name);
            for (i, (binding, variable)) in bindings.iter().enumerate() {
                assert_eq!((binding.group, binding.binding as usize), (0, i), "{}", def.name);
                let Some(access) = def.access.get(i) else {
                    assert_eq!(variable.space, AddressSpace::Uniform, "{}: params come last", def.name);
                    check_params(def, fields, &module.types[variable.ty].inner);
                    continue;
                };
                let writable = StorageAccess::LOAD | StorageAccess::STORE;
                let expected = if *access == Access::Read { StorageAccess::LOAD } else { writable };
                assert_eq!(variable.space, AddressSpace::Storage { access: expected }, "{}: {i}", def.name);
            }
        }

        fn check_params(def: &KernelDef, fields: &[String], params: &TypeInner) {
            let TypeInner::Struct { members, span } = params else {
                panic!("{}: params should be a struct", def.name)
            };
            assert_eq!(*span as usize, def.params, "{}: bytes of params", def.name);
            let names: Vec<_> = members.iter().map(|member| member.name.clone().unwrap()).collect();
            assert_eq!(&names, fields, "{}: params", def.name);
        }

        /// WebGPU's default limits, and what the Rust side says about workgroups.
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
            if let Some(tile) = constant("TILE") {
                assert_eq!(tile * tile % (x * y * z), 0, "{}: a tile is shared out evenly", def.name);
            }
            let mut layouter = Layouter::default();
            layouter.update(module.to_ctx()).unwrap();
            let shared = module.global_variables.iter().filter(|(_, v)| v.space == AddressSpace::WorkGroup);
            let bytes: u32 = shared.map(|(_, variable)| layouter[variable.ty].size).sum();
            let room = match constant("TILE") {
                Some(matmul::LARGE_TILE) => matmul::LARGE_TILE_MEMORY,
                _ => limits.max_compute_workgroup_storage_size,
            };
            assert!(bytes <= room, "{}: {bytes} bytes shared", def.name);
            assert!(def.access.len() <= limits.max_storage_buffers_per_shader_stage as usize, "{}", def.name);
        }

        #[test]
        fn every_spec_of_every_kernel_is_valid_and_fits() {
            for kernel in kernels() {
                for spec in (kernel.def.specs)() {
                    let module = module(kernel.def, &spec);
                    check_bindings(&kernel, &module);
                    check_limits(kernel.def, &spec, &module);
                }
            }
        }

        #[test]
        fn params_are_words() {
            for Registered { def, .. } in kernels() {
                let module = module(def, &(def.specs)()[0]);
                let (_, params) = module
                    .global_variables
                    .iter()
                    .find(|(_, variable)| variable.space == AddressSpace::Uniform)
                    .unwrap();
                let TypeInner::Struct { members, .. } = &module.types[params.ty].inner else {
                    unreachable!()
                };
                for member in members {
                    let word = matches!(
                        module.types[member.ty].inner,
                        TypeInner::Scalar(Scalar { kind: ScalarKind::Uint | ScalarKind::Float, width: 4 })
                    );
                    assert!(word, "{}: {:?} should be u32 or f32", def.name, member.name);
                }
            }
        }

        #[test]
        fn unknown_constants_are_errors() {
            let random = &crate::random::RANDOM.def;
            assert!(source(random, &[("WG", 64)]).unwrap().contains("const WG: u32 = 64u;"));
            let Err(Error::Compile { kernel, log, .. }) = source(random, &[("WIDTH", 64)]) else { panic!() };
            assert_eq!((kernel, &*log), ("random", "constant `WIDTH` is not declared exactly once"));
        }
    }
}
