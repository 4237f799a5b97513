//! Finds wgpu's adapters, names them, and opens one.

use std::sync::{Arc, OnceLock};

use super::WgpuDriver;
use crate::{Backend, DeviceInfo, DeviceKind, DeviceOptions, Error, Limits, Result, driver::Driver};

/// The preferred backends for GPUs; GL, which may reach the same cards again, comes after them.
const FIRST: wgpu::Backends = wgpu::Backends::PRIMARY;
const NAMED: [(&str, wgpu::Backends); 4] = [
    ("vulkan", wgpu::Backends::VULKAN),
    ("metal", wgpu::Backends::METAL),
    ("dx12", wgpu::Backends::DX12),
    ("gl", wgpu::Backends::GL),
];

/// Returns true if there may be a discrete GPU. Linux has a file for each GPU: by its own drivers, NVIDIA's driver, or
/// Windows below it. Searching through Vulkan would take 0.1 s and 60 MB.
fn may_be_there() -> bool {
    let files = ["/dev/dri", "/dev/nvidiactl", "/dev/dxg"];
    !cfg!(target_os = "linux") || files.iter().any(|file| std::path::Path::new(file).exists())
}

/// Opens a discrete GPU or one of Apple's. Others are not used, since none was measured to be faster than the CPU.
/// `skipped` gets the GPUs that could not be used.
pub(crate) fn best(options: &DeviceOptions, skipped: &mut Vec<(String, String)>) -> Option<Box<dyn Driver>> {
    if !may_be_there() {
        return None;
    }
    let adapters = adapters(FIRST);
    let fast = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        info.backend == wgpu::Backend::Metal || info.device_type == wgpu::DeviceType::DiscreteGpu
    };
    (0..adapters.len()).filter(|&place| fast(&adapters[place])).find_map(|place| {
        let (adapter, info) = (&adapters[place], describe(&adapters, place));
        let name = info.name.clone();
        let open = || open_adapter(adapter, info, options).map_err(|error| error.to_string());
        usable(adapter).and_then(|()| open()).map_err(|why| skipped.push((name, why))).ok()
    })
}

/// Opens the adapter that a selector names: an empty text, `N`, a backend, a backend and `N`, `software`, a part of the
/// name, or a PCI address.
pub(crate) fn open(selector: &str, options: &DeviceOptions) -> Result<Box<dyn Driver>> {
    let (interface, rest) = selector.split_once(':').unwrap_or((selector, ""));
    let wanted = NAMED.iter().find(|(name, _)| name.eq_ignore_ascii_case(interface));
    let named = wanted.is_some_and(|(_, backend)| backend.contains(wgpu::Backends::GL));
    // GL is searched if it is named or if no other adapter matches. Its adapters come last, so the numbers of the others do not depend on it.
    let first = if named { Vec::new() } else { adapters(FIRST) };
    let of_interface = |adapter: &wgpu::Adapter| {
        wanted.is_none_or(|(_, backend)| backend.contains(adapter.get_info().backend.into()))
    };
    let text = if wanted.is_some() { rest } else { selector };
    let find = |adapters: &[wgpu::Adapter]| {
        let mut places = (0..adapters.len()).filter(|&place| of_interface(&adapters[place]));
        match text.parse::<usize>() {
            Ok(number) => places.nth(number),
            Err(_) if text.is_empty() => places.min_by_key(|&place| rank(&adapters[place])),
            Err(_) => places.find(|&place| {
                let info = adapters[place].get_info();
                let text = text.to_lowercase();
                let is_software = text == "software" && info.device_type == wgpu::DeviceType::Cpu;
                is_software || info.name.to_lowercase().contains(&text) || identity(&info) == text
            }),
        }
    };
    let chosen = match find(&first) {
        Some(place) => Some((first, place)),
        None if named || wanted.is_none() => {
            let adapters = all_adapters();
            find(&adapters).map(|place| (adapters, place))
        }
        None => None,
    };
    match chosen {
        Some((adapters, place)) => open_adapter(&adapters[place], describe(&adapters, place), options),
        None => Err(Error::NoDevice {
            wanted: format!("wgpu:{selector}").trim_end_matches(':').into(),
            tried: Vec::new(),
        }),
    }
}

/// Lists every adapter with its exact name, or the reason why there is none.
pub(crate) fn list() -> Vec<(String, Result<DeviceInfo, String>)> {
    let adapters = all_adapters();
    if adapters.is_empty() {
        return vec![("wgpu".into(), Err(absent()))];
    }
    let entry = |place: usize| {
        let info = describe(&adapters, place);
        let name = info.name.clone();
        (name, usable(&adapters[place]).map(|()| info))
    };
    (0..adapters.len()).map(entry).collect()
}

/// Makes a driver from a device that an application opened.
pub(crate) fn lent(
    device: wgpu::Device,
    queue: wgpu::Queue,
    options: &DeviceOptions,
) -> Result<Box<dyn Driver>> {
    let adapter = device.adapter_info();
    check_shared(adapter.backend, "Device::from_wgpu")?;
    let identity = identity(&adapter);
    let info = device_info(adapter, "wgpu:lent".into(), identity);
    fits(&device.limits()).map_err(|why| Error::argument("Device::from_wgpu", "device", why))?;
    let limits = lowered(options, &device.limits());
    Ok(Box::new(WgpuDriver::new(device, queue, info, limits, Arc::default())?))
}

/// Refuses to share a GL device with an application: on GL, wgpu panics in a thread that has waited six seconds for
/// another thread's call, and the application's threads do not take turns with those of this crate.
pub(super) fn check_shared(backend: wgpu::Backend, op: &'static str) -> Result<()> {
    if backend == wgpu::Backend::Gl {
        let why = "it is GL's, which wgpu shares with no other thread for long: take one of Vulkan";
        return Err(Error::argument(op, "device", why));
    }
    Ok(())
}

fn instance(backends: wgpu::Backends) -> wgpu::Instance {
    #[cfg(target_os = "linux")]
    if backends == FIRST
        && let Some(instance) = headless()
    {
        return instance;
    }
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        // Validation layers are off, since they would print.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

/// Makes a Vulkan instance without the extensions for windows, for use without a desktop. Otherwise Mesa's layer that
/// chooses a GPU looks for the desktop of an instance that could draw there, and prints an error if there is none.
#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "only wgpu's unsafe layer makes an instance without extensions for windows, of which Mesa prints that there is no desktop"
)]
fn headless() -> Option<wgpu::Instance> {
    use wgpu::hal::{InstanceDescriptor, api::Vulkan, vulkan::Instance};
    if std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| std::path::Path::new(&folder).is_absolute()) {
        return None;
    }
    let descriptor = InstanceDescriptor {
        name: "teatime",
        flags: wgpu::InstanceFlags::empty(),
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds::default(),
        backend_options: wgpu::BackendOptions::default(),
        telemetry: None,
        display: None,
    };
    let windows = [&b"VK_KHR_xlib_surface"[..], b"VK_KHR_xcb_surface", b"VK_KHR_wayland_surface"];
    // SAFETY: wgpu looks up the removed extensions only before it makes a surface, and none is made here; nothing else needs them.
    let instance = unsafe {
        Instance::init_with_callback(
            &descriptor,
            Some(Box::new(move |args| args.extensions.retain(|name| !windows.contains(&name.to_bytes())))),
        )
    };
    // SAFETY: the Vulkan instance is new, and nothing else owns it.
    instance.ok().map(|instance| unsafe { wgpu::Instance::from_hal::<Vulkan>(instance) })
}

fn adapters(backends: wgpu::Backends) -> Vec<wgpu::Adapter> {
    pollster::block_on(instance(backends).enumerate_adapters(backends))
}

/// Returns the adapters of wgpu's primary backends (Vulkan, Metal, DX12), then those of GL.
fn all_adapters() -> Vec<wgpu::Adapter> {
    let mut list = adapters(FIRST);
    list.extend(adapters(wgpu::Backends::GL));
    list
}

/// Returns the reason why there is no adapter.
fn absent() -> String {
    let backends = FIRST | wgpu::Backends::GL;
    let request = instance(backends).request_adapter(&wgpu::RequestAdapterOptions::default());
    let why = match pollster::block_on(request) {
        Ok(adapter) => format!("{} appeared only now", adapter.get_info().name),
        Err(error) => reasons(&error.to_string()),
    };
    if cfg!(target_os = "linux") {
        format!(
            "{why}. A GPU needs its Vulkan driver and libvulkan1; on Debian and Ubuntu the package \
             mesa-vulkan-drivers has those of AMD and Intel and a software one (lavapipe)"
        )
    } else {
        why
    }
}

/// Returns wgpu's error text without the backends that this system cannot have.
fn reasons(text: &str) -> String {
    let (_, list) = text.split_once("; ").unwrap_or(("", text));
    let moot = |reason: &&str| !reason.ends_with("not requested") && !reason.ends_with("not compiled in");
    list.split(", ").filter(moot).collect::<Vec<_>>().join(", ")
}

/// Returns the rank of an adapter among several that match; the lowest is best. Discrete GPUs come first, and GL last within a kind.
fn rank(adapter: &wgpu::Adapter) -> (u32, bool) {
    let info = adapter.get_info();
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    };
    (kind, info.backend == wgpu::Backend::Gl)
}

fn usable(adapter: &wgpu::Adapter) -> Result<(), String> {
    let (flags, info) = (adapter.get_downlevel_capabilities().flags, adapter.get_info());
    let has_compute = flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
        && (info.backend != wgpu::Backend::Gl || gl_computes(&info.driver_info));
    if !has_compute {
        return Err(format!("{}: it has no compute shaders ({})", info.name, info.driver_info));
    }
    fits(&adapter.limits()).map_err(|why| format!("{}: {why}", info.name))
}

/// Returns false for versions of GL (as drivers write them) whose shading language has no compute shaders. NVIDIA's
/// driver provides the version 3.3 that wgpu asks for, with compute shaders as an extension that naga does not write.
fn gl_computes(version: &str) -> bool {
    let (text, least) = match version.strip_prefix("OpenGL ES ") {
        Some(text) => (text, (3, 1)),
        None => (version, (4, 3)),
    };
    let mut parts = text.split(['.', ' ']).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= least,
        _ => true,
    }
}

/// The maximum number of buffer arguments of a kernel: WebGPU grants 8, its downlevel limits 4.
pub(crate) const STORAGE_BUFFERS: u32 = 5;

/// Returns an error for limits with which some kernel cannot run.
fn fits(limits: &wgpu::Limits) -> Result<(), String> {
    let least = wgpu::Limits::downlevel_defaults();
    let checks = [
        ("storage buffers", limits.max_storage_buffers_per_shader_stage, STORAGE_BUFFERS),
        (
            "bytes of workgroup memory",
            limits.max_compute_workgroup_storage_size,
            least.max_compute_workgroup_storage_size,
        ),
        (
            "invocations a workgroup",
            limits.max_compute_invocations_per_workgroup,
            least.max_compute_invocations_per_workgroup,
        ),
        ("workgroups an axis", limits.max_compute_workgroups_per_dimension, 16),
    ];
    match checks.into_iter().find(|(_, has, needs)| has < needs) {
        Some((what, has, needs)) => Err(format!("it has {has} {what}, and kernels need {needs}")),
        None => Ok(()),
    }
}

/// Returns the limits of an adapter, lowered as the options say.
fn lowered(options: &DeviceOptions, granted: &wgpu::Limits) -> Limits {
    let limits = options.lower(limits(granted));
    let is_least = options.groups_per_axis.is_some();
    Limits {
        workgroup_memory: limits.workgroup_memory.min(if is_least { 16 << 10 } else { u32::MAX }),
        ..limits
    }
}

fn limits(granted: &wgpu::Limits) -> Limits {
    // Kernels count elements with u32.
    let words = |bytes: u64| bytes.min(u32::MAX.into()) & !255;
    Limits {
        binding: words(granted.max_storage_buffer_binding_size),
        buffer: granted.max_buffer_size & !255,
        groups_per_axis: granted.max_compute_workgroups_per_dimension,
        workgroup_memory: granted.max_compute_workgroup_storage_size,
        workgroup_size: granted.max_compute_invocations_per_workgroup,
        // The alignment is a multiple of the size of any element type.
        alignment: granted.min_storage_buffer_offset_alignment.max(8).into(),
        step: 64 << 20,
        // wgpu does not report the number of multiprocessors: this is 8 workgroups for each of 128, as the largest GPUs have.
        fill: 1024,
        processors: 0,
        processor_memory: 0,
        work: Limits::SMALL_WORK,
        f64_cost: 1,
        terms: u32::MAX,
        same_sums: true,
        tf32: false,
        // wgpu does not report which devices need this limit, and an additional launch costs other devices little.
        iterations: 65_535,
        // WGSL has neither f64 nor stores of bytes.
        f64: false,
        stores_bytes: false,
    }
}

fn describe(adapters: &[wgpu::Adapter], place: usize) -> DeviceInfo {
    let info = adapters[place].get_info();
    // GL reports no address. A GL adapter is taken for the same card as an earlier adapter with the same name.
    let same = adapters[..place].iter().map(wgpu::Adapter::get_info).find(|earlier| {
        info.backend == wgpu::Backend::Gl
            && earlier.backend != wgpu::Backend::Gl
            && plain_name(&earlier.name) == plain_name(&info.name)
    });
    let identity = identity(same.as_ref().unwrap_or(&info));
    device_info(info, format!("wgpu:{place}"), identity)
}

/// Returns the hardware's name without what backends add to it: `Mesa Intel(R) UHD (KBL GT2)`, `NVIDIA T4/PCIe/SSE2`.
fn plain_name(name: &str) -> &str {
    let name = name.strip_prefix("Mesa ").unwrap_or(name);
    let end = [" (", "/"].iter().filter_map(|mark| name.find(mark)).min();
    &name[..end.unwrap_or(name.len())]
}

fn identity(info: &wgpu::AdapterInfo) -> String {
    if info.device_pci_bus_id.is_empty() {
        format!("{} {:x}:{:x}", info.name, info.vendor, info.device).to_lowercase()
    } else {
        info.device_pci_bus_id.to_lowercase()
    }
}

fn device_info(info: wgpu::AdapterInfo, name: String, identity: String) -> DeviceInfo {
    DeviceInfo {
        name,
        backend: Backend::Wgpu,
        api: info.backend.to_string(),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => DeviceKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
            wgpu::DeviceType::VirtualGpu => DeviceKind::Virtual,
            wgpu::DeviceType::Cpu => DeviceKind::Software,
            wgpu::DeviceType::Other => DeviceKind::Other,
        },
        vendor: vendor(info.vendor),
        driver: format!("{} {}", info.driver, info.driver_info).trim().into(),
        memory: None,
        compute_capability: None,
        identity,
        description: info.name,
    }
}

/// Returns the vendor's name for a PCI (or Khronos) number.
fn vendor(id: u32) -> String {
    let known = [
        (0x1002, "AMD"),
        (0x106b, "Apple"),
        (0x10de, "NVIDIA"),
        (0x13b5, "Arm"),
        (0x1414, "Microsoft"),
        (0x14e4, "Broadcom"),
        (0x5143, "Qualcomm"),
        (0x8086, "Intel"),
        (0x1_0005, "Mesa"),
    ];
    let name = known.iter().find(|(known, _)| *known == id).map(|(_, name)| (*name).into());
    name.unwrap_or_else(|| if id == 0 { String::new() } else { format!("{id:#06x}") })
}

fn open_adapter(
    adapter: &wgpu::Adapter,
    info: DeviceInfo,
    options: &DeviceOptions,
) -> Result<Box<dyn Driver>> {
    let refuse = |why: String| Error::NoDevice {
        wanted: info.name.as_str().into(),
        tried: vec![(info.name.clone(), why)],
    };
    usable(adapter).map_err(refuse)?;
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("teatime"),
        required_limits: adapter.limits(),
        // Timelines read the GPU's times.
        required_features: adapter.features() & wgpu::Features::TIMESTAMP_QUERY,
        ..Default::default()
    };
    let opened = pollster::block_on(adapter.request_device(&descriptor));
    let (device, queue) = opened.map_err(|error| refuse(error.to_string()))?;
    let lost = Arc::new(OnceLock::new());
    let tell = lost.clone();
    device.set_device_lost_callback(move |reason, message| {
        // The first reason is kept.
        let _ = tell.set(format!("{reason:?}: {message}"));
    });
    // Every call that can fail has an error scope of its own. Errors outside of scopes come only from dropping objects
    // on a lost device: wgpu would panic, and there is no caller to return an error to.
    device.on_uncaptured_error(Arc::new(|_| {}));
    let limits = lowered(options, &device.limits());
    Ok(Box::new(WgpuDriver::new(device, queue, info, limits, lost)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_card_under_two_interfaces() {
        for (vulkan, gl) in [
            ("NVIDIA T4", "NVIDIA T4/PCIe/SSE2"),
            ("Intel(R) UHD Graphics 620 (KBL GT2)", "Mesa Intel(R) UHD Graphics 620 (KBL GT2)"),
            ("AMD Radeon RX 6800 (RADV NAVI21)", "AMD Radeon RX 6800 (radeonsi, navi21, LLVM 15.0.7)"),
            ("llvmpipe (LLVM 15.0.6, 256 bits)", "llvmpipe (LLVM 15.0.6, 256 bits)"),
        ] {
            assert_eq!(plain_name(vulkan), plain_name(gl));
        }
        assert_ne!(plain_name("NVIDIA T4"), plain_name("NVIDIA T4G"));
    }

    #[test]
    fn reasons_leave_out_what_cannot_be() {
        let text = "No suitable graphics adapter found; noop not requested, vulkan found no adapters, \
                    metal support not compiled in, gl drivers/libraries could not be loaded";
        assert_eq!(reasons(text), "vulkan found no adapters, gl drivers/libraries could not be loaded");
        assert_eq!(reasons("something else"), "something else");
    }

    #[test]
    fn versions_of_gl_without_compute_shaders() {
        for (version, computes) in [
            ("3.3.0 NVIDIA 580.159.04", false),
            ("4.2 (Core Profile) Mesa 22.3.6", false),
            ("4.5 (Core Profile) Mesa 22.3.6", true),
            ("OpenGL ES 3.0 Mesa 22.3.6", false),
            ("OpenGL ES 3.2 v1.r38p1", true),
            ("unknown", true),
        ] {
            assert_eq!(gl_computes(version), computes, "{version}");
        }
    }

    #[test]
    fn small_devices_are_refused() {
        assert!(fits(&wgpu::Limits::default()).is_ok());
        let downlevel = wgpu::Limits::downlevel_defaults();
        assert_eq!(fits(&downlevel).unwrap_err(), "it has 4 storage buffers, and kernels need 5");
        let least = wgpu::Limits { max_storage_buffers_per_shader_stage: STORAGE_BUFFERS, ..downlevel };
        assert!(fits(&least).is_ok());
        let small = wgpu::Limits { max_compute_invocations_per_workgroup: 128, ..wgpu::Limits::default() };
        assert_eq!(fits(&small).unwrap_err(), "it has 128 invocations a workgroup, and kernels need 256");
    }
}
