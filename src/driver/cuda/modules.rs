//! Loads kernels as functions of the device, once per device and spec, and launches them.
#![allow(unsafe_code, reason = "a launch hands untyped memory to code that the compiler cannot see")]

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
    sync::{Arc, Mutex},
};

use cudarc::driver::{CudaContext, result, sys};

use super::{gpu::Gpu, images::Images, source, trail::Launch};
use crate::{
    Error, Result,
    kernel::{Grid, KernelDef, Key, Spec},
    timeline::Asked,
    waiting::lock,
};

/// A kernel loaded for one spec.
#[derive(Debug)]
pub(super) struct Function {
    context: Arc<CudaContext>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    /// The number of threads of a block.
    threads: u32,
}

// SAFETY: any thread may use these handles while the context is current on it.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    fn load(gpu: &Gpu, kernel: &'static KernelDef, spec: Spec<'_>, image: Vec<u8>) -> Result<Self> {
        let refused = |what: &str, error| match gpu.check::<()>(Err(error)) {
            Err(error @ (Error::DeviceLost { .. } | Error::OutOfMemory { .. })) => error,
            _ => {
                let log = format!("the driver {what}: {error}\nwith {spec:?}");
                Error::Compile { kernel: kernel.name, backend: "cuda", log: log.into() }
            }
        };
        let threads = source::threads(kernel, spec)?;
        // PTX is text that ends with a zero byte; a cubin may end with one too.
        let image = [image, vec![0]].concat();
        // SAFETY: the image is complete (just compiled, or its digest was checked) and ends with a zero byte.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }
            .map_err(|error| refused("does not load the code", error))?;
        let mut loaded =
            Self { context: gpu.context.clone(), module, function: std::ptr::null_mut(), threads };
        let name = CString::new(kernel.name).expect("names of kernels should hold no zero");
        // SAFETY: the module is loaded.
        loaded.function = unsafe { result::module::get_function(module, name) }
            .map_err(|error| refused("does not find the entry point", error))?;
        // By `__launch_bounds__`, the code supports at least this number of threads.
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: the function was found in the module.
        let bound = unsafe { result::function::get_function_attribute(loaded.function, attribute) };
        let bound = gpu.check(bound)?.unsigned_abs();
        if bound < threads {
            let log = format!(
                "the code is for at most {bound} threads a block, its source for {threads}, with {spec:?}"
            );
            return Err(Error::Compile { kernel: kernel.name, backend: "cuda", log: log.into() });
        }
        Ok(loaded)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: the module was loaded by `load_data`, and is unloaded once, after the driver has waited for all kernels.
        self.context.record_err(unsafe { result::module::unload(self.module) });
    }
}

/// The functions that were loaded on a device, and the source of their images.
#[derive(Debug)]
pub(super) struct Modules {
    images: Images,
    loaded: Mutex<HashMap<Key, Arc<Function>>>,
}

impl Modules {
    pub(super) fn new(images: Images) -> Self {
        Self { images, loaded: Mutex::default() }
    }

    /// Returns the function of a kernel and a spec, which is loaded, and compiled unless it is cached. If two threads request
    /// the same new function, both load it.
    pub(super) fn get(&self, gpu: &Gpu, kernel: &'static KernelDef, spec: Spec<'_>) -> Result<Arc<Function>> {
        let key = kernel.key(spec);
        if let Some(function) = lock(&self.loaded).get(&key) {
            return Ok(function.clone());
        }
        let image = self.images.image(kernel, spec)?;
        let function = Arc::new(Function::load(gpu, kernel, spec, image)?);
        Ok(lock(&self.loaded).entry(key).or_insert(function).clone())
    }

    /// Returns the name and the constants of each loaded function.
    #[cfg(all(any(test, feature = "suite"), feature = "cuda-emulator"))]
    pub(super) fn loaded(&self) -> std::collections::BTreeSet<String> {
        let loaded = lock(&self.loaded);
        let values = |key: &Key| key.spec.iter().map(|&(_, value)| value).collect::<Vec<_>>();
        loaded.keys().map(|key| format!("{} {:?}", key.name, values(key))).collect()
    }

    /// Enqueues a kernel on the compute stream; `pointers` are the kernel's arguments in order.
    ///
    /// This is the only place that launches a kernel.
    pub(super) fn launch(
        &self,
        gpu: &Gpu,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        (pointers, params): (&mut [sys::CUdeviceptr], &[u8]),
        asked: Option<Asked>,
    ) -> Result<()> {
        let function = self.get(gpu, kernel, spec)?;
        // The block is aligned for any parameter; CUDA copies it during the call.
        let mut block = [0u64; 16];
        bytemuck::bytes_of_mut(&mut block)[..params.len()].copy_from_slice(params);
        let mut arguments: Vec<*mut c_void> = pointers.iter_mut().map(|p| (&raw mut *p).cast()).collect();
        arguments.push((&raw mut block).cast());
        let [x, y, z] = grid.groups;
        let launch = Launch { name: kernel.name, spec: spec.into(), grid: Some(grid.groups) };
        // SAFETY: CUDA checks neither number nor types of arguments, so this relies on the following. A kernel's source takes one pointer for each of
        // its bindings, then its parameters by value. (Tests compare both with the Rust side, field by field. For an application's kernel, `source`
        // checks the bindings and the size of the parameters, and the caller of `Kernel::cuda` promises that it accesses only the elements that
        // `lengths` gives.) `Device::launch` has checked that the argument list is the kernel's, that each window lies in its memory and is as large
        // as the operation or `lengths` says, that written memory occurs once in the list, and that `params` is the kernel's block of at most 128
        // bytes. All memory belongs to this context: other memory has no pointer here. It outlives the kernel, since frees are enqueued on the same
        // stream when the owner is dropped. The copy stream's writes come before, by the fence that the caller waited for. The function's module
        // stays loaded as long as the driver.
        let mut enqueue = || unsafe {
            result::launch_kernel(
                function.function,
                (x, y, z),
                (function.threads, 1, 1),
                0,
                gpu.compute.cu_stream(),
                &mut arguments,
            )
        };
        gpu.launch(launch, asked, || gpu.check(enqueue()).map(|()| true)).map(drop)
    }
}

#[cfg(all(test, feature = "cuda-emulator"))]
mod tests {
    use std::thread;

    use super::*;
    use crate::{
        driver::cuda::{emulated::loaded, tests},
        kernel::Program,
        kernels::standardize::STANDARDIZE,
    };

    #[test]
    fn what_is_prepared_is_loaded_once_and_refused_as_at_a_launch() {
        let device = tests::device(28);
        let (sound, spec) = (&STANDARDIZE.def, vec![("WG", 256), ("NARROW", 0)]);
        let program = |kernel: &'static KernelDef| Program { kernel, spec: spec.clone() };
        let both = vec![program(sound), program(sound)];
        thread::scope(|scope| {
            let all = [(); 3].map(|()| scope.spawn(|| device.prepare(both.clone())));
            all.into_iter().for_each(|one| one.join().unwrap().unwrap());
        });
        assert_eq!(loaded(&device), ["standardize [256, 0]".to_owned()].into());
        let text = sound.cuda.replace("KERNEL(", "NO_SUCH_WORD(");
        let planted = KernelDef { name: "planted", cuda: String::leak(text), ..*sound };
        let failed = device.prepare(vec![program(sound), program(Box::leak(Box::new(planted)))]);
        assert!(matches!(failed, Err(Error::Compile { kernel: "planted", .. })), "{failed:?}");
    }

    #[test]
    fn code_for_smaller_blocks_is_refused() {
        let device = tests::device(22);
        let cuda = device.driver().cuda().unwrap();
        cuda.gpu.enter().unwrap();
        let sound = &STANDARDIZE.def;
        let load = |threads: &str| {
            let text =
                sound.cuda.replace("KERNEL(standardize, WG / 4)", &format!("KERNEL(standardize, {threads})"));
            let planted = KernelDef { cuda: Box::leak(text.into_boxed_str()), ..*sound };
            let spec: Spec<'_> = &[("WG", 256), ("NARROW", 0)];
            let image = cuda.modules.images.image(Box::leak(Box::new(planted)), spec)?;
            Function::load(&cuda.gpu, sound, spec, image)
        };
        // A driver may allow more threads than the code asks for.
        for threads in ["WG / 4", "WG"] {
            assert_eq!(load(threads).unwrap().threads, 64);
        }
        let Err(Error::Compile { kernel, backend, log }) = load("WG / 8") else { panic!("32 threads of 64") };
        let expected = "the code is for at most 32 threads a block, its source for 64, with [(\"WG\", 256), (\"NARROW\", 0)]";
        assert_eq!((kernel, backend, &*log), ("standardize", "cuda", expected));
    }
}
