//! Keeping Mesa's Vulkan from looking for a desktop where there is none.

use std::{env, os::unix::process::CommandExt, path::Path, process::Command};

/// Starts the program anew with a variable that leaves out the layer of Mesa that asks the desktop which GPU to prefer:
/// where there is no desktop, it prints that as an error whenever devices are looked for. Goes on where that fails, and where
/// the CPU is `asked` for: a missing card has all devices named.
///
/// The layer heeds nothing but variables, and a program can set one of its own only while no other thread runs, which Rust
/// cannot know.
pub(crate) fn leave_out(asked: Option<&str>) {
    let named = asked.map(str::to_owned).or_else(|| env::var("TEATIME_DEVICE").ok());
    let others = named.is_some_and(|name| name == "cpu");
    let desktop = env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).is_absolute());
    // The first is what this sets, the other what the layer is for.
    let set = ["NODEVICE_SELECT", "MESA_VK_DEVICE_SELECT"].iter().any(|name| env::var_os(name).is_some());
    if others || desktop || set {
        return;
    }
    let mut words = env::args_os();
    let (Ok(program), Some(name)) = (env::current_exe(), words.next()) else { return };
    let _failed = Command::new(program).arg0(name).args(words).env("NODEVICE_SELECT", "1").exec();
}
