//! Tests of names of devices.

use std::collections::HashSet;

use super::*;
use crate::DeviceKind;

device_tests! { names_open_what_they_list }

fn names_open_what_they_list(device: &Device) {
    let info = device.info();
    if info.name.ends_with(":lent") {
        return;
    }
    let listed = Device::all().into_iter().find(|listed| listed.name == info.name).unwrap();
    assert_eq!(&listed.info.unwrap(), info);
    assert_eq!(Device::open(&info.name).unwrap().info(), info);
    if let Some((backend, _)) = info.name.split_once(':') {
        assert!(Device::open(backend).is_ok());
    }
    if info.backend == Backend::Wgpu {
        if info.kind == DeviceKind::Software {
            assert_eq!(Device::open("wgpu:software").unwrap().info().kind, DeviceKind::Software);
        }
        // Selects by the card's identity, by a part of the hardware's name, and by the interface, in upper or lower case.
        let found = Device::open(&format!("wgpu:{}", info.identity.to_uppercase())).unwrap();
        assert_eq!(found.info().identity, info.identity);
        for selector in [&info.description.to_uppercase(), &info.api, &format!("{}:0", info.api)] {
            let found = Device::open(&format!("wgpu:{selector}")).unwrap();
            let same = found.info().description == info.description || found.info().api == info.api;
            assert!(same, "{selector}: {found:?}");
        }
    }
}

#[test]
fn unknown_names_list_the_others() {
    for name in ["", "gpu", "cpu:1", "wgpu:99", "wgpu:vulkan:99", "wgpu:no such card", "cuda:99", "cuda:x"] {
        let Err(Error::NoDevice { wanted, tried }) = Device::open(name) else { panic!("{name}") };
        assert_eq!(&*wanted, name);
        // The error lists the devices of every backend, each once.
        for backend in ["cpu", "cuda", "wgpu"] {
            let is_there = tried.iter().any(|(name, _)| name.starts_with(backend));
            assert!(is_there, "{name}: no {backend} in {tried:?}");
        }
        let names: HashSet<_> = tried.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), tried.len(), "{name}: {tried:?}");
    }
}

#[test]
fn options_have_a_floor() {
    let options = |binding, groups_per_axis, threads| DeviceOptions {
        binding,
        groups_per_axis,
        threads,
        ..DeviceOptions::default()
    };
    let cases = [
        (options(Some((16 << 10) - 1), None, None), Some("binding")),
        (options(None, Some(15), None), Some("groups_per_axis")),
        (options(None, None, Some(0)), Some("threads")),
        (options(Some(16 << 10), Some(16), Some(1)), None),
        (DeviceOptions { step: Some(0), ..DeviceOptions::default() }, Some("step")),
        (DeviceOptions { fill: Some(0), ..DeviceOptions::default() }, Some("fill")),
    ];
    for (options, wrong) in cases {
        let name = match Device::open_with("cpu", &options) {
            Err(Error::Argument { name, .. }) => Some(name),
            other => other.map(|_| None).unwrap(),
        };
        assert_eq!(name, wrong);
    }
}
