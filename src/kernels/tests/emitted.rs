//! Checks every kernel as wgpu's backends emit it, with compilers other than wgpu's.
//! MSL is compiled by a C++ compiler with a stub of Metal's library; HLSL is searched for constructs that DX12's
//! compilers refuse; SPIR-V is checked by Khronos' validator. Each is tested with and without wgpu's bounds checks.

use std::{
    collections::HashSet,
    env, fs,
    process::{Command, Stdio},
};

use naga::{
    AddressSpace, Module, ShaderStage, StorageAccess,
    back::{hlsl, msl, spv},
    front::wgsl,
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ModuleInfo, ValidationFlags, Validator},
};

use super::shaders;
use crate::driver::wgpu::source;

/// A kernel with one set of constants.
struct Program {
    name: String,
    entry: &'static str,
    module: Module,
    info: ModuleInfo,
}

impl Program {
    /// Returns all programs for a backend.
    fn all(backend: wgpu::Backend) -> Vec<Self> {
        let specs = shaders()
            .into_iter()
            .flat_map(|kernel| (kernel.specs)().into_iter().map(move |spec| (kernel, spec)));
        let made = specs.map(|(kernel, spec)| {
            let module = wgsl::parse_str(&source(kernel, &spec, backend).unwrap()).unwrap();
            let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
            let info = validator.validate(&module).unwrap();
            Self { name: format!("{} {spec:?}", kernel.name), entry: kernel.name, module, info }
        });
        made.collect()
    }

    /// Returns the bindings of the arguments in order; for each, if it is a uniform, and if it is written.
    fn arguments(&self) -> Vec<(naga::ResourceBinding, bool, bool)> {
        let mut arguments: Vec<_> = self
            .module
            .global_variables
            .iter()
            .filter_map(|(_, variable)| {
                let written = matches!(variable.space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE));
                Some((variable.binding?, variable.space == AddressSpace::Uniform, written))
            })
            .collect();
        arguments.sort_by_key(|(binding, ..)| binding.binding);
        arguments
    }

    fn msl(&self, checked: bool, lang_version: (u8, u8)) -> String {
        let mut resources = msl::EntryPointResources { sizes_buffer: Some(30), ..Default::default() };
        for ((binding, _, mutable), place) in self.arguments().into_iter().zip(0..) {
            resources
                .resources
                .insert(binding, msl::BindTarget { buffer: Some(place), mutable, ..Default::default() });
        }
        let options = msl::Options {
            lang_version,
            per_entry_point_map: [(self.entry.to_owned(), resources)].into(),
            fake_missing_bindings: false,
            bounds_check_policies: policies(checked),
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: checked,
            ..Default::default()
        };
        let pipeline = msl::PipelineOptions {
            entry_point: Some((ShaderStage::Compute, self.entry.to_owned())),
            ..Default::default()
        };
        msl::write_string(&self.module, &self.info, &options, &pipeline).unwrap().0
    }

    fn hlsl(&self, checked: bool, shader_model: hlsl::ShaderModel) -> String {
        // Registers are counted separately: uniforms, buffers that are written, buffers that are read.
        let mut next = [0; 3];
        let target = |register, space| hlsl::BindTarget { space, register, ..Default::default() };
        let mut binding_map = hlsl::BindingMap::default();
        for (binding, uniform, written) in self.arguments() {
            let next = &mut next[if uniform { 0 } else { 1 + usize::from(written) }];
            binding_map.insert(binding, target(*next, 0));
            *next += 1;
        }
        let options = hlsl::Options {
            shader_model,
            binding_map,
            fake_missing_bindings: false,
            special_constants_binding: Some(target(0, 1)),
            zero_initialize_workgroup_memory: false,
            restrict_indexing: checked,
            force_loop_bounding: checked,
            ..Default::default()
        };
        let pipeline =
            hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, self.entry.to_owned())) };
        let mut text = String::new();
        hlsl::Writer::new(&mut text, &options, &pipeline).write(&self.module, &self.info, None).unwrap();
        text
    }

    /// Emits SPIR-V, for devices with byte products if `dots`: these need capabilities that not every device has.
    fn spirv(&self, checked: bool, dots: bool) -> Vec<u8> {
        let options = spv::Options {
            lang_version: (1, 3),
            capabilities: (!dots).then(|| [spv::Capability::Shader].into_iter().collect()),
            bounds_check_policies: policies(checked),
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: checked,
            ..Default::default()
        };
        let pipeline =
            spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: self.entry.to_owned() };
        let words = spv::write_vec(&self.module, &self.info, &options, Some(&pipeline)).unwrap();
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }
}

fn policies(checked: bool) -> BoundsCheckPolicies {
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    BoundsCheckPolicies {
        index: policy,
        buffer: policy,
        image_load: policy,
        binding_array: BoundsCheckPolicy::Unchecked,
    }
}

/// Compiles MSL as C++: `tests/metal` stubs Metal's library and attributes. Before version 2.1, naga emits byte products in another way.
#[test]
fn metal() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Program::all(wgpu::Backend::Metal);
    // There is one file for each variant, so that several cores share the work.
    let ways = [(true, (3, 2)), (false, (3, 2)), (true, (2, 0)), (false, (2, 0))];
    let compilers = ways.map(|(checked, version)| {
        let mut text = String::from("#include <metal_stdlib>\n");
        for (program, number) in programs.iter().zip(0..) {
            let msl = program
                .msl(checked, version)
                .replace("#include <metal_stdlib>", "")
                .replace("#include <simd/simd.h>", "");
            text += &format!("namespace program_{number} {{ // {}\n{msl}\n}}\n", program.name);
        }
        let file = folder.path().join(format!("{checked}_{}.cpp", version.0));
        fs::write(&file, text).unwrap();
        let compiler = env::var("CXX").unwrap_or_else(|_| "c++".into());
        let stub = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/metal");
        let options = ["-std=c++20", "-fsyntax-only", "-fmax-errors=20", "-w", "-I", stub];
        Command::new(compiler).args(options).arg(file).stderr(Stdio::piped()).spawn().unwrap()
    });
    for compiler in compilers {
        let output = compiler.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Checks HLSL for both compilers of DX12, of which FXC supports shader model 5.1 and no later one.
#[test]
fn dx12() {
    for program in Program::all(wgpu::Backend::Dx12) {
        for checked in [true, false] {
            for model in [hlsl::ShaderModel::V5_1, hlsl::ShaderModel::V6_6] {
                let text = program.hlsl(checked, model);
                assert_eq!(twice_declared(&text), Vec::<String>::new(), "{}, {model:?}", program.name);
                // DXC takes the literal that naga emits here for a 64-bit one, and makes an invalid program (DirectXShaderCompiler#7400).
                assert!(!text.contains("8packed("), "{}, {model:?}", program.name);
            }
        }
    }
}

/// Returns the names that a text declares twice in the same scope; the parameters of a function belong to its scope. A
/// declaration is a type, a name, perhaps an extent, and an initial value or an end.
fn twice_declared(text: &str) -> Vec<String> {
    let is_word = |word: &str| word.chars().all(|c| c.is_alphanumeric() || c == '_');
    let declared = |text: &str| -> Option<String> {
        let words: Vec<_> = text.split(['=', '[', ':']).next()?.split_whitespace().collect();
        let [.., ty, name] = words[..] else { return None };
        (is_word(ty) && is_word(name) && !["return", "case", "else"].contains(&ty)).then(|| name.to_owned())
    };
    let mut scopes = vec![HashSet::new()];
    let mut twice = Vec::new();
    let mut statement = String::new();
    for c in text.chars() {
        match c {
            '{' | ';' => {
                // A name before a brace is a declaration if the values of an array follow.
                let name = declared(&statement).filter(|_| c == ';' || statement.contains('='));
                twice.extend(name.filter(|name| !scopes.last_mut().unwrap().insert(name.clone())));
                if c == '{' {
                    let head = statement.trim_end();
                    let head = head.rsplit_once('\n').map_or(head, |(_, line)| line).split_once('(');
                    let parameters = head.filter(|(name, _)| declared(name).is_some()).map(|(_, list)| list);
                    let parameters = parameters.unwrap_or_default().trim_end_matches(')');
                    scopes.push(parameters.split(',').filter_map(declared).collect());
                }
            }
            '}' => drop(scopes.pop()),
            _ => {
                statement.push(c);
                continue;
            }
        }
        statement.clear();
    }
    twice
}

#[test]
fn names_declared_twice_are_found() {
    let text = "struct P { uint x; };\nint f(int a, uint4 b : SV_GroupID)\n{ int x = a; { float4 x = (float4)0; } uint x = f(a); return x; }
int g() { int x; x = 2; uint y[4]; uint y[2] = {0, 0}; } int h(int a) { if (a == 1) { int a = 2; } uint a = 3; float b; }";
    assert_eq!(twice_declared(text), ["x", "y", "a"]);
}

#[test]
fn vulkan() {
    let folder = tempfile::tempdir().unwrap();
    for program in Program::all(wgpu::Backend::Vulkan) {
        for (checked, dots) in [(true, true), (true, false), (false, true), (false, false)] {
            let file = folder.path().join("program.spv");
            fs::write(&file, program.spirv(checked, dots)).unwrap();
            let validator = Command::new("spirv-val").args(["--target-env", "vulkan1.1"]).arg(&file).output();
            let validator = validator.expect("scripts/setup should have installed spirv-val");
            let said = String::from_utf8_lossy(&validator.stderr);
            assert!(validator.status.success(), "{}: {said}", program.name);
        }
    }
}
