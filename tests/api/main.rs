//! The public interface as an application uses it: nothing here sees what is private. On every device of this machine.

#[cfg(feature = "zarr")]
mod bucket;
mod calls;
#[cfg(feature = "wgpu")]
mod lent;
mod programs;
mod stores;

use teatime::Device;

/// Every device that can be used, each card once.
fn devices() -> Vec<Device> {
    let usable =
        Device::all().into_iter().filter(|listed| listed.info.is_ok() && listed.same_card_as.is_none());
    let devices: Vec<_> = usable.map(|listed| Device::open(&listed.name).unwrap()).collect();
    assert!(devices.iter().any(|device| device.info().name == "cpu"), "{devices:?}");
    devices
}
