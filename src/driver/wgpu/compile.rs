//! Compiles kernels to pipelines, once per device and spec, with constants rewritten by name.

use std::{
    collections::HashMap,
    num::NonZeroU64,
    sync::{Arc, Mutex},
};

use wgpu::naga::{ResourceBinding, front::wgsl};

use super::Gpu;
use crate::{
    DType, Error, Result,
    kernel::{Access, KernelDef, Key, Spec, numbered, specialize},
    waiting::lock,
};

/// Functions that all kernels can use.
const COMMON: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/common.wgsl"));

/// A kernel compiled for one spec.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// The pipelines that were compiled on a device.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<Key, Arc<Pipeline>>>);

impl Cache {
    /// Returns the pipeline of a kernel and a spec. If two threads request the same new pipeline, both compile it.
    pub(super) fn get(&self, gpu: &Gpu, kernel: &'static KernelDef, spec: Spec<'_>) -> Result<Arc<Pipeline>> {
        let key = kernel.key(spec);
        if let Some(pipeline) = lock(&self.0).get(&key) {
            return Ok(pipeline.clone());
        }
        let pipeline = Arc::new(compile(gpu, kernel, spec)?);
        Ok(lock(&self.0).entry(key).or_insert(pipeline).clone())
    }
}

/// Returns the whole WGSL program of a kernel: its file with the spec's values in place of the defaults, its parameters and codes, and the functions
/// of [`COMMON`] that it uses. In WGSL the order of declarations is free, so the additions follow the file and its line numbers stay. Fails
/// with [`Error::Compile`] unless each name of the spec is declared exactly once, as `const NAME: u32 = VALUE;`.
pub(crate) fn source(kernel: &'static KernelDef, spec: Spec<'_>, backend: wgpu::Backend) -> Result<String> {
    let specialized = specialize(kernel.wgsl, spec, "const NAME: u32 = ", "u;");
    let specialized =
        specialized.map_err(|log| Error::Compile { kernel: kernel.name, backend: "wgpu", log: log.into() });
    let declared = kernel.declared.map(|declared| declared.wgsl()).unwrap_or_default();
    let source = with_common(specialized? + &declared);
    Ok(if backend == wgpu::Backend::Dx12 { source.replace(BYTE_DOT, BYTE_DOT_OF_DX12) } else { source })
}

/// The byte product in [`COMMON`], and its replacement on DX12. From the first, naga makes a text that the compiler DXC
/// rejects as an invalid program (DirectXShaderCompiler#7400).
const BYTE_DOT: &str = "dot4I8Packed(a, b)";
const BYTE_DOT_OF_DX12: &str = "dot(unpack4xI8(a), unpack4xI8(b))";

/// Adds to a source the functions of [`COMMON`] that it uses, directly or through others, and the codes of the types that are used.
fn with_common(mut source: String) -> String {
    let mut functions: Vec<_> = COMMON
        .split_inclusive("\n}\n")
        .filter_map(|function| Some((function.split_once("\nfn ")?.1.split_once('(')?.0, function)))
        .collect();
    let uses = |source: &str, name: &str| {
        source.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
    };
    while let Some(place) = functions.iter().position(|(name, _)| uses(&source, name)) {
        source += functions.swap_remove(place).1;
    }
    for dtype in DType::ALL {
        let name = format!("DTYPE_{dtype:?}");
        if uses(&source, &name) {
            source += &format!("const {name}: u32 = {}u;\n", dtype.code());
        }
    }
    source
}

fn compile(gpu: &Gpu, kernel: &'static KernelDef, spec: Spec<'_>) -> Result<Pipeline> {
    let source = source(kernel, spec, gpu.backend)?;
    let label = Some(kernel.name);
    let made = gpu.scoped(|device| {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label,
            source: wgpu::ShaderSource::Wgsl(source.as_str().into()),
        });
        let entries = layout(kernel, &source);
        let layout =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(kernel.name),
            // Kernels write workgroup memory before they read it.
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        Pipeline { pipeline, layout }
    });
    made.map_err(|error| {
        if let Err(lost) = gpu.probe() {
            return lost;
        }
        let said = error.to_string();
        let log = format!("{said}\nwith {spec:?}\n{}", numbered(&source, &said, "wgsl"));
        Error::Compile { kernel: kernel.name, backend: "wgpu", log: log.into() }
    })
}

/// Returns one bind group layout: the arguments in the order of the bindings, then the parameters. Each entry has the
/// minimum number of bytes that the source declares, so that a smaller buffer is refused when it is bound. If it were
/// refused while the launch is recorded, all recorded commands would fail.
fn layout(kernel: &KernelDef, source: &str) -> Vec<wgpu::BindGroupLayoutEntry> {
    // A source that cannot be parsed is refused later as a whole.
    let module = wgsl::parse_str(source).unwrap_or_default();
    let least = |place: usize| {
        let is_it = |binding: ResourceBinding| binding.group == 0 && binding.binding as usize == place;
        let (_, variable) =
            module.global_variables.iter().find(|(_, variable)| variable.binding.is_some_and(is_it))?;
        NonZeroU64::new(module.types[variable.ty].inner.size(module.to_ctx()).into())
    };

    let entry = |binding: usize, ty, has_dynamic_offset, min_binding_size| wgpu::BindGroupLayoutEntry {
        binding: u32::try_from(binding).expect("a kernel should have few arguments"),
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size },
        count: None,
    };
    let mut entries: Vec<_> = kernel
        .bindings
        .iter()
        .enumerate()
        .map(|(i, binding)| {
            let read_only = binding.access == Access::Read;
            entry(i, wgpu::BufferBindingType::Storage { read_only }, false, least(i))
        })
        .collect();
    let params = NonZeroU64::new(kernel.params as u64);
    entries.push(entry(kernel.bindings.len(), wgpu::BufferBindingType::Uniform, true, params));
    entries
}
